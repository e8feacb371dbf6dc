"""Schedules checkpoints by the clock, but never so often that they slow down training."""

from __future__ import annotations

import time
from collections.abc import Callable

COST_FACTOR = 20
"""Minimum training time between checkpoints, as a multiple of the last checkpoint's duration. At
20, checkpoints take at most 5 % of the time."""


class CheckpointPace:
    """Measures the time since the last checkpoint, or since the start."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`seconds` is the interval; 0 means after every round, whatever the cost."""
        self._seconds, self._clock = seconds, clock
        self._begun = self._ended = clock()
        self._cost = 0.0

    @property
    def is_due(self) -> bool:
        """Return whether it is time for a checkpoint."""
        wait = max(self._seconds, COST_FACTOR * self._cost) if self._seconds else 0.0
        return self._clock() - self._ended >= wait

    def begin(self) -> None:
        """Record the start of a checkpoint."""
        self._begun = self._ended = self._clock()

    def end(self) -> None:
        """Record the end of a checkpoint."""
        self._ended = self._clock()
        self._cost = self._ended - self._begun
