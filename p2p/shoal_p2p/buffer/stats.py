"""The buffer's read model: one row per publisher. Pure."""

from __future__ import annotations

import heapq

from shoal_ipc.answers.node import PublisherRow
from shoal_p2p.buffer.own import OwnGroups
from shoal_p2p.buffer.pool import Counters, GroupPool
from shoal_p2p.fair.quota import Leaf
from shoal_wire.types import GroupId, PeerId


def rows_of(own: OwnGroups, pool: GroupPool, now: float, most: int) -> tuple[PublisherRow, ...]:
    """Return the `most` publishers with most groups, largest first; O(publishers and groups)."""
    leaves = (leaf for leaf in pool.publishers.root.children.values() if isinstance(leaf, Leaf))
    others = heapq.nlargest(most, leaves, key=lambda leaf: leaf.count)
    rows = [_row(leaf, pool.counters.get(PeerId(leaf.key), Counters()), now) for leaf in others]
    if own.entries:
        rows.insert(0, _own_row(own, now))
    return tuple(sorted(rows, key=lambda row: -row.groups)[:most])


def _own_row(own: OwnGroups, now: float) -> PublisherRow:
    entries = own.entries.values()
    oldest, newest = next(iter(entries)), next(reversed(entries))
    return PublisherRow(
        peer_id=oldest.group.publisher,
        is_local=True,
        groups=len(entries),
        bytes=own.num_bytes,
        oldest_s=round(now - oldest.received_at, 3),
        newest_s=round(now - newest.received_at, 3),
        received=own.stored_total,
    )


def _row(leaf: Leaf[GroupId], counters: Counters, now: float) -> PublisherRow:
    oldest = leaf.oldest.peek()
    newest = max((place.since for place in leaf.free), default=None)
    return PublisherRow(
        peer_id=PeerId(leaf.key),
        groups=leaf.count,
        bytes=leaf.size,
        oldest_s=None if oldest is None else round(now - oldest.since, 3),
        newest_s=None if newest is None else round(now - newest, 3),
        sampled=counters.draws,
        received=counters.stored_total,
    )
