"""The two containers under the replay buffer: a heap with removal and a set one can draw from.

Pure and deterministic: their order follows from the calls alone.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_SLACK = 8
"""Stale heap items tolerated beside as many as there are live ones."""


class LazyHeap(Generic[K]):
    """A min-heap of keys whose priority may change or that may leave.

    Every call is O(log n) amortised; memory stays below twice the live keys. Among equal
    priorities the key that was put first comes first.
    """

    __slots__ = ("_heap", "_live", "_serial")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, K]] = []
        self._live: dict[K, int] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._live)

    def put(self, key: K, priority: float) -> None:
        """Add `key`, or give it a new priority."""
        self._serial += 1
        self._live[key] = self._serial
        heapq.heappush(self._heap, (priority, self._serial, key))
        self._compact()

    def discard(self, key: K) -> None:
        """Remove `key` if it is there."""
        if self._live.pop(key, None) is not None:
            self._compact()

    def peek(self) -> K | None:
        """Return the key of least priority, None when empty."""
        while self._heap:
            _, serial, key = self._heap[0]
            if self._live.get(key) == serial:
                return key
            heapq.heappop(self._heap)
        return None

    def least(self) -> float | None:
        """Return the least priority, None when empty."""
        return None if self.peek() is None else self._heap[0][0]

    def _compact(self) -> None:
        if len(self._heap) <= 2 * len(self._live) + _SLACK:
            return
        self._heap = [item for item in self._heap if self._live.get(item[2]) == item[1]]
        heapq.heapify(self._heap)


class DrawSet(Generic[K]):
    """A set from which a member can be drawn uniformly; every call is O(1)."""

    __slots__ = ("_members", "_place")

    def __init__(self) -> None:
        self._members: list[K] = []
        self._place: dict[K, int] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[K]:
        return iter(self._members)

    def add(self, member: K) -> None:
        """Add a member that may be there already."""
        if member not in self._place:
            self._place[member] = len(self._members)
            self._members.append(member)

    def discard(self, member: K) -> None:
        """Remove `member` if it is there; the last member takes its place."""
        place = self._place.pop(member, None)
        if place is None:
            return
        last = self._members.pop()
        if place < len(self._members):
            self._members[place] = last
            self._place[last] = place

    def draw(self, rng: random.Random) -> K:
        """Return a uniformly drawn member; the set must not be empty."""
        return self._members[rng.randrange(len(self._members))]
