"""Draws against contributions: the account of a node."""

from __future__ import annotations

import pytest

from shoal_p2p.buffer.pool import Counters
from shoal_p2p.rollouts.contributions import account
from shoal_p2p.standing.sampling import SamplingStandings
from shoal_wire.types import GroupId, PeerId

ANN, BOB, EVE = map(PeerId, ("ann", "bob", "eve"))


def test_who_contributes_and_who_is_silent() -> None:
    standings = SamplingStandings()
    for number, best in enumerate((1.0, 0.0)):
        standings.report(
            GroupId(bytes([number])),
            publisher=ANN,
            family="a",
            rewards=(0.0, best),
            own=False,
            now=0.0,
        )
    made = account(
        {BOB: Counters(draws=1, stored_total=10), ANN: Counters(draws=5, stored_total=30)},
        connected={ANN, EVE},
        weight_of=lambda peer: 0.25 if peer == BOB else 1.0,
        standings=standings,
        own_contributed=3,
        now=0.0,
    )
    assert [(p.peer_id, p.contributed, p.drawn, p.connected) for p in made.peers] == [
        (ANN, 30, 5, True),
        (BOB, 10, 1, False),
        (EVE, 0, 0, True),
    ]
    assert [p.share for p in made.peers] == [0.75, 0.25, 0.0]
    assert [p.weight for p in made.peers] == [1.0, 0.25, 1.0]
    assert made.peers[0].useful == pytest.approx(0.5, abs=0.01)
    assert made.peers[1].useful is None
    assert (made.own_contributed, made.own_drawn, made.own_ratio) == (3, 6, 2.0)
    assert made.num_silent == 1


def test_before_anything_has_happened() -> None:
    made = account(
        {},
        connected=(),
        weight_of=lambda _: 1.0,
        standings=SamplingStandings(),
        own_contributed=0,
        now=0.0,
    )
    assert (made.peers, made.own_ratio, made.own_drawn) == ((), None, 0)
