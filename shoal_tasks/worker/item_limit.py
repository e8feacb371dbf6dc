"""A processor-time limit for one item, by an interval timer. Main thread only."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Self


class ItemTimeout(BaseException):
    """The item used up its time. A BaseException, which ``except Exception`` does not catch."""


class ItemLimit:
    """Context manager that raises `ItemTimeout` in its block once the processor time is used up.

    The timer repeats, because code with a bare ``except`` may swallow the first exception;
    ``expired`` shows afterwards whether it fired. It cannot interrupt a single long operation of
    the interpreter, such as a huge power: for those the client kills the process.

        with ItemLimit(1.0).of(8):
            scores = [score(text) for text in group]
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._items = 1
        self._armed = False
        self.expired = False
        signal.signal(signal.SIGPROF, self._on_timer)

    def of(self, items: int) -> Self:
        """Return this limit with the time of `items` items, for the next block only."""
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
        # A signal that was pending when the block ended must not affect the code after it.
        if self._armed:
            self.expired = True
            raise ItemTimeout
