"""Draws against contributions: who answers for others, and who is only drawn from, or only draws.

A swarm in which everybody draws and few answer has nothing to draw: the tragedy of the commons
that the SAPO paper describes. What a peer draws happens on its own machine and nobody hears of it,
so a node counts what it can see: what each peer has contributed to it, what it took of that, and
the same of itself. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from shoal_p2p.buffer.pool import Counters
from shoal_p2p.standing.sampling import SamplingStandings
from shoal_wire.types import PeerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """One peer's part, as this node saw it since its start."""

    peer_id: PeerId
    contributed: int
    """Groups of it that came into the buffer."""
    share: float
    """Of all groups that came."""
    drawn: int
    """How often a group of it was leased to the trainer here; one given back counts again."""
    useful: float | None
    """Mean spread of its verified groups' rewards, 0 to 1; None where none was verified of late."""
    weight: float
    """Factor on its groups' chance of being drawn (`shoal_p2p.standing.sampling`)."""
    connected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Contributions:
    """The whole account."""

    own_contributed: int
    """Groups that this node published."""
    own_drawn: int
    """Groups of others that its trainer leased."""
    peers: tuple[Contribution, ...]
    """The greatest contributor first; connected peers that have contributed nothing last."""

    @property
    def own_ratio(self) -> float | None:
        """Groups drawn for each one contributed; None while nothing is contributed."""
        return self.own_drawn / self.own_contributed if self.own_contributed else None

    @property
    def num_silent(self) -> int:
        """Connected peers of the swarm that have contributed nothing here."""
        return sum(peer.contributed == 0 for peer in self.peers)


def account(
    counters: Mapping[PeerId, Counters],
    *,
    connected: Collection[PeerId],
    weight_of: Callable[[PeerId], float],
    standings: SamplingStandings,
    own_contributed: int,
    now: float,
    limit: int = 256,
) -> Contributions:
    """Return the account; at most `limit` peers."""
    everybody = {peer: (found.stored_total, found.draws) for peer, found in counters.items()}
    for peer in connected:
        everybody.setdefault(peer, (0, 0))
    total = sum(contributed for contributed, _ in everybody.values())
    ordered = sorted(everybody, key=lambda peer: (-everybody[peer][0], peer))
    return Contributions(
        own_contributed=own_contributed,
        own_drawn=sum(drawn for _, drawn in everybody.values()),
        peers=tuple(
            Contribution(
                peer_id=peer,
                contributed=everybody[peer][0],
                share=everybody[peer][0] / total if total else 0.0,
                drawn=everybody[peer][1],
                useful=_useful(standings, peer, now),
                weight=weight_of(peer),
                connected=peer in connected,
            )
            for peer in ordered[:limit]
        ),
    )


def _useful(standings: SamplingStandings, peer: PeerId, now: float) -> float | None:
    row = standings.row(peer, now)
    return row.useful / row.groups if row.groups >= 0.5 else None
