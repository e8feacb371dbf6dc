"""The buffer's read model: counters and a snapshot of both pools. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

from p2p.buffer.pool import GroupPool, Shelf
from p2p.buffer.types import BufferLimits, BufferStats, DropCause, PublisherStats
from shoal_wire.types import PeerId


@dataclass(slots=True)
class BufferTotals:
    """What has happened since the start."""

    stored: int = 0
    draws: int = 0
    consumed: int = 0


def snapshot(
    *,
    limits: BufferLimits,
    own: GroupPool,
    external: GroupPool,
    leased: int,
    totals: BufferTotals,
    dropped: Mapping[str, int],
    now: float,
    max_publishers: int,
) -> BufferStats:
    """Return the statistics at `now`; O(publishers) and the groups of those listed."""
    shelves = [
        (shelf.groups, publisher, pool is own, shelf)
        for pool in (own, external)
        for publisher, shelf in pool.shelves.items()
    ]
    largest = heapq.nlargest(max_publishers, shelves, key=lambda item: item[0])
    return BufferStats(
        groups=external.num_groups,
        bytes=external.num_bytes,
        own_groups=own.num_groups,
        own_bytes=own.num_bytes,
        leased=leased,
        ready_own=len(own.ready),
        ready_external=len(external.ready),
        capacity_groups=limits.max_groups,
        capacity_bytes=limits.max_bytes,
        evicted=dropped.get(DropCause.EVICTED_BY_QUOTA, 0)
        + dropped.get(DropCause.EVICTED_BY_CAPACITY, 0),
        dropped={str(cause): count for cause, count in sorted(dropped.items())},
        consumed_total=totals.consumed,
        stored_total=totals.stored,
        draws_total=totals.draws,
        publishers=len(shelves),
        per_publisher=tuple(
            _publisher(publisher, is_own, shelf, now) for _, publisher, is_own, shelf in largest
        ),
    )


def _publisher(publisher: PeerId, own: bool, shelf: Shelf, now: float) -> PublisherStats:
    oldest = shelf.by_age.peek()
    newest = max((slot.entry.received_at for slot in shelf.ready), default=None)
    return PublisherStats(
        peer_id=publisher,
        own=own,
        groups=shelf.groups,
        bytes=shelf.bytes,
        oldest_age_s=None if oldest is None else now - oldest.entry.received_at,
        newest_age_s=None if newest is None else now - newest,
        draws=shelf.counters.draws,
        stored_total=shelf.counters.stored_total,
    )
