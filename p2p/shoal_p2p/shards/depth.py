"""Chooses this node's shard depth: how often the topic is split. Pure.

    groups per second in a shard ──┐
    depths at which others listen ─┴─▶ deeper, or less deep ─▶ which shards are listened to
    depths of this node's listeners ─────────────────────────▶ on which shard it publishes

There is no coordinator: the hash spreads publishers evenly, so every node measures about the same.
A node that goes deeper listens to as many children of its shards as its trainer needs. It stays on
the parent shards, so it still hears publishers that have not followed. A publisher goes deeper only
after its listeners, and less deep as soon as one of them is. A batch is therefore published where
all listeners hear it, and a node that misses one still finds the gap in its publisher's numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import median_high, median_low

from shoal_wire.shard_tree import MAX_DEPTH, depth_of, parent_of

SPLIT_PER_S = 2.0
"""Groups per second above which a shard is split: with four copies of 3 KB some 24 KB/s, and more
than ten trainers sample. A guess between these two."""
MERGE_PER_S = SPLIT_PER_S / 8
"""Groups per second below which two shards merge; far below the split, to avoid flapping."""
MIN_PUBLISHERS = 16
"""Minimum publishers of a shard that is split, so that each half has enough for a mesh."""
ABOVE = 2
"""Parent shards to which a node stays subscribed, in addition to the root."""
_DENSE_S = 30.0
_SPARSE_S = 4 * _DENSE_S
_RISE_S = 2 * _DENSE_S
"""Time without a message, and time since joining, after which the deepest shards are left."""
_SETTLE_S = _DENSE_S / 2
"""Seconds for which a publisher's listeners must be deeper before it follows."""
_LEFT_BEHIND = 8
"""Known networks for each listener that may be left behind. Otherwise a single peer could prevent
every split."""


class ShardDepth:
    """One node's depth. Call `tick` every second or so."""

    def __init__(self) -> None:
        self.depth = 0
        self._is_new = True
        """True until something has been measured."""
        self._dense_since = self._sparse_since = math.inf
        self._changed_at = -math.inf
        self._published = 0
        self._in_sight = 0
        """Networks whose depth is known."""
        self._deeper_since = math.inf

    def tick(
        self,
        now: float,
        *,
        load: float | None,
        publishers: Callable[[], int],
        others: Sequence[int],
        quiet_s: float,
    ) -> int:
        """Return the depth to listen at from now on.

        `load` is in groups per second for each shard listened to, None while unknown; `publishers`
        counts the publishers there; `others` are the known depths, one per network; `quiet_s` is
        the time since the last message on the deepest topics.
        """
        self._is_new = self._is_new and load is None
        self._in_sight = len(others)
        dense = load is not None and load > SPLIT_PER_S and publishers() >= MIN_PUBLISHERS
        sparse = load is not None and load < MERGE_PER_S
        self._dense_since = min(self._dense_since, now) if dense else math.inf
        self._sparse_since = min(self._sparse_since, now) if sparse else math.inf
        depth = self._next(now, load, others, quiet_s)
        if depth != self.depth:
            self.depth, self._changed_at = depth, now
            self._dense_since = self._sparse_since = math.inf
        return self.depth

    def _next(self, now: float, load: float | None, others: Sequence[int], quiet_s: float) -> int:
        deeper = sum(depth > self.depth for depth in others)
        if self._is_new and others:
            return max(self.depth, median_low(others))
        follows = 2 * deeper > len(others) or (
            0 < len(others) <= 4 * deeper and load is not None and load >= MERGE_PER_S
        )
        if self.depth < MAX_DEPTH and (follows or now - self._dense_since >= _DENSE_S):
            return self.depth + 1
        is_left = 2 * sum(depth < self.depth for depth in others) > len(others)
        is_settled = now - max(self._sparse_since - _RISE_S, self._changed_at) >= _SPARSE_S
        if self.depth and is_settled and self._sparse_since <= now:
            return self.depth - 1 if is_left or quiet_s >= _RISE_S else self.depth
        return self.depth

    def publish_at(self, now: float, listeners: Sequence[int]) -> int:
        """Return the depth to publish at; `listeners` are their depths, one per network."""
        wanted = self._published
        if listeners:
            ordered = sorted(listeners)
            behind = min(self._in_sight // _LEFT_BEHIND, len(ordered) // 2)
            # Not below its own depth: the only listeners of a small swarm may be an attacker's.
            wanted = min(self.depth, max(ordered[behind], median_high(ordered) - ABOVE))
        if now - self._sparse_since >= _RISE_S:
            wanted = min(wanted, max(0, self.depth - 1))
        if wanted <= self._published:
            self._published = wanted
            if listeners:
                self._deeper_since = math.inf
            return wanted
        # Listeners one level deeper are subscribed here too, so only the last level waits.
        self._published = wanted - 1
        self._deeper_since = min(self._deeper_since, now)
        if now - self._deeper_since >= _SETTLE_S:
            self._published, self._deeper_since = wanted, math.inf
        return self._published


def by_network(depths: Iterable[tuple[str, int]]) -> list[int]:
    """Return one depth per network, the lowest of its peers, because identities are free.

    Otherwise an attacker with many identities on one network would be the majority that a small
    swarm follows to thousands of topics without honest listeners.
    """
    found: dict[str, int] = {}
    for network, depth in depths:
        found[network] = min(depth, found.get(network, depth))
    return list(found.values())


def with_parents(shards: Iterable[int]) -> set[int]:
    """Return `shards` and the parents on which their publishers may still be."""
    found = set(shards)
    for shard in list(found):
        for _ in range(ABOVE):
            shard = parent_of(shard)
            found.add(shard)
    return {*found, 0} if found else found


def depth_in(shards: Iterable[int]) -> int:
    """Return the depth of a peer that is subscribed to `shards`: of its deepest."""
    return max((depth_of(shard) for shard in shards), default=0)


def leaf(shard: int, depth: int) -> int:
    """Return the index, within `depth`, of the ancestor of `shard`, which is deeper."""
    return ((shard + 1) >> (depth_of(shard) - depth)) - (1 << depth)
