"""The buffer's read model: counters and a snapshot. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

from shoal_p2p.buffer.own import OwnGroups
from shoal_p2p.buffer.pool import Counters, GroupPool
from shoal_p2p.buffer.types import BufferLimits, BufferStats, DropCause, PublisherStats
from shoal_p2p.fair.shares import Leaf
from shoal_wire.types import GroupId, PeerId


@dataclass(slots=True)
class BufferTally:
    """What has happened since the start."""

    stored: int = 0
    draws: int = 0
    consumed: int = 0


def snapshot(
    *,
    limits: BufferLimits,
    own: OwnGroups,
    pool: GroupPool,
    leased: int,
    totals: BufferTally,
    dropped: Mapping[str, int],
    now: float,
    max_publishers: int,
) -> BufferStats:
    """Return the statistics at `now`; O(publishers) and the groups of those listed."""
    rows = [_own_row(own, now)] if own.entries else []
    leaves = (leaf for leaf in pool.publishers.root.children.values() if isinstance(leaf, Leaf))
    others = heapq.nlargest(max_publishers, leaves, key=lambda leaf: leaf.count)
    rows += [_row(leaf, pool.counters.get(PeerId(leaf.key), Counters()), now) for leaf in others]
    rows.sort(key=lambda row: -row.groups)
    return BufferStats(
        groups=len(pool.slots),
        bytes=pool.num_bytes,
        own_groups=len(own.entries),
        own_bytes=own.num_bytes,
        leased=leased,
        capacity_groups=limits.max_groups,
        capacity_bytes=limits.max_bytes,
        evicted=dropped.get(DropCause.EVICTED_BY_QUOTA, 0)
        + dropped.get(DropCause.EVICTED_BY_CAPACITY, 0),
        dropped={str(cause): count for cause, count in sorted(dropped.items())},
        consumed_total=totals.consumed,
        stored_total=totals.stored,
        draws_total=totals.draws,
        per_publisher=tuple(rows[:max_publishers]),
    )


def _own_row(own: OwnGroups, now: float) -> PublisherStats:
    entries = own.entries.values()
    oldest, newest = next(iter(entries)), next(reversed(entries))
    return PublisherStats(
        peer_id=oldest.group.publisher,
        own=True,
        groups=len(entries),
        bytes=own.num_bytes,
        oldest_age_s=now - oldest.received_at,
        newest_age_s=now - newest.received_at,
        draws=0,
        stored_total=own.stored_total,
    )


def _row(leaf: Leaf[GroupId], counters: Counters, now: float) -> PublisherStats:
    oldest = leaf.oldest.peek()
    newest = max((place.since for place in leaf.free), default=None)
    return PublisherStats(
        peer_id=PeerId(leaf.key),
        own=False,
        groups=leaf.count,
        bytes=leaf.size,
        oldest_age_s=None if oldest is None else now - oldest.since,
        newest_age_s=None if newest is None else now - newest,
        draws=counters.draws,
        stored_total=counters.stored_total,
    )
