"""Estimates how far this machine's clock is off, by the clocks that peers report. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Collection
from dataclasses import dataclass

ENOUGH_VOICES = 3
"""Peers, or networks, from which on a liar among them is outvoted."""
SKEW_WARN_MS = 5_000
"""Skew up to which nothing is said, in milliseconds: answers are on their way for a while."""


@dataclass(frozen=True, slots=True)
class Skew:
    """A clock, by what peers say of theirs."""

    ahead_ms: float
    """The median of the peers' clocks less this one's: positive where this one is behind."""
    num_peers: int

    @property
    def is_wrong(self) -> bool:
        """True if it is further off than the way of an answer explains."""
        return abs(self.ahead_ms) > SKEW_WARN_MS

    def says(self) -> str:
        """Return the finding, without advice."""
        way = "behind" if self.ahead_ms > 0 else "ahead of"
        whom = f"the median of {self.num_peers} peers" if self.num_peers > 1 else "its one peer"
        seconds = abs(self.ahead_ms) / 1000
        return f"{seconds:,.{1 if seconds < 100 else 0}f} s {way} {whom}"

    def advice(self) -> str:
        """Return what to do. Of two clocks that differ, either may be the wrong one."""
        if self.num_peers < ENOUGH_VOICES:
            return "one of them is wrong: compare this machine's with NTP"
        return "set it (NTP)"


def skew_of(clocks_ahead_ms: Collection[int]) -> Skew | None:
    """Return how far off this clock is, by how far each peer's is ahead; None if none is known.

    Of the two in the middle of an even number it is the one that agrees more: half are no majority.
    """
    if not clocks_ahead_ms:
        return None
    middle = (statistics.median_low(clocks_ahead_ms), statistics.median_high(clocks_ahead_ms))
    return Skew(min(middle, key=abs), len(clocks_ahead_ms))
