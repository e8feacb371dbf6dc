"""A rate shared by networks; as much as the largest user takes always stays free. Pure.

    used by a network u, used by all U, both decaying with time constant T = burst / per second
    a network may take  ⇔  u ≤ burst − U

With n networks that want all they can get, each has 1/(n + 1) of the rate, and as much stays free:
a network without recent use never waits for the others. A single network gets half. What a network
does not use is available to the others. Dynamic thresholds share buffers in this way (Choudhury and
Hahne, 1998).
"""

from __future__ import annotations

import math

from shoal_base.bounded import BoundedDict
from shoal_p2p.fair.buckets import Rate


class AdaptiveRateLimit:
    """Tracks the recent use of one rate by each network; `now` is monotonic seconds."""

    def __init__(self, rate: Rate, now: float) -> None:
        self._burst = rate.burst
        self._memory_s = rate.burst / rate.per_second
        self._total, self._at = 0.0, now
        self._used: BoundedDict[str, tuple[float, float]] = BoundedDict()
        """Bytes used by each network, and the time of that value."""

    def wait_s(self, network: str, now: float) -> float:
        """Return the seconds until a network may take something, if no other network does first."""
        used, at = self._used.get(network, (0.0, now))
        counted = self._decayed(used, at, now) + self._decayed(self._total, self._at, now)
        if counted <= self._burst:
            return 0.0
        return self._memory_s * math.log(counted / self._burst)

    def take(self, network: str, amount: float, now: float) -> None:
        """Record usage after the fact: a response's size is not known before."""
        used, at = self._used.get(network, (0.0, now))
        self._used.put(network, (self._decayed(used, at, now) + amount, now))
        self._total = self._decayed(self._total, self._at, now) + amount
        self._at = now

    def _decayed(self, used: float, at: float, now: float) -> float:
        return used * math.exp(-max(0.0, now - at) / self._memory_s)
