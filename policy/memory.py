"""Going on after the memory ran out: the same step in micro-batches of half the size."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

log = logging.getLogger(__name__)

_CPU_TEXTS = ("not enough memory", "can't allocate memory", "out of memory")
"""What torch's allocators say in a plain RuntimeError: the CPU's has no exception of its own."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory, of the host or of a device, ran out."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(part in text for part in _CPU_TEXTS)


def halved_budget(token_budget: int, lengths: Sequence[int]) -> int | None:
    """The next smaller token budget for rows of these lengths; None when rows go alone already."""
    ordered = sorted(lengths, reverse=True)
    if len(ordered) < 2 or token_budget < 2 * ordered[-2]:
        return None
    # A budget beyond all of the rows would be halved without an effect.
    smaller = min(token_budget, ordered[0] * len(ordered)) // 2
    log.warning("out of memory: going on with micro-batches of %d tokens", smaller)
    return smaller
