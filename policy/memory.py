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
