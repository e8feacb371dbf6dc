"""Draws against contributions: the account of a node."""

from __future__ import annotations

import pytest

from shoal_ipc.answers.node import Buffer, PublisherRow
from shoal_p2p.buffer.pool import Counters
from shoal_p2p.reputation.publisher_weights import PublisherWeights
from shoal_p2p.rollouts.contributions import account
from shoal_wire.types import GroupId, PeerId

ANN, BOB, EVE = map(PeerId, ("ann", "bob", "eve"))


def test_who_contributes_and_who_is_silent() -> None:
    weights = PublisherWeights()
    for number, best in enumerate((1.0, 0.0)):
        weights.report(
            GroupId(bytes([number])),
            publisher=ANN,
            family="a",
            rewards=(0.0, best),
            own=False,
            now=0.0,
        )
    made = account(
        Buffer(publishers=(PublisherRow(peer_id=ANN, groups=7),)),
        {BOB: Counters(draws=1, stored_total=10), ANN: Counters(draws=5, stored_total=30)},
        connected={ANN, EVE},
        weight_of=lambda peer: 0.25 if peer == BOB else 1.0,
        weights=weights,
        now=0.0,
    )
    assert [(p.peer_id, p.groups, p.received, p.sampled, p.connected) for p in made.publishers] == [
        (ANN, 7, 30, 5, True),
        (BOB, 0, 10, 1, False),
        (EVE, 0, 0, 0, True),
    ]
    assert [p.weight for p in made.publishers] == [1.0, 0.25, 1.0]
    assert made.publishers[0].reward_spread == pytest.approx(0.5, abs=0.01)
    assert made.publishers[1].reward_spread is None
