"""Times checkpoints: by the clock, but never so often that training waits for them."""

from __future__ import annotations

import time
from collections.abc import Callable

COST_FACTOR = 20
"""Shortest training time between checkpoints, as a multiple of the last checkpoint's time. At 20,
checkpoints take at most 5 % of the time."""


class CheckpointPace:
    """Counts from the end of the last checkpoint, or from its own beginning."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`seconds` are to lie between checkpoints; 0 wants one after every round at any cost."""
        self._seconds, self._clock = seconds, clock
        self._begun = self._ended = clock()
        self._cost = 0.0

    @property
    def due(self) -> bool:
        """True when it is time for one."""
        wait = max(self._seconds, COST_FACTOR * self._cost) if self._seconds else 0.0
        return self._clock() - self._ended >= wait

    def begin(self) -> None:
        """Note that one is begun."""
        self._begun = self._ended = self._clock()

    def end(self) -> None:
        """Note that it is written."""
        self._ended = self._clock()
        self._cost = self._ended - self._begun
