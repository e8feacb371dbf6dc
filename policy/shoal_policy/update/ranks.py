"""The interface of an update to the other processes that compute it too.

`shoal_policy.distributed.Ranks` is a team of several over ``torch.distributed``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from shoal_policy.model.packed import alike
from shoal_policy.update.rows import TrainingRow

T = TypeVar("T")

SLACK = 1.1
"""Times a process's fair share that the rows of one prompt may be before they are parted."""


class ProcessGroup:
    """The processes that share an update, all of which take the same steps: this one alone."""

    in_step = False
    """True if all make the same passes over the model: none may make one alone."""

    def share(self, rows: list[TrainingRow]) -> list[TrainingRow]:
        """This process's part of a step's rows; the parts are disjoint and complete."""
        return rows

    def passes(self, count: int) -> int:
        """Return how many passes to make where this process needs `count`; asked before them."""
        return count

    def add_up(self, loss: float) -> float:
        """Sum a loss over all processes; gradients are summed already."""
        return loss

    def collect(self, value: T) -> list[T]:
        """Return every process's `value`, in the order of ranks."""
        return [value]


def shard_rows(rows: Sequence[TrainingRow], size: int) -> list[list[TrainingRow]]:
    """Deal rows to so many processes, those of one prompt together: it is computed once then.

    Longest first, each to who has least. What alone is more than a process's share is cut in two,
    which costs its prompt once more.
    """
    parts = list(alike(rows, lambda row: row.prompt).values())
    while parts and size > 1:
        parts.sort(key=_tokens, reverse=True)
        largest = parts[0]
        if len(largest) == 1 or _tokens(largest) * size <= SLACK * sum(map(_tokens, parts)):
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
    """Return the tokens that these rows of one prompt cost to compute."""
    return len(part[0].prompt_ids) + sum(len(row.completion_ids) for row in part)
