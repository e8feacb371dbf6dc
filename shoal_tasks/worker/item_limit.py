"""Processor-time limit on one item, by an interval timer. Main thread only."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Self


class ItemTimeout(BaseException):
    """The item used up its time. Not an Exception, so that a scorer's ``except`` misses it."""


class ItemLimit:
    """Context manager: raises `ItemTimeout` inside the block once its processor time is spent.

    The timer repeats, because code with a bare ``except`` may swallow the first; ``expired``
    tells afterwards whether it fired. It cannot interrupt one long operation of the interpreter,
    such as a huge power: that is what the parent's kill is for.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._items = 1
        self._armed = False
        self.expired = False
        signal.signal(signal.SIGPROF, self._on_timer)

    def of(self, items: int) -> Self:
        """Return this limit with the time of so many items, for the next block alone."""
        self._items = max(1, items)
        return self

    def __enter__(self) -> Self:
        seconds, self._items = self._seconds * self._items, 1
        self.expired = False
        self._armed = True
        signal.setitimer(signal.ITIMER_PROF, seconds, self._seconds / 10)
        return self

    def __exit__(self, *_error: object) -> None:
        self._armed = False
        signal.setitimer(signal.ITIMER_PROF, 0.0)

    def _on_timer(self, _signal: int, _frame: FrameType | None) -> None:
        # A signal that was already pending when the block ended must not hit what follows.
        if self._armed:
            self.expired = True
            raise ItemTimeout
