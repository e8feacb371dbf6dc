"""Which of the peers that discovery knows of is dialled, and when."""

from __future__ import annotations

import random

import pytest

from shoal_p2p.peers.targets import DialTarget, DiscoverySettings, TargetKind, Targets
from shoal_wire.peers import PeerAddresses
from tests.support.nodes import fresh_identity

PEER = fresh_identity().peer_id
OLD, NEW = "/ip4/192.0.2.1/tcp/1", "/ip4/192.0.2.2/tcp/2"


def in_back_off(targets: Targets) -> DialTarget:
    """Know a peer at a place where it has just not answered."""
    targets.add(reported(OLD), TargetKind.EXCHANGE, connected=False, now=0.0)
    (target,) = targets.due(now=0.0, num_missing=1)
    targets.note_failure(target, "no answer", now=0.0)
    assert targets.due(now=0.0, num_missing=1) == []
    return target


def reported(address: str) -> PeerAddresses:
    return PeerAddresses(peer_id=PEER, addresses=(address,))


@pytest.mark.parametrize(
    ("kind", "address", "is_dialled"),
    [
        (TargetKind.MDNS, NEW, True),
        (TargetKind.EXCHANGE, NEW, False),
        (TargetKind.MDNS, OLD, False),
    ],
)
def test_who_is_found_at_a_new_place_is_dialled_at_once(
    kind: TargetKind, address: str, is_dialled: bool
) -> None:
    """Not who is only spoken of, nor where it has just not answered: that would undo back-offs."""
    targets = Targets(DiscoverySettings(), random.Random(0))
    target = in_back_off(targets)
    targets.add(reported(address), kind, connected=False, now=0.1)
    assert targets.due(now=0.1, num_missing=1) == [target] * is_dialled


def test_a_bootstrap_that_is_this_node_itself_is_not_dialled() -> None:
    targets = Targets(DiscoverySettings(), random.Random(0))
    targets.put_bootstrap(PEER, OLD, now=0.0)
    assert [target.peer_id for target in targets.due(now=0.0, num_missing=0)] == [PEER]
    targets.drop(PEER)
    assert targets.due(now=0.0, num_missing=0) == targets.due(now=0.0, num_missing=1) == []
