"""Throttles log lines about a persistent condition. Pure."""

from __future__ import annotations

import math

from shoal_base.waits import HOUR_S, MINUTE_S


class LogThrottle:
    """Lets a line through at once, then at doubling intervals up to an hour.

    The interval is reset once the condition was absent for as long as the current interval.
    """

    def __init__(self, until: float = -math.inf) -> None:
        """`until` is the earliest time of the first line, in monotonic seconds."""
        self._until = until
        self._pause_s = 0.0

    def may_say(self, now: float) -> bool:
        """Return whether a line may be logged now; True counts as logged."""
        if now < self._until:
            return False
        is_news = now >= self._until + self._pause_s
        self._pause_s = MINUTE_S if is_news else min(2 * self._pause_s, HOUR_S)
        self._until = now + self._pause_s
        return True
