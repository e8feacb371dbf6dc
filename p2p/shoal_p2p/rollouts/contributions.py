"""Draws against contributions: who answers for others, and who is only drawn from, or only draws.

A swarm in which everybody draws and few answer has nothing to draw: the tragedy of the commons
that the SAPO paper describes. What a peer draws happens on its own machine and nobody hears of it,
so a node counts what it can see: what each peer has contributed to it, what it took of that, and
the same of itself. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from shoal_ipc.answers.node import Buffer, OwnContribution, PublisherRow
from shoal_p2p.buffer.pool import Counters
from shoal_p2p.standing.sampling import SamplingStandings
from shoal_wire.types import PeerId


def account(
    held: Buffer,
    counters: Mapping[PeerId, Counters],
    *,
    connected: Collection[PeerId],
    weight_of: Callable[[PeerId], float],
    standings: SamplingStandings,
    own: OwnContribution,
    now: float,
    limit: int = 256,
) -> Buffer:
    """Return the buffer with the part of at most `limit` peers in it, as seen since the start.

    Who has nothing there comes last, the greatest contributor first; `own` is what this node gave
    and trained on.
    """
    counted = {peer: counters.get(peer, Counters()) for peer in {*counters, *connected}}
    total, drawn = (
        sum(getattr(one, name) for one in counted.values()) for name in ("stored_total", "draws")
    )
    rows = {PeerId(row.peer_id): row for row in held.publishers}
    for peer in sorted(counted, key=lambda peer: (-counted[peer].stored_total, peer))[:limit]:
        found = counted[peer]
        rows[peer] = replace(
            rows.get(peer) or PublisherRow(peer_id=peer),
            draws=found.draws,
            received=found.stored_total,
            share=round(found.stored_total / total, 4) if total else 0.0,
            useful=_useful(standings, peer, now),
            weight=round(weight_of(peer), 4),
            connected=peer in connected,
        )
    ratio = round(drawn / own.contributed, 3) if own.contributed else None
    return replace(
        held,
        publishers=tuple(rows.values()),
        own=replace(own, drawn=drawn, ratio=ratio),
        silent=sum(not one.stored_total for one in counted.values()),
    )


def _useful(standings: SamplingStandings, peer: PeerId, now: float) -> float | None:
    row = standings.row(peer, now)
    return round(row.useful / row.groups, 3) if row.groups >= 0.5 else None
