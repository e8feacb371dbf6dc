"""A peer that finds no free slot is refused before its handshake, and knows why."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio
from libp2p.network.exceptions import SwarmException

from shoal_p2p.net.host import DialError
from shoal_p2p.net.swarm import SwarmSettings
from tests.support.network import port_of
from tests.support.nodes import fresh_identity, open_test_host, until


async def test_outbound_connections_and_handshakes_count_together() -> None:
    async with (
        open_test_host(swarm=SwarmSettings(max_connections=3)) as host,
        open_test_host() as one,
        open_test_host() as other,
    ):
        for peer in (one, other):
            await host.dial(peer.listen_addrs()[0])
        silent = []
        for _ in range(3):
            silent.append(await trio.open_tcp_stream("127.0.0.1", port_of(host)))
        await until(lambda: host.refused_connections().get("full") == 2)
        assert host.connected_peers() == {one.peer_id, other.peer_id}
        for stream in silent:
            await stream.aclose()


@pytest.mark.parametrize("key", [None, bytes(range(32))], ids=["public", "private"])
async def test_a_refused_dialler_knows_that_the_peer_is_up(key: bytes | None) -> None:
    full = SwarmSettings(max_connections=1, key=key)
    async with (
        open_test_host(swarm=full) as host,
        open_test_host(swarm=SwarmSettings(key=key)) as inside,
        open_test_host(swarm=SwarmSettings(key=key)) as outside,
    ):
        address, inside_at = host.listen_addrs()[0], inside.listen_addrs()[0]
        await inside.dial(address)
        await until(host.connections)
        with pytest.raises(DialError, match="before negotiation: it may be full") as caught:
            await outside.dial(address)
        assert caught.value.is_closed_early
        with pytest.raises(DialError) as caught:
            await outside.dial(f"{inside_at.partition('/p2p/')[0]}/p2p/{fresh_identity().peer_id}")
        assert not caught.value.is_closed_early
        await inside.close()
        with pytest.raises(DialError) as caught:
            await outside.dial(inside_at)
        assert not caught.value.is_closed_early


async def test_a_dial_succeeds_if_the_peer_connects_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two peers that dial each other at once, each keeps one connection and aborts the other's
    dial."""
    async with open_test_host() as one, open_test_host() as other:

        async def dial_addr(*_: Any, **__: Any) -> None:
            await other.dial(one.listen_addrs()[0])
            await until(lambda: one.is_connected(other.peer_id))
            raise SwarmException("failed to upgrade security")

        swarm = cast("Any", one.libp2p_host).get_network()
        monkeypatch.setattr(swarm, "dial_addr", dial_addr)
        assert await one.dial(other.listen_addrs()[0]) == other.peer_id
