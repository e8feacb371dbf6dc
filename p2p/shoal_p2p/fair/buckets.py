"""Token buckets, singly, by key, and by share key. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from shoal_base.bounded import REMEMBERED, BoundedDict
from shoal_p2p.fair import ShareKey

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A token bucket's capacity and refill per second."""

    burst: float
    per_second: float


class TokenBucket:
    """A token bucket, full at the start. `now` is monotonic seconds."""

    __slots__ = ("_at", "_rate", "_tokens")

    def __init__(self, rate: Rate, now: float) -> None:
        self._rate = rate
        self._tokens = rate.burst
        self._at = now

    def available(self, now: float) -> float:
        """Return the available tokens; below 0 after an overdraft."""
        elapsed = max(0.0, now - self._at)
        return min(self._rate.burst, self._tokens + elapsed * self._rate.per_second)

    def take(self, amount: float, now: float) -> None:
        """Take `amount` even if fewer tokens are left: a cost may be known only afterwards."""
        self._tokens = self.available(now) - amount
        self._at = max(self._at, now)

    def debit(self, amount: float, now: float) -> None:
        """Take `amount` even if fewer tokens are left, down to a debt of one burst."""
        self._tokens = max(-self._rate.burst, self.available(now) - amount)
        self._at = max(self._at, now)

    def try_take(self, amount: float, now: float) -> bool:
        """Take `amount` and return True, or return False if fewer tokens are left."""
        if amount > self.available(now):
            return False
        self.take(amount, now)
        return True

    def wait_s(self, amount: float, now: float) -> float:
        """Return the seconds until `amount` is available, at most until the bucket is full.

        With `amount` 0, return the seconds until a debt is repaid.
        """
        if amount <= self._tokens:  # refills since then can only add to it
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
