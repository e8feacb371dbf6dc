"""The interface of an update to the other processes that compute it too.

`Alone` is the answer for one process: everything is its own and nothing is added up.
`shoal_policy.distributed.Ranks` is the same over ``torch.distributed``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from shoal_policy.update.rows import TrainingRow

T = TypeVar("T")

SLACK = 1.1
"""Times a process's fair share that the rows of one prompt may be before they are parted."""


class Team(Protocol):
    """The processes that share an update. Every one of them takes the same steps."""

    @property
    def in_step(self) -> bool:
        """True if all make the same passes over the model: none may make one alone."""
        ...

    def share(self, rows: list[TrainingRow]) -> list[TrainingRow]:
        """This process's part of a step's rows; the parts are disjoint and complete."""
        ...

    def passes(self, count: int) -> int:
        """Return how many passes to make where this process needs `count`; asked before them."""
        ...

    def add_up(self, loss: float) -> float:
        """Sum a loss over all processes; gradients are summed already."""
        ...

    def collect(self, value: T) -> Sequence[T]:
        """Return every process's `value`, in the order of ranks."""
        ...


class Alone:
    """One process."""

    in_step = False

    def passes(self, count: int) -> int:
        """Return the count as it is."""
        return count

    def share(self, rows: list[TrainingRow]) -> list[TrainingRow]:
        """All of them."""
        return rows

    def add_up(self, loss: float) -> float:
        """Its own."""
        return loss

    def collect(self, value: T) -> Sequence[T]:
        """Its own."""
        return (value,)


def dealt(rows: Sequence[TrainingRow], size: int) -> list[list[TrainingRow]]:
    """Deal rows to so many processes, those of one prompt together: it is computed once then.

    Longest first, each to who has least. What alone is more than a process's share is cut in two,
    which costs its prompt once more.
    """
    of_prompt: dict[tuple[int, ...], list[TrainingRow]] = {}
    for row in rows:
        of_prompt.setdefault(tuple(row.prompt_ids), []).append(row)
    parts = list(of_prompt.values())
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
