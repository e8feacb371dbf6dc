"""Less memory: layers computed twice, and smaller micro-batches after memory ran out."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers.modeling_layers import GradientCheckpointingLayer

log = logging.getLogger(__name__)

_CPU_TEXTS = ("not enough memory", "can't allocate memory", "out of memory")
"""What torch's allocators say in a plain RuntimeError: the CPU's has no exception of its own."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory, of the host or of a device, ran out."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(part in text for part in _CPU_TEXTS)


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
