"""Spaces a node's own batches further apart while messages arrive late. Pure.

    late ─▶ double the gap, at most once in the time until that takes effect
    in time again ─▶ reduce the gap gradually, to none

Every publisher measures the same lag and slows down in proportion to its rate, so a swarm that
produces twice its capacity settles at its capacity.
"""

from __future__ import annotations

import math
import random

from shoal_p2p.fair.buckets import HALF_LIFE_OF_TIME_CONSTANT, remaining

LATE_S = 1.0
"""Messages this late in the median slow a publisher down. A few lost ones, which are late by a
heartbeat and a second, move no median. With 2 s, 32 nodes at twice what their cores carry had a
p99 of 17 s, with 1.5 s 12 s, with 1 s 7 s (`benchmarks.delivery`, on a machine with other load)."""
EASED_S = LATE_S / 2
"""Lag below which batches are sent faster again, in seconds."""
MOST_GAP_S = 30.0
"""Maximum gap between two batches, which bounds the effect of deliberate delays. A swarm without a
message for this long is not late, but sends little."""
MOST_WAIT_S = 5.0
"""Maximum wait of an accepted batch; further batches wait in the trainer."""
_FIRST_GAP_S = EASED_S
_EASE_S = 10.0
"""Time in which the gap falls to 1/e."""
_MOST_BACKLOG_S = 8.0
_NO_GAP_S = 0.05
_SOON_S = 2.0
"""A batch that would wait longer than this is not accepted yet."""


class PublishBackoff:
    """The gap between own batches. Call `note` before `wait_s`."""

    def __init__(self, rng: random.Random) -> None:
        """`rng` adds jitter, so that publishers that slowed down together do not send together."""
        self._rng = rng
        self._stretch = 1.0
        """Length of the current gap, relative to the common mean."""
        self._gap_s = 0.0
        self._latest_s = 0.0
        """Time between the latest two own batches."""
        self._sent_at = -math.inf
        self._noted_at = -math.inf
        self.judged_since = -math.inf
        """Messages sent before this time do not reflect the latest gap."""
        self.late_s = 0.0
        """Lag of the latest note, in seconds."""

    @property
    def is_slowed(self) -> bool:
        """True if own batches are delayed."""
        return self._gap_s > 0

    def note(self, late_s: float | None, now: float) -> None:
        """Record the median lag of messages sent after `judged_since`.

        None if none has arrived yet, possibly because they are late.
        """
        elapsed = now - self._noted_at
        self._noted_at = now
        if late_s is None:
            if now - self.judged_since < MOST_GAP_S:
                return
            late_s = 0.0
        self.late_s = late_s
        if late_s >= LATE_S:
            gap_s = 2 * max(self._gap_s, self._latest_s, _FIRST_GAP_S / 2)
            self._gap_s = min(gap_s, MOST_GAP_S)
            # Messages sent until the current backlog is gone do not reflect the new gap.
            self.judged_since = now + min(late_s, _MOST_BACKLOG_S)
        elif late_s <= EASED_S and self._gap_s:
            self._gap_s *= remaining(elapsed, HALF_LIFE_OF_TIME_CONSTANT * _EASE_S)
            if self._gap_s < _NO_GAP_S:
                self._gap_s = 0.0

    def sent(self, now: float) -> None:
        """Record that a batch was sent."""
        self._latest_s = min(now - self._sent_at, MOST_GAP_S)
        self._sent_at = now
        self._stretch = self._rng.uniform(0.5, 1.5)

    def wait_s(self, now: float) -> float:
        """Return how long a batch accepted now waits until it is sent, in seconds."""
        return min(self._left_s(now), MOST_WAIT_S)

    def is_soon(self, now: float) -> bool:
        """Return whether a batch accepted now is sent soon enough."""
        return self._left_s(now) <= _SOON_S

    def _left_s(self, now: float) -> float:
        gap_s = min(self._stretch * self._gap_s, MOST_GAP_S)
        return max(0.0, self._sent_at + gap_s - now)
