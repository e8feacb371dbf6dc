"""Whether a node can be dialled, by what its peers say of it: each of them may lie."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from shoal_p2p.peers.relay_client import RelayClient
from shoal_wire.reach import REACH_PROTOCOL, ReachReply, decode_reach_request, encode_reach_reply
from shoal_wire.types import PeerId
from tests.support.doubles.identities import fresh_identity
from tests.support.routed_host import RoutedHost
from tests.support.running import running

pytestmark = pytest.mark.virtual_time

Said = tuple[str, str, bool]
"""Where a peer is, where it says that it sees this node, and whether it gets in."""


def asked_host(says: dict[PeerId, Said], takes_s: float = 0.0) -> RoutedHost:
    """A host with peers at addresses of their own, which say how they see it."""

    async def answer(peer_id: PeerId, question: bytes) -> bytes:
        await trio.sleep(takes_s)
        _, observed, is_in = says[peer_id]
        ports = decode_reach_request(question) if is_in else ()
        return encode_reach_reply(
            ReachReply(observed=observed, wall_ms=1, open_ports=ports, dialled=True)
        )

    host = RoutedHost(listening=("/ip4/192.168.1.2/tcp/4001",), answers={REACH_PROTOCOL: answer})
    for peer_id, (address, _, _) in says.items():
        host.connect(peer_id, address=address)
    return host


def client_of(host: RoutedHost) -> RelayClient:
    real: Any = host
    return RelayClient(host=real)


SEEN_OUTSIDE, SEEN_AT_HOME = "/ip4/9.9.9.9/tcp/50000", "/ip4/192.168.1.2/tcp/4001"


def outside(number: int, *, is_in: bool) -> Said:
    return f"/ip4/11.88.{number}.1/tcp/1", SEEN_OUTSIDE, is_in


def at_home(number: int, *, is_in: bool, says: str = SEEN_AT_HOME) -> Said:
    return f"/ip4/192.168.1.{number}/tcp/1", says, is_in


def in_the_cellar(number: int, *, is_in: bool) -> Said:
    return f"/ip4/10.0.0.{number}/tcp/1", "/ip4/10.0.0.2/tcp/4001", is_in


@pytest.mark.parametrize(
    ("says", "reachable"),
    [
        ([outside(1, is_in=True)], True),
        ([outside(1, is_in=True), *(outside(n, is_in=False) for n in (2, 3, 4))], False),
        ([outside(n, is_in=n < 3) for n in (1, 2, 3, 4)], False),
        ([outside(n, is_in=n < 4) for n in (1, 2, 3, 4)], True),
        ([at_home(3, is_in=True), outside(1, is_in=False)], False),
        # Two networks of one home.
        ([at_home(3, is_in=True), in_the_cellar(4, is_in=True), outside(1, is_in=False)], False),
        ([at_home(n, is_in=True) for n in (3, 4)], True),
        # It says that it sees the node from outside, and is at home as the others.
        ([at_home(3, is_in=True, says=SEEN_OUTSIDE), at_home(4, is_in=False)], False),
    ],
)
async def test_a_hidden_node_is_not_talked_out_of_its_relays(
    says: list[Said], reachable: bool
) -> None:
    client = client_of(asked_host({fresh_identity().peer_id: said for said in says}))
    await client._find_out()
    assert client.reachable is reachable


async def test_who_is_reachable_asks_again_when_it_is_time_or_something_has_changed() -> None:
    host = asked_host({fresh_identity().peer_id: outside(1, is_in=True)})
    client = client_of(host)
    start = trio.current_time()
    async with running(client):
        await trio.sleep(900)
        client.look_again()
        await trio.sleep(900)
    assert [round(asked.at_s - start) for asked in host.requests] == [0, 600, 900, 1500]


async def test_what_changes_while_peers_are_asked_is_asked_about_again() -> None:
    peer_id = fresh_identity().peer_id
    says = {peer_id: outside(1, is_in=False)}
    host = asked_host(says, takes_s=3.0)
    client = client_of(host)
    async with running(client):
        await trio.sleep(1)
        client.look_again()  # a router has just opened a port
        await trio.sleep(1)
        says[peer_id] = outside(1, is_in=True)
        await trio.sleep(60)
    assert len(host.requests) == 2
