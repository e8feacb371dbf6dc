"""Memory that a model needs and has, and ways to need less: recomputation, smaller batches."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import torch

log = logging.getLogger(__name__)

_CPU_TEXTS = ("not enough memory", "can't allocate memory", "out of memory")
"""Messages of torch's allocators in a plain RuntimeError; the CPU has no own exception."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that host or device memory ran out."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(part in text for part in _CPU_TEXTS)


def training_bytes(num_weights: int, *, bytes_each: int, num_copies: int = 0) -> int:
    """Return the minimum memory for training this many weights.

    Weights, gradients and AdamW's two moments have one type; `num_copies` are further models that
    only run forward (a reference). Activations and caches come on top.
    """
    return num_weights * bytes_each * (4 + num_copies)


def free_bytes(device: str) -> int:
    """Return a device's free memory; for the host, with swap and within container limits."""
    kind = torch.device("cpu") if device == "auto" else torch.device(device)
    if torch.cuda.is_available() and (device == "auto" or kind.type == "cuda"):
        return int(torch.cuda.mem_get_info(None if device == "auto" else kind)[0])
    host = psutil.virtual_memory().available + psutil.swap_memory().free
    return min(host, _cgroup_free_bytes(Path("/sys/fs/cgroup")))


def format_gib(num_bytes: int) -> str:
    """Return a size in GiB, for messages."""
    return f"{num_bytes / 2**30:.1f} GiB"


def _cgroup_free_bytes(group: Path) -> int:
    """Return the memory left in this control group; a huge number without a limit."""
    try:
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return max(0, limit - used + int(counts.get("inactive_file", 0)))
    except (OSError, ValueError):  # no such group, or "max"
        return 1 << 62


def halve_budget(token_budget: int, batches: Sequence[tuple[int, int]]) -> int | None:
    """Return the next smaller token budget, given rows and tokens of each tried micro-batch.

    None if every row already runs alone.
    """
    largest = max((tokens for rows, tokens in batches if rows > 1), default=None)
    if largest is None:
        return None
    # A budget above the largest batch would be halved without effect.
    smaller = max(1, min(token_budget, largest) // 2)
    log.warning("out of memory: continuing with micro-batches of %d tokens", smaller)
    return smaller


def can_checkpoint(model: Any) -> bool:
    """Return whether transformers can recompute this model's layers in the backward pass."""
    return bool(layers_of(model)) and bool(model.supports_gradient_checkpointing)


def layers_of(model: Any) -> list[Any]:
    """Return the layers of a model that transformers can recompute."""
    # Every loaded model has imported this; a refusal would wait two seconds for it.
    from transformers.modeling_layers import GradientCheckpointingLayer

    return [one for one in model.modules() if isinstance(one, GradientCheckpointingLayer)]


@contextlib.contextmanager
def checkpointing(model: Any) -> Iterator[None]:
    """Within, keep only each layer's input and recompute the layer in the backward pass.

    Raises ValueError for a model that transformers does not support this for.
    """
    if not can_checkpoint(model):
        raise ValueError("gradient_checkpointing: this model's layers do not support it")
    layers = layers_of(model)
    model.activation_checkpointing_enable()
    # Layers recompute only in training mode; the modules inside them stay without dropout.
    for layer in layers:
        layer.training = True
    try:
        yield
    finally:
        for layer in layers:
            layer.training = False
        model.activation_checkpointing_disable()
