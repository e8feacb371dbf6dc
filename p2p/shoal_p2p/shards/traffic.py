"""Counts the valid external groups of each shard, by which depth and plan are chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import trio

from shoal_base.bounded import BoundedDict
from shoal_base.waits import LATELY_S
from shoal_p2p.events import BatchAccepted, Event
from shoal_p2p.shards.depth import leaf
from shoal_wire.manifest import Manifest
from shoal_wire.types import PeerId


class TopicTraffic:
    """Counts valid external groups by topic key and shard."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._by_key: dict[int, ShardTraffic] = {}

    def of_key(self, key: int) -> ShardTraffic:
        """Return the counts of one key."""
        return self._by_key.setdefault(key, ShardTraffic(self._manifest))

    def on_event(self, event: Event) -> None:
        """Count a valid external batch."""
        if isinstance(event, BatchAccepted):
            self.of_key(event.key).add(event)


class ShardTraffic:
    """Counts valid external groups of one topic key by shard."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self.groups: Counter[int] = Counter()
        """Groups received, counted by the publisher's smallest shard."""
        self._depth = 0
        self._leaves, self._publishers = Counter[int](), Counter[int]()
        """Groups, and recent publishers, by the shards of a depth. Kept incrementally, since a tick
        would add up thousands."""
        self._latest: BoundedDict[PeerId, tuple[float, int]] = BoundedDict()
        """Time of each publisher's latest batch, and its smallest shard."""

    def add(self, event: BatchAccepted) -> None:
        """Count a valid external batch."""
        known = self._latest.get(event.publisher)
        smallest = self._manifest.path(event.publisher)[-1] if known is None else known[1]
        self.groups[smallest] += event.num_groups
        if not self._manifest.divides:
            return
        self._leaves[leaf(smallest, self._depth)] += event.num_groups
        if known is None:
            self._publishers[leaf(smallest, self._depth)] += 1
        gone = self._latest.put(event.publisher, (trio.current_time(), smallest))
        if gone is not None:
            self._publishers[leaf(gone[1][1], self._depth)] -= 1

    def by_leaf(self, depth: int) -> Mapping[int, int]:
        """Return the groups of each shard of a depth, the shards counted from 0."""
        if not self._manifest.divides:
            return self.groups
        self._recount(depth)
        return self._leaves

    def publishers(self, leaves: Iterable[int], depth: int, now: float) -> int:
        """Return the number of recent publishers on these shards of a depth."""
        self._recount(depth)
        while self._latest:
            oldest = next(iter(self._latest))
            at, smallest = self._latest[oldest]
            if now - at <= LATELY_S:
                break
            del self._latest[oldest]
            self._publishers[leaf(smallest, depth)] -= 1
        return sum(self._publishers[one] for one in leaves)

    def _recount(self, depth: int) -> None:
        """Count by the shards of this depth from now on."""
        if depth == self._depth:
            return
        self._depth, self._leaves, self._publishers = depth, Counter(), Counter()
        for shard, count in self.groups.items():
            self._leaves[leaf(shard, depth)] += count
        for _at, smallest in self._latest.values():
            self._publishers[leaf(smallest, depth)] += 1
