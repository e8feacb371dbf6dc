"""Contributions of each peer, and how much of them the trainer used. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from shoal_ipc.answers.node import Buffer, PublisherRow
from shoal_p2p.buffer.pool import Counters
from shoal_p2p.reputation.publisher_weights import PublisherWeights
from shoal_wire.types import PeerId


def account(
    held: Buffer,
    counters: Mapping[PeerId, Counters],
    *,
    connected: Collection[PeerId],
    weight_of: Callable[[PeerId], float],
    weights: PublisherWeights,
    now: float,
    limit: int = 256,
) -> Buffer:
    """Return the buffer view with the totals, since the start, of at most `limit` publishers.

    Those with no group in the buffer are last, the largest contributor first.
    """
    counted = {peer: counters.get(peer, Counters()) for peer in {*counters, *connected}}
    rows = {PeerId(row.peer_id): row for row in held.publishers}
    for peer in sorted(counted, key=lambda peer: (-counted[peer].stored_total, peer))[:limit]:
        found = counted[peer]
        rows[peer] = replace(
            rows.get(peer) or PublisherRow(peer_id=peer),
            sampled=found.draws,
            received=found.stored_total,
            reward_spread=_useful(weights, peer, now),
            weight=round(weight_of(peer), 4),
            connected=peer in connected,
        )
    return replace(held, publishers=tuple(rows.values()))


def _useful(weights: PublisherWeights, peer: PeerId, now: float) -> float | None:
    row = weights.row(peer, now)
    return round(row.useful / row.groups, 3) if row.groups >= 0.5 else None
