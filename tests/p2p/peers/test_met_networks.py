"""A name's network is what a connection has shown, for as long as the name is in use."""

from __future__ import annotations

from shoal_base.bounded import MANY
from shoal_p2p.peers.met_networks import UNKNOWN_NETWORK, MetNetworks
from shoal_wire.types import PeerId
from tests.p2p.peers.bench import Net

ANN, BOB = PeerId("ann"), PeerId("bob")


def visit(host: Net, peer_id: PeerId, network: str) -> None:
    """Let a peer connect from a network, and leave."""
    host.connect(peer_id, source=network)
    host.lose(peer_id)


def test_a_peer_keeps_the_network_of_its_latest_connection() -> None:
    host = Net()
    networks = MetNetworks(host)
    assert networks.network_of(ANN) == UNKNOWN_NETWORK
    visit(host, ANN, "a")
    assert (networks.network_of(ANN), networks.network_of(BOB)) == ("a", UNKNOWN_NETWORK)
    host.connect(ANN, source="b")
    assert networks.network_of(ANN) == "b"


def test_names_that_come_by_push_out_no_peer_whose_groups_arrive() -> None:
    host = Net()
    networks = MetNetworks(host)
    visit(host, ANN, "a")
    visit(host, BOB, "b")
    for n in range(2 * MANY):
        visit(host, PeerId(f"sybil{n}"), "s")
        if n % 1000 == 0:
            assert networks.network_of(ANN) == "a"
    assert networks.network_of(BOB) == UNKNOWN_NETWORK, "the bound holds"
