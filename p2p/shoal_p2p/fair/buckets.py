"""Rates: exponential decay, token buckets, and one rate that networks share. Pure.

Buckets exist singly, by key, and by share key. `AdaptiveRateLimit` shares one rate between networks
so that as much as the largest user takes always stays free:

    used by a network u, used by all U, both decaying with time constant T = burst / per second
    a network may take  ⇔  u ≤ burst − U

With n networks that want all they can get, each has 1/(n + 1) of the rate, and as much stays free:
a network without recent use never waits for the others. A single network gets half. What a network
does not use is available to the others. Dynamic thresholds share buffers in this way (Choudhury and
Hahne, 1998).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar

from shoal_base.bounded import REMEMBERED, BoundedDict
from shoal_base.ranges import Range, Ranged
from shoal_p2p.fair import ShareKey

HALF_LIFE_OF_TIME_CONSTANT = math.log(2.0)
"""The half-life that belongs to a time constant of 1 s: what is left of it after that is 1/e."""


def remaining(elapsed_s: float, half_life_s: float) -> float:
    """Return the share of an amount that is left after `elapsed_s`; 1 if the clock went back."""
    return 0.5 ** (max(0.0, elapsed_s) / half_life_s)


@dataclass(slots=True)
class DecayingSum:
    """A sum of amounts that each halve every `half_life_s`; `now` is monotonic seconds."""

    half_life_s: float
    at: float
    """Time of `amount`."""
    amount: float = 0.0

    def now(self, now: float) -> float:
        """Return the sum at `now`."""
        return self.amount * remaining(now - self.at, self.half_life_s)

    def add(self, amount: float, now: float) -> None:
        """Add an amount at `now`."""
        self.amount = self.now(now) + amount
        self.at = max(self.at, now)


K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate(Ranged):
    """A token bucket's capacity and refill per second."""

    burst: Annotated[float, Range("tokens", 0, 1 << 50, is_open=True)]
    per_second: Annotated[float, Range("tokens/s", 0, 1 << 50, is_open=True)]


class TokenBucket:
    """A token bucket, full at the start. `now` is monotonic seconds."""

    __slots__ = ("_at", "_rate", "tokens")

    def __init__(self, rate: Rate, now: float) -> None:
        self._rate = rate
        self.tokens = rate.burst
        """Tokens at the last use: without the refill since then."""
        self._at = now

    def available(self, now: float) -> float:
        """Return the available tokens; below 0 after an overdraft."""
        rate, tokens = self._rate, self.tokens
        if now > self._at:
            tokens += (now - self._at) * rate.per_second
        return min(rate.burst, tokens)

    def take(self, amount: float, now: float) -> None:
        """Take `amount` even if fewer tokens are left: a cost may be known only afterwards."""
        self.tokens = self.available(now) - amount
        self._at = max(self._at, now)

    def debit(self, amount: float, now: float) -> None:
        """Take `amount` even if fewer tokens are left, down to a debt of one burst."""
        rate, tokens = self._rate, self.tokens
        if now > self._at:
            tokens += (now - self._at) * rate.per_second
            self._at = now
        self.tokens = max(-rate.burst, min(rate.burst, tokens) - amount)

    def try_take(self, amount: float, now: float) -> bool:
        """Take `amount` and return True, or return False if fewer tokens are left."""
        left = self.available(now) - amount
        if left < 0.0:
            return False
        self.tokens, self._at = left, max(self._at, now)
        return True

    def wait_s(self, amount: float, now: float) -> float:
        """Return the seconds until `amount` is available, at most until the bucket is full.

        With `amount` 0, return the seconds until a debt is repaid.
        """
        if amount <= self.tokens:  # refills since then can only add to it
            return 0.0
        missing = min(amount, self._rate.burst) - self.available(now)
        return max(0.0, missing / self._rate.per_second)


def take_from_all(buckets: Sequence[TokenBucket], now: float) -> float:
    """Take 1 from each bucket and return 0, or take nothing and return the seconds to wait."""
    wait_s = max((bucket.wait_s(1.0, now) for bucket in buckets), default=0.0)
    if wait_s <= 0:
        for bucket in buckets:
            bucket.take(1.0, now)
    return wait_s


class KeyedBuckets(Generic[K]):
    """One bucket per key. Bounded: the least recently used key is dropped, and restarts full."""

    def __init__(self, rate: Rate, *, max_keys: int = REMEMBERED) -> None:
        self._rate = rate
        self._buckets: BoundedDict[K, TokenBucket] = BoundedDict(max_keys)

    def __len__(self) -> int:
        return len(self._buckets)

    def get(self, key: K, now: float) -> TokenBucket:
        """Return the bucket of `key`."""
        return self._buckets.use(key, lambda: TokenBucket(self._rate, now))


class BucketGroup:
    """Several buckets that are debited together."""

    def __init__(self, buckets: tuple[TokenBucket, ...]) -> None:
        self._buckets = buckets

    def debit(self, amount: float, now: float) -> None:
        """Take `amount` even if fewer tokens are left, down to a debt of one burst."""
        for bucket in self._buckets:
            bucket.debit(amount, now)

    def wait_s(self, amount: float, now: float) -> float:
        """Return the seconds until every bucket has `amount`, at most until all are full."""
        return max(bucket.wait_s(amount, now) for bucket in self._buckets)


class HierarchicalBuckets:
    """A bucket for each prefix of a share key: all identities of a network share its bucket.

    Any number of identities on one network stay within the network's rate.
    """

    def __init__(self, *rates: Rate, max_keys: int = REMEMBERED) -> None:
        """`rates` apply to the first level of a share key, to the first two, and so on."""
        self._levels = [KeyedBuckets[ShareKey](rate, max_keys=max_keys) for rate in rates]

    def get(self, share_key: ShareKey, now: float) -> BucketGroup:
        """Return the buckets of `share_key` and its prefixes."""
        return BucketGroup(
            tuple(level.get(share_key[:depth], now) for depth, level in enumerate(self._levels, 1))
        )


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
