"""A rate shared by networks, of which as much as the largest takes is always left over. Pure.

    used by a network u, used by all U, both forgotten with time constant T = burst / per second
    a network may take  ⇔  u ≤ burst − U

So of n networks that want all they can get each has 1/(n + 1) of the rate, and the same is left: a
network that has taken nothing lately never waits for what others take.  One alone has a half.  What
a network does not use the others may.  A buffer is shared so by dynamic thresholds (Choudhury and
Hahne, 1998).
"""

from __future__ import annotations

import math

from shoal_base.bounded import BoundedDict
from shoal_p2p.fair.buckets import Rate


class AdaptiveRateLimit:
    """The use that networks have made of one rate lately; `now` is monotonic seconds."""

    def __init__(self, rate: Rate, now: float) -> None:
        self._burst = rate.burst
        self._memory_s = rate.burst / rate.per_second
        self._of_all, self._at = 0.0, now
        self._used: BoundedDict[str, tuple[float, float]] = BoundedDict()
        """The bytes that a network had used, and when that was so."""

    def wait_s(self, network: str, now: float) -> float:
        """Return the seconds until a network may take something, if nobody else does meanwhile."""
        used, at = self._used.get(network, (0.0, now))
        counted = self._left(used, at, now) + self._left(self._of_all, self._at, now)
        if counted <= self._burst:
            return 0.0
        return self._memory_s * math.log(counted / self._burst)

    def take(self, network: str, amount: float, now: float) -> None:
        """Count what a network has taken; the size of an answer is known only afterwards."""
        used, at = self._used.get(network, (0.0, now))
        self._used.put(network, (self._left(used, at, now) + amount, now))
        self._of_all = self._left(self._of_all, self._at, now) + amount
        self._at = now

    def _left(self, used: float, at: float, now: float) -> float:
        return used * math.exp(-max(0.0, now - at) / self._memory_s)
