"""Spaces a node's own batches further apart while messages arrive late. Pure.

    late ─▶ twice as far apart, once in the time in which that shows
    in time again ─▶ closer together, little by little, until nothing holds them back

Every publisher sees the same lateness and slows down in proportion to what it sends, so a swarm
that makes twice what it can carry comes to rest at what it carries.
"""

from __future__ import annotations

import math
import random

LATE_S = 1.0
"""Messages this late in the median slow a publisher down. A few lost ones, which are late by a
heartbeat and a second, move no median. With 2 s, 32 nodes at twice what their cores carry had a
p99 of 17 s, with 1.5 s 12 s, with 1 s 7 s (`benchmarks.delivery`, beside other work)."""
EASED_S = LATE_S / 2
"""Lateness below which batches go out faster again, in seconds."""
MOST_GAP_S = 30.0
"""Longest pause between two batches: whoever makes messages late on purpose gets no more. After so
long without a message the swarm is not late, it sends little."""
MOST_WAIT_S = 5.0
"""Longest pause for a batch that is accepted: the others wait with the trainer."""
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
        """`rng` keeps publishers from sending all at once, again and again, who slowed together."""
        self._rng = rng
        self._stretch = 1.0
        """Length of the present gap, relative to what all should keep on average."""
        self._gap_s = 0.0
        self._latest_s = 0.0
        """Time between the latest two own batches."""
        self._sent_at = -math.inf
        self._noted_at = -math.inf
        self.judged_since = -math.inf
        """Messages sent before this do not show yet how the latest gap does."""
        self.late_s = 0.0
        """Lateness of the latest note, in seconds."""

    @property
    def is_slowed(self) -> bool:
        """True if own batches are held back."""
        return self._gap_s > 0

    def note(self, late_s: float | None, now: float) -> None:
        """Take how late those messages arrive that were sent after `judged_since`; None where none
        has come yet, which may well be because they are late."""
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
            # What is sent until the backlog of now is gone tells nothing of the new pace.
            self.judged_since = now + min(late_s, _MOST_BACKLOG_S)
        elif late_s <= EASED_S and self._gap_s:
            self._gap_s *= math.exp(-elapsed / _EASE_S)
            if self._gap_s < _NO_GAP_S:
                self._gap_s = 0.0

    def sent(self, now: float) -> None:
        """Note that a batch has gone out."""
        self._latest_s = min(now - self._sent_at, MOST_GAP_S)
        self._sent_at = now
        self._stretch = self._rng.uniform(0.5, 1.5)

    def wait_s(self, now: float) -> float:
        """Return for how long a batch that is accepted waits before it goes out."""
        return min(self._left_s(now), MOST_WAIT_S)

    def is_soon(self, now: float) -> bool:
        """Return whether a batch accepted now goes out before long."""
        return self._left_s(now) <= _SOON_S

    def _left_s(self, now: float) -> float:
        gap_s = min(self._stretch * self._gap_s, MOST_GAP_S)
        return max(0.0, self._sent_at + gap_s - now)
