"""The interface between an update and the other processes that compute it.

`ProcessGroup` is one process alone; `shoal_policy.distributed.Ranks` is several, over
``torch.distributed``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from shoal_policy.model.packed import group_rows
from shoal_policy.update.rows import TrainingRow

T = TypeVar("T")

MAX_IMBALANCE = 1.1
"""Rows of one prompt are split between ranks beyond this multiple of a rank's fair share."""


class ProcessGroup:
    """The processes that compute one update together; this class stands for a single one."""

    is_lockstep = False
    """True if all ranks must make the same number of forward passes."""

    def local_rows(self, rows: list[TrainingRow]) -> list[TrainingRow]:
        """Return this rank's rows of a step; the ranks' rows are disjoint and complete."""
        return rows

    def num_passes(self, count: int) -> int:
        """Return the largest `count` of all ranks: passes that each of them has to make."""
        return count

    def all_reduce(self, loss: float) -> float:
        """Return the sum of a loss over all ranks. Gradients are summed by the backward pass."""
        return loss

    def all_gather(self, value: T) -> list[T]:
        """Return every rank's `value`, in the order of ranks."""
        return [value]


def shard_rows(rows: Sequence[TrainingRow], size: int) -> list[list[TrainingRow]]:
    """Split rows over `size` ranks; rows of one prompt stay together, since it is computed once.

    Longest prompts first, each to the rank with the fewest tokens. The rows of a prompt that are
    more than a rank's share are halved, which costs that prompt once more.
    """
    parts = list(group_rows(rows, lambda row: row.prompt).values())
    while parts and size > 1:
        parts.sort(key=_tokens, reverse=True)
        largest = parts[0]
        if len(largest) == 1 or _tokens(largest) * size <= MAX_IMBALANCE * sum(map(_tokens, parts)):
            break
        ordered = sorted(largest, key=lambda row: -row.length)
        parts[:1] = [ordered[::2], ordered[1::2]]
    shares: list[list[TrainingRow]] = [[] for _ in range(size)]
    loads = [0] * size
    for part in parts:
        lightest = loads.index(min(loads))
        shares[lightest].extend(part)
        loads[lightest] += _tokens(part)
    return shares


def _tokens(part: Sequence[TrainingRow]) -> int:
    """Return the number of tokens to compute for these rows of one prompt."""
    return len(part[0].prompt_ids) + sum(len(row.completion_ids) for row in part)
