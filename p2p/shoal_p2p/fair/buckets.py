"""Rate limits that refill: so much at once, so much a second. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from shoal_base.bounded import REMEMBERED, BoundedDict
from shoal_p2p.fair import Path

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A token bucket's capacity and refill per second."""

    burst: float
    per_second: float


class TokenBucket:
    """One quota; full at the start. `now` is monotonic seconds."""

    __slots__ = ("_at", "_rate", "_tokens")

    def __init__(self, rate: Rate, now: float) -> None:
        self._rate = rate
        self._tokens = rate.burst
        self._at = now

    def available(self, now: float) -> float:
        """Return what may be taken; below 0 after an overdraft."""
        elapsed = max(0.0, now - self._at)
        return min(self._rate.burst, self._tokens + elapsed * self._rate.per_second)

    def take(self, amount: float, now: float) -> None:
        """Take `amount` whether it is there or not: the cost may be known only afterwards."""
        self._tokens = self.available(now) - amount
        self._at = max(self._at, now)

    def owe(self, amount: float, now: float) -> None:
        """Take `amount` even where it is not there, down to a debt of one burst."""
        self._tokens = max(-self._rate.burst, self.available(now) - amount)
        self._at = max(self._at, now)

    def try_take(self, amount: float, now: float) -> bool:
        """Take `amount` if it is there."""
        if amount > self.available(now):
            return False
        self.take(amount, now)
        return True

    def wait_s(self, amount: float, now: float) -> float:
        """Return the seconds until `amount` is there; at most what fills a whole bucket.

        Until 0 is there: until a debt is paid.
        """
        if amount <= self._tokens:  # what flowed in since can only be more
            return 0.0
        missing = min(amount, self._rate.burst) - self.available(now)
        return max(0.0, missing / self._rate.per_second)


def take_of_all(buckets: Sequence[TokenBucket], now: float) -> float:
    """Take 1 of each bucket and return 0, or take nothing and return the seconds to wait."""
    wait_s = max((bucket.wait_s(1.0, now) for bucket in buckets), default=0.0)
    if wait_s <= 0:
        for bucket in buckets:
            bucket.take(1.0, now)
    return wait_s


class KeyedBuckets(Generic[K]):
    """One bucket a key, bounded: the key used longest ago is forgotten, with a full bucket."""

    def __init__(self, rate: Rate, *, max_keys: int = REMEMBERED) -> None:
        self._rate = rate
        self._buckets: BoundedDict[K, TokenBucket] = BoundedDict(max_keys)

    def __len__(self) -> int:
        return len(self._buckets)

    def of(self, key: K, now: float) -> TokenBucket:
        """Return the bucket of `key`."""
        return self._buckets.use(key, lambda: TokenBucket(self._rate, now))


class Buckets:
    """The buckets that somebody takes from, all of them at once."""

    def __init__(self, buckets: tuple[TokenBucket, ...]) -> None:
        self._buckets = buckets

    def owe(self, amount: float, now: float) -> None:
        """Take `amount` even where it is not there, down to a debt of one burst."""
        for bucket in self._buckets:
            bucket.owe(amount, now)

    def wait_s(self, amount: float, now: float) -> float:
        """Return the seconds until `amount` is there, at most what fills a whole bucket."""
        return max(bucket.wait_s(amount, now) for bucket in self._buckets)


class PathBuckets:
    """A bucket for each beginning of a path: all names of a network share the network's.

    So any number of names on one network may do what the network may, and no more.
    """

    def __init__(self, *rates: Rate, max_keys: int = REMEMBERED) -> None:
        """`rates` are of a path's first part, of its first two, and so on."""
        self._levels = [KeyedBuckets[Path](rate, max_keys=max_keys) for rate in rates]

    def of(self, path: Path, now: float) -> Buckets:
        """Return what somebody at `path` takes from."""
        return Buckets(
            tuple(level.of(path[:depth], now) for depth, level in enumerate(self._levels, 1))
        )
