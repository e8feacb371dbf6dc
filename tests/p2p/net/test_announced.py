"""The addresses that a host announces: interfaces, a router's port, relays, or configured ones."""

from __future__ import annotations

import pytest
import trio

from shoal_p2p.net.announced import AnnouncedAddresses, parse_announced
from shoal_p2p.net.host import HostSettings, Libp2pHost
from tests.support.nodes import LOOPBACK, fresh_identity, open_test_host, until

HERE = ("/ip4/127.0.0.1/tcp/4001",)
PLACE = "/ip4/203.0.113.7/tcp/4001"
RELAYED = f"/ip4/203.0.113.9/tcp/1/p2p/{fresh_identity().peer_id}/p2p-circuit"


def test_configured_addresses_replace_interfaces_and_router_but_not_relays() -> None:
    of_machine, of_user = AnnouncedAddresses(), AnnouncedAddresses((PLACE,))
    for announced in (of_machine, of_user):
        announced.forwarded, announced.relayed = ("/ip4/203.0.113.8/tcp/9",), (RELAYED,)
    assert of_machine.to_announce(HERE) == (*HERE, "/ip4/203.0.113.8/tcp/9", RELAYED)
    assert of_user.to_announce(HERE) == (PLACE, RELAYED)
    assert of_user.to_announce(()) == of_machine.to_announce(()) == ()


@pytest.mark.parametrize("text", [PLACE, "/dns4/host.example/tcp/1", "/ip6/2001:db8::1/tcp/65535"])
def test_dialable_addresses_are_accepted(text: str) -> None:
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
def test_undialable_addresses_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_announced(text)
    assert "\n" not in str(caught.value)


async def test_configured_addresses_are_announced_instead_of_the_interfaces() -> None:
    settings = HostSettings(listen=(LOOPBACK,), announce=(PLACE,))
    host = Libp2pHost(identity=fresh_identity(), settings=settings)
    async with trio.open_nursery() as nursery, open_test_host() as other:
        await nursery.start(host.run)
        await other.dial(host.interface_addrs()[0])
        await until(lambda: other.peer_addresses(host.peer_id))
        assert other.peer_addresses(host.peer_id) == (PLACE,)
        assert host.listen_addrs() == (f"{PLACE}/p2p/{host.peer_id}",)
        other.add_verified_addresses(host.peer_id, [HERE[0]])
        assert other.peer_addresses(host.peer_id) == (HERE[0], PLACE)
        await host.close()
