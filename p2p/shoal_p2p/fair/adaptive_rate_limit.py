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
from shoal_p2p.fair.decay import HALF_LIFE_OF_TIME_CONSTANT, DecayingSum


class AdaptiveRateLimit:
    """Tracks the recent use of one rate by each network; `now` is monotonic seconds."""

    def __init__(self, rate: Rate, now: float) -> None:
        self._burst = rate.burst
        self._memory_s = rate.burst / rate.per_second
        self._total = self._made(now)
        self._used: BoundedDict[str, DecayingSum] = BoundedDict()
        """Bytes used by each network."""

    def wait_s(self, network: str, now: float) -> float:
        """Return the seconds until a network may take something, if no other network does first."""
        used = self._used.get(network)
        counted = self._total.now(now) + (used.now(now) if used is not None else 0.0)
        if counted <= self._burst:
            return 0.0
        return self._memory_s * math.log(counted / self._burst)

    def take(self, network: str, amount: float, now: float) -> None:
        """Record usage after the fact: a response's size is not known before."""
        self._used.use(network, lambda: self._made(now)).add(amount, now)
        self._total.add(amount, now)

    def _made(self, now: float) -> DecayingSum:
        return DecayingSum(half_life_s=HALF_LIFE_OF_TIME_CONSTANT * self._memory_s, at=now)
