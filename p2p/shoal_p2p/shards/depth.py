"""Decides how deep a node's shards lie in the tree of a swarm that divides itself. Pure.

    groups a second in a shard ─┐
    how deep others listen ─────┴─▶ deeper, or less deep ─▶ which shards are listened to
    how deep those who listen to me lie ─────────────────▶ on which shard I publish

Nobody decides for all: the hash spreads publishers evenly, so every node measures about the same.
A node that goes deeper listens to as many parts of what it had as its trainer needs. It stays on
the shards above them, so it hears whoever has not followed. A publisher goes deeper only after
those who listen to it, and at once less deep where one of them is. So a batch goes where all hear
it; whoever missed one nevertheless finds the gap in its publisher's numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import median_high, median_low

from shoal_wire.shard_tree import MAX_DEPTH, depth_of, parent_of

SPLIT_PER_S = 2.0
"""Groups a second in a shard above which it is divided: with four copies of 3 KB some 24 KB/s, and
more than ten trainers draw. A guess between these two."""
MERGE_PER_S = SPLIT_PER_S / 8
"""Groups a second below which two shards become one: so few that chance does neither."""
LEAST_PUBLISHERS = 16
"""Publishers of a shard that is divided: each half still has listeners enough for a mesh."""
ABOVE = 2
"""Shards above its own to which a node stays subscribed, and the root."""
_DENSE_S = 30.0
_SPARSE_S = 4 * _DENSE_S
_RISE_S = 2 * _DENSE_S
"""Shards below are left after so long without a message, and so long after they were joined."""
_SETTLE_S = _DENSE_S / 2
"""Seconds for which a publisher's listeners must be deeper before it follows."""
_LEFT_BEHIND = 8
"""One listener for so many peers in sight may be left behind: else a single peer could hold a swarm
together."""


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

        `load` is in groups a second for each shard listened to, None while it is not known;
        `publishers` counts those heard there; `others` are the depths in sight, one a network, and
        `quiet_s` tells how long nothing came by the deepest topics.
        """
        self._is_new = self._is_new and load is None
        self._in_sight = len(others)
        dense = load is not None and load > SPLIT_PER_S and publishers() >= LEAST_PUBLISHERS
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
        """Return the depth to publish at; `listeners` are its listeners' depths, one a network."""
        wanted = self._published
        if listeners:
            ordered = sorted(listeners)
            behind = min(self._in_sight // _LEFT_BEHIND, len(ordered) // 2)
            wanted = max(ordered[behind], median_high(ordered) - ABOVE)
        if now - self._sparse_since >= _RISE_S:
            wanted = min(wanted, max(0, self.depth - 1))
        if wanted <= self._published:
            self._published = wanted
            if listeners:
                self._deeper_since = math.inf
            return wanted
        # Whoever listens one level deeper is subscribed here too: only the last level waits.
        self._published = wanted - 1
        self._deeper_since = min(self._deeper_since, now)
        if now - self._deeper_since >= _SETTLE_S:
            self._published, self._deeper_since = wanted, math.inf
        return self._published


def by_network(depths: Iterable[tuple[str, int]]) -> list[int]:
    """Return one depth for each network, the least of its peers: names cost nothing.

    By names, a stranger with many of them behind one connection's network would be the majority
    that a small swarm follows to thousands of topics, and publishes where nobody honest listens.
    """
    found: dict[str, int] = {}
    for network, depth in depths:
        found[network] = min(depth, found.get(network, depth))
    return list(found.values())


def with_those_above(shards: Iterable[int]) -> set[int]:
    """Return `shards` and the shards above them on which their publishers may still be."""
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
    """Return which of the shards of `depth`, counted from 0, holds `shard`, which is deeper."""
    return ((shard + 1) >> (depth_of(shard) - depth)) - (1 << depth)
