"""A heap with removal, and a set with random sampling.

Pure and deterministic: the order depends on the calls alone. A removal leaves stale entries in the
heap; they hold serial numbers, never the removed object.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_SLACK = 8
"""Stale heap entries tolerated in addition to one for each live key."""


class LazyHeap(Generic[K]):
    """A min-heap whose keys can be removed and can change their priority.

    Every call is O(log n) amortised. Equal priorities keep the order of insertion.
    """

    __slots__ = ("_heap", "_keys", "_serial", "_serials")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._keys: dict[int, K] = {}
        self._serials: dict[K, int] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._keys)

    def put(self, key: K, priority: float) -> None:
        """Add `key`, or change its priority."""
        self.discard(key)
        serial = self._serial = self._serial + 1
        self._serials[key] = serial
        self._keys[serial] = key
        heapq.heappush(self._heap, (priority, serial))
        if len(self._heap) > 2 * len(self._keys) + _SLACK:
            # A sorted list is a heap.
            self._heap = sorted(item for item in self._heap if item[1] in self._keys)

    def discard(self, key: K) -> None:
        """Remove `key` if present."""
        serial = self._serials.pop(key, None)
        if serial is not None:
            del self._keys[serial]

    def peek(self) -> K | None:
        """Return the key with the lowest priority, None if empty."""
        heap, keys = self._heap, self._keys
        while heap:
            serial = heap[0][1]
            if serial in keys:
                return keys[serial]
            heapq.heappop(heap)
        return None

    def least(self) -> float | None:
        """Return the lowest priority, None if empty."""
        return None if self.peek() is None else self._heap[0][0]


class RandomSet(Generic[K]):
    """A set with uniform random sampling; every call is O(1)."""

    __slots__ = ("_members", "_place")

    def __init__(self) -> None:
        self._members: list[K] = []
        self._place: dict[K, int] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[K]:
        return iter(self._members)

    def add(self, member: K) -> None:
        """Add a member; no effect if it is present."""
        if member not in self._place:
            self._place[member] = len(self._members)
            self._members.append(member)

    def discard(self, member: K) -> None:
        """Remove `member` if present; the last member takes its position."""
        place = self._place.pop(member, None)
        if place is None:
            return
        last = self._members.pop()
        if place < len(self._members):
            self._members[place] = last
            self._place[last] = place

    def sample(self, rng: random.Random) -> K:
        """Return a uniformly sampled member; the set must not be empty."""
        # Twice as fast as randrange; the bias is below one in 2**40 for any set in memory.
        return self._members[int(rng.random() * len(self._members))]
