"""Estimates how far this machine's clock is off, by the clocks that peers report. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Collection
from dataclasses import dataclass

MIN_VOTERS = 3
"""Number of peers, or networks, from which on a single liar is outvoted."""
SKEW_WARN_MS = 5_000
"""Skew in milliseconds up to which no warning is given, since answers take a while to arrive."""


@dataclass(frozen=True, slots=True)
class Skew:
    """The offset of this machine's clock, as reported by peers."""

    ahead_ms: float
    """Median of the peers' clocks minus this one: positive if this clock is behind."""
    num_peers: int

    @property
    def is_wrong(self) -> bool:
        """True if the offset is larger than network delays explain."""
        return abs(self.ahead_ms) > SKEW_WARN_MS

    def message(self) -> str:
        """Return the finding, without advice."""
        way = "behind" if self.ahead_ms > 0 else "ahead of"
        reference = (
            f"the median of {self.num_peers} peers" if self.num_peers > 1 else "its one peer"
        )
        seconds = abs(self.ahead_ms) / 1000
        return f"{seconds:,.{1 if seconds < 100 else 0}f} s {way} {reference}"

    def advice(self) -> str:
        """Return the remedy. With two clocks, either may be the wrong one."""
        if self.num_peers < MIN_VOTERS:
            return "one of them is wrong: compare this machine's with NTP"
        return "set it (NTP)"


def skew_of(clocks_ahead_ms: Collection[int]) -> Skew | None:
    """Return the offset of this clock from those of its peers; None if none is known.

    For an even number of peers, the middle value with the smaller offset counts: half is no
    majority.
    """
    if not clocks_ahead_ms:
        return None
    middle = (statistics.median_low(clocks_ahead_ms), statistics.median_high(clocks_ahead_ms))
    return Skew(min(middle, key=abs), len(clocks_ahead_ms))
