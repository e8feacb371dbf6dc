"""A clock that moves only when a test advances it."""

from __future__ import annotations


class SetClock:
    """Returns `now`, in seconds."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return the time."""
        return self.now
