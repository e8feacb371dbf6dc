"""Memory a model needs and has, and ways to need less: recomputed layers, smaller micro-batches."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import torch
from transformers.modeling_layers import GradientCheckpointingLayer

log = logging.getLogger(__name__)

_CPU_TEXTS = ("not enough memory", "can't allocate memory", "out of memory")
"""Texts of torch's allocators in a plain RuntimeError: the CPU's has no exception of its own."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that memory, of the host or of a device, ran out."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(part in text for part in _CPU_TEXTS)


def training_bytes(num_weights: int, *, bytes_each: int, num_copies: int = 0) -> int:
    """Return what training all of so many weights holds at the least.

    Weights, gradients and AdamW's two moments are of one type; `num_copies` more models only
    answer (a reference). Activations and caches come on top.
    """
    return num_weights * bytes_each * (4 + num_copies)


def free_bytes(device: str) -> int:
    """Return how much memory a device has left; of a host, with swap and within its limits."""
    kind = torch.device("cpu") if device == "auto" else torch.device(device)
    if torch.cuda.is_available() and (device == "auto" or kind.type == "cuda"):
        return int(torch.cuda.mem_get_info(None if device == "auto" else kind)[0])
    host = psutil.virtual_memory().available + psutil.swap_memory().free
    return min(host, _left_in_container(Path("/sys/fs/cgroup")))


def gibibytes(num_bytes: int) -> str:
    """Return a size for people."""
    return f"{num_bytes / 2**30:.1f} GiB"


def _left_in_container(group: Path) -> int:
    """Return what the kernel still grants this group of processes; without a limit, a lot."""
    try:
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return max(0, limit - used + int(counts.get("inactive_file", 0)))
    except (OSError, ValueError):  # no such group, or "max"
        return 1 << 62


def halved_budget(token_budget: int, batches: Sequence[tuple[int, int]]) -> int | None:
    """The next smaller token budget, given rows and tokens of each micro-batch that was tried.

    None when rows go alone already.
    """
    largest = max((tokens for rows, tokens in batches if rows > 1), default=None)
    if largest is None:
        return None
    # A budget beyond the largest would be halved without an effect.
    smaller = max(1, min(token_budget, largest) // 2)
    log.warning("out of memory: going on with micro-batches of %d tokens", smaller)
    return smaller


def can_checkpoint(model: Any) -> bool:
    """Return whether transformers can compute this model's layers again in the backward pass."""
    has_layers = any(isinstance(m, GradientCheckpointingLayer) for m in model.modules())
    return has_layers and bool(model.supports_gradient_checkpointing)


@contextlib.contextmanager
def checkpointing(model: Any) -> Iterator[None]:
    """Keep each layer's input only, and compute the layer again in the backward pass.

    Raises ValueError for a model that transformers cannot do this for.
    """
    if not can_checkpoint(model):
        raise ValueError("gradient_checkpointing: this model's layers do not support it")
    layers = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
    model.activation_checkpointing_enable()
    # Layers do it only while they say that they train; what is in them stays without dropout.
    for layer in layers:
        layer.training = True
    try:
        yield
    finally:
        for layer in layers:
            layer.training = False
        model.activation_checkpointing_disable()
