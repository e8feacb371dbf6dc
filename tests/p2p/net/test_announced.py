"""Where a host says that it is: interfaces, a router's port, relays, or what the user says."""

from __future__ import annotations

import pytest
import trio

from shoal_p2p.net.announced import AnnouncedAddresses, parse_announced
from shoal_p2p.net.host import HostSettings, Libp2pHost
from tests.support.nodes import LOOPBACK, fresh_identity, open_test_host, until

HERE = ("/ip4/127.0.0.1/tcp/4001",)
PLACE = "/ip4/203.0.113.7/tcp/4001"
RELAYED = f"/ip4/203.0.113.9/tcp/1/p2p/{fresh_identity().peer_id}/p2p-circuit"


def test_what_the_user_says_takes_the_place_of_interfaces_and_router_but_not_of_relays() -> None:
    of_machine, of_user = AnnouncedAddresses(), AnnouncedAddresses((PLACE,))
    for announced in (of_machine, of_user):
        announced.forwarded, announced.relayed = ("/ip4/203.0.113.8/tcp/9",), (RELAYED,)
    assert of_machine.beside(HERE) == (*HERE, "/ip4/203.0.113.8/tcp/9", RELAYED)
    assert of_user.beside(HERE) == (PLACE, RELAYED)
    assert of_user.beside(()) == of_machine.beside(()) == ()


@pytest.mark.parametrize("text", [PLACE, "/dns4/host.example/tcp/1", "/ip6/2001:db8::1/tcp/65535"])
def test_what_others_could_dial_is_taken(text: str) -> None:
    assert parse_announced(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "203.0.113.7:4001",
        "/ip4/0.0.0.0/tcp/4001",
        "/ip6/::/tcp/4001",
        "/ip4/224.0.0.1/tcp/4001",
        "/ip4/203.0.113.7/tcp/0",
        "/ip4/203.0.113.7/udp/4001/quic-v1",
        f"{PLACE}/p2p/{fresh_identity().peer_id}",
        RELAYED,
    ],
)
def test_what_nobody_could_dial_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_announced(text)
    assert "\n" not in str(caught.value)


async def test_peers_are_told_what_the_user_says_and_not_the_interfaces() -> None:
    settings = HostSettings(listen=(LOOPBACK,), announce=(PLACE,))
    host = Libp2pHost(identity=fresh_identity(), settings=settings)
    async with trio.open_nursery() as nursery, open_test_host() as other:
        await nursery.start(host.run)
        await other.dial(host.interface_addrs()[0])
        await until(lambda: other.peer_addresses(host.peer_id))
        assert other.peer_addresses(host.peer_id) == (PLACE,)
        assert host.listen_addrs() == (f"{PLACE}/p2p/{host.peer_id}",)
        other.note_reached(host.peer_id, [HERE[0]])
        assert other.peer_addresses(host.peer_id) == (HERE[0], PLACE)
        await host.close()
