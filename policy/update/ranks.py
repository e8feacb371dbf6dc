"""What an update needs to know of other processes that compute it too.

`Alone` is the answer for one process: everything is its own and nothing is added up.
`policy.distributed.Ranks` is the same over ``torch.distributed``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar

from policy.update.rows import Row

T = TypeVar("T")


class Team(Protocol):
    """The processes that share an update. Every one of them takes the same steps."""

    def share(self, rows: list[Row]) -> list[Row]:
        """This process's part of a step's rows; the parts are disjoint and complete."""
        ...

    def add_up(self, loss: float, weights: Iterable[Any]) -> float:
        """Sum a loss, and the gradients of `weights` in place, over all processes."""
        ...

    def collect(self, value: T) -> Sequence[T]:
        """Return every process's `value`, in the order of ranks."""
        ...


class Alone:
    """One process."""

    def share(self, rows: list[Row]) -> list[Row]:
        """All of them."""
        return rows

    def add_up(self, loss: float, weights: Iterable[Any]) -> float:
        """Its own."""
        return loss

    def collect(self, value: T) -> Sequence[T]:
        """Its own."""
        return (value,)
