"""Whether a node can be dialled, by what its peers say of it: each of them may lie."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from shoal_p2p.peers.relay_client import RelayClient
from tests.p2p.peers.witnesses import SEEN_OUTSIDE, Witness, at_home, outside, seen_by
from tests.support.running import running

pytestmark = pytest.mark.virtual_time

LISTENING = ("/ip4/192.168.1.2/tcp/4001",)


def client_of(host: Any) -> RelayClient:
    return RelayClient(host=host)


IN_THE_CELLAR = Witness(
    address="/ip4/10.0.0.4/tcp/1", observed="/ip4/10.0.0.2/tcp/4001", open_ports=(4001,)
)


@pytest.mark.parametrize(
    ("says", "reachable"),
    [
        ([outside(1, 4001)], True),
        ([outside(1, 4001), outside(2), outside(3), outside(4)], False),
        ([outside(1, 4001), outside(2, 4001), outside(3), outside(4)], False),
        ([outside(1, 4001), outside(2, 4001), outside(3, 4001), outside(4)], True),
        ([at_home(3, 4001), outside(1)], False),
        # Two networks of one home.
        ([at_home(3, 4001), IN_THE_CELLAR, outside(1)], False),
        ([at_home(3, 4001), at_home(4, 4001)], True),
        # It says that it sees the node from outside, and is at home as the others.
        ([at_home(3, 4001, observed=SEEN_OUTSIDE), at_home(4)], False),
    ],
)
async def test_a_hidden_node_is_not_talked_out_of_its_relays(
    says: list[Witness], reachable: bool
) -> None:
    client = client_of(seen_by(*says, listening=LISTENING))
    await client._check_reachability()
    assert client.reachable is reachable


async def test_who_is_reachable_asks_again_when_it_is_time_or_something_has_changed() -> None:
    host = seen_by(outside(1, 4001), listening=LISTENING)
    client = client_of(host)
    start = trio.current_time()
    async with running(client):
        await trio.sleep(900)
        client.look_again()
        await trio.sleep(900)
    assert [round(request.at_s - start) for request in host.requests] == [0, 600, 900, 1500]


async def test_an_address_that_changes_during_a_check_is_checked_again() -> None:
    peer = outside(1)
    host = seen_by(peer, takes_s=3.0, listening=LISTENING)
    client = client_of(host)
    async with running(client):
        await trio.sleep(1)
        client.look_again()  # a router has just opened a port
        await trio.sleep(1)
        peer.open_ports = (4001,)
        await trio.sleep(60)
    assert len(host.requests) == 2
