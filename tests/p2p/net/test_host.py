"""The libp2p host on loopback: admission, limits, closing."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
import trio
import trio.testing
from libp2p.io.exceptions import ConnectionClosedError

from shoal_p2p.net.address import (
    default_listen_addresses,
    expand_unspecified,
    parse_peer_address,
    parse_transport,
)
from shoal_p2p.net.layers import find_socket
from shoal_p2p.net.swarm import SwarmSettings
from shoal_p2p.net.yamux import KeepaliveSettings
from shoal_wire.types import PeerId
from tests.support.network import at_port, open_relay, port_of
from tests.support.nodes import echo, fresh_identity, open_test_host, until

ECHO = "/test/echo/1"
ANY_IP4, ANY_IP6 = "/ip4/0.0.0.0/tcp/0", "/ip6/::/tcp/0"


async def read_available(stream: trio.SocketStream) -> bytes:
    with trio.move_on_after(5):
        return await stream.receive_some()
    return b""


# Admission


async def test_each_connection_counts_its_own_bytes() -> None:
    async with open_test_host() as one, open_test_host() as two, open_test_host() as idle:
        two.set_request_handler(ECHO, echo, max_request_bytes=200_000)
        for other in (two, idle):
            await one.dial(other.listen_addrs()[0])
        payload = os.urandom(100_000)
        await one.request(two.peer_id, ECHO, payload, max_response_bytes=len(payload))
        busy, quiet = (
            next(c for c in one.connections() if c.peer_id == other.peer_id)
            for other in (two, idle)
        )
        for count in (busy.bytes_in, busy.bytes_out):
            assert len(payload) < count < 1.2 * len(payload)
        assert 0 < quiet.bytes_in < 5_000 and 0 < quiet.bytes_out < 5_000
        total = one.traffic
        assert total.bytes_out == busy.bytes_out + quiet.bytes_out


async def test_two_hosts_of_one_process_each_have_their_own_agent() -> None:
    async with open_test_host(agent="one/1") as one, open_test_host(agent="two/2") as two:
        await one.dial(two.listen_addrs()[0])
        await until(lambda: all(h.connections() and h.connections()[0].agent for h in (one, two)))
        assert one.connections()[0].agent == "two/2"
        assert two.connections()[0].agent == "one/1"


@pytest.mark.parametrize("protocol", [b"/plaintext/2.0.0", b"/tls/1.0.0", b"/secio/1.0.0"])
async def test_only_noise_is_spoken(protocol: bytes) -> None:
    async with open_test_host() as host:
        stream = await trio.open_tcp_stream("127.0.0.1", port_of(host))
        for line in (b"/multistream/1.0.0\n", protocol + b"\n"):
            await stream.send_all(bytes([len(line)]) + line)
        answer = b""
        while b"na\n" not in answer:
            answer += (piece := await read_available(stream))
            assert piece, f"no refusal but {answer!r}"
        assert protocol not in answer


# Slots


async def test_slots_return_when_connections_end() -> None:
    async with open_test_host(swarm=SwarmSettings(max_connections=4)) as host:
        for _ in range(7):
            async with open_test_host() as client:
                await client.dial(host.listen_addrs()[0])
                await until(lambda client=client: host.is_connected(client.peer_id))
                client.abort(host.peer_id)
            await until(lambda: not host.connections())


# Silence

FAST = SwarmSettings(keepalive=KeepaliveSettings(ping_interval_s=0.1, ping_deadline_s=0.3))


@pytest.mark.parametrize(
    ("own", "listens"),
    [
        ({"lo": ["127.0.0.1", "::1"], "eth0": ["192.0.2.2", "2001:db8::2"]}, [ANY_IP4]),
        ({"lo": ["127.0.0.1", "::1"], "eth0": ["192.0.2.2"]}, [ANY_IP4]),
        ({"lo": ["127.0.0.1", "::1"], "eth0": ["2001:db8::2"]}, [ANY_IP4, ANY_IP6]),
        ({"lo": ["127.0.0.1", "::1"], "eth0": ["fe80::2%eth0"]}, [ANY_IP4]),
        ({"lo": ["127.0.0.1", "::1"]}, [ANY_IP4]),
    ],
)
def test_a_machine_with_only_ipv6_listens_there(
    own: dict[str, list[str]], listens: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def addresses() -> dict[str, list[SimpleNamespace]]:
        family = {True: socket.AF_INET6, False: socket.AF_INET}
        return {
            name: [SimpleNamespace(address=ip, family=family[":" in ip]) for ip in ips]
            for name, ips in own.items()
        }

    monkeypatch.setattr(psutil, "net_if_addrs", addresses)
    assert default_listen_addresses([ANY_IP4], ANY_IP4) == tuple(listens)
    typed = ["/ip4/10.0.0.1/tcp/4001"]
    assert default_listen_addresses(typed, ANY_IP4) == tuple(typed), "what was typed stays"


async def test_silence_is_reported_before_the_connection_is_closed() -> None:
    async with open_test_host() as host, open_test_host() as peer, open_relay(peer) as relay:
        await host.dial(at_port(peer, relay.port))
        await until(lambda: host.connections()[0].latency_ms)
        assert host.silent_s(peer.peer_id) < 1.0
        relay.pull_cable()
        await until(lambda: host.silent_s(peer.peer_id) > 1.0)
        assert host.silent_s(PeerId("unknown")) == 0.0


async def test_a_half_open_connection_is_closed() -> None:
    async with open_test_host(swarm=FAST) as host, open_test_host() as peer, open_relay(peer) as r:
        gone: list[PeerId] = []
        host.add_peer_callbacks(disconnected=gone.append)
        await host.dial(at_port(peer, r.port))
        r.pull_cable()
        await until(lambda: not host.connections())
        assert gone == [peer.peer_id]


async def test_returning_peer_replaces_its_half_open_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shoal_p2p.net.connections.SIMULTANEOUS_S", 0.0)
    identity = fresh_identity()
    async with open_test_host() as host, open_relay(host) as relay:
        host.set_request_handler(ECHO, echo, max_request_bytes=10)
        async with open_test_host(identity=identity) as before:
            await before.dial(at_port(host, relay.port))
            await until(host.connections)
            relay.pull_cable()
            async with open_test_host(identity=identity) as after:
                after.set_request_handler(ECHO, echo, max_request_bytes=10)
                await after.dial(host.listen_addrs()[0])
                await until(lambda: host.connections()[0].opened_s < 1)
                answer = await host.request(after.peer_id, ECHO, b"x", max_response_bytes=10)
                assert answer == b"x"
                assert len(host.connections()) == 1


async def test_disconnect_does_not_wait_for_a_blocked_peer() -> None:
    patient = SwarmSettings(keepalive=KeepaliveSettings(ping_deadline_s=3600))
    async with (
        open_test_host(swarm=patient) as host,
        open_test_host() as peer,
        open_relay(peer) as relay,
    ):
        await host.dial(at_port(peer, relay.port))
        relay.pull_cable()
        (connection,) = cast("Any", host.libp2p_host).get_network().get_connections()
        stream = find_socket(connection)
        assert stream is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fill, connection.muxed_conn)
            await until(connection.muxed_conn._frame_lock.locked)
            await trio.testing.wait_all_tasks_blocked(0.1)
            with trio.fail_after(15):
                await host.disconnect(peer.peer_id)
            assert not host.connections()
            nursery.cancel_scope.cancel()


async def fill(muxed: Any) -> None:
    """Write until the socket takes no more, holding the turn to write on the connection."""
    stream = find_socket(muxed)
    assert stream is not None
    await muxed._frame_lock.acquire()
    with contextlib.suppress(ConnectionClosedError):
        while stream.socket.fileno() != -1:
            await muxed.secured_conn.write(bytes(1 << 20))


# Addresses


def test_unspecified_address_becomes_the_interfaces() -> None:
    addresses = expand_unspecified("/ip4/0.0.0.0/tcp/4001")
    assert addresses[-1] == "/ip4/127.0.0.1/tcp/4001"
    assert all(address.endswith("/tcp/4001") for address in addresses)
    assert "0.0.0.0" not in "".join(addresses)
    assert expand_unspecified("/ip4/10.1.2.3/tcp/1") == ["/ip4/10.1.2.3/tcp/1"]


async def test_a_host_whose_sockets_are_closed_listens_nowhere() -> None:
    """A search for relays that asks at the moment of the end gets no OSError."""
    async with open_test_host() as host:
        listeners = host.libp2p_host.get_network().listeners
        listeners["closed"] = cast("Any", Closed())
        assert (host.listen_addrs(), host.interface_addrs()) == ((), ())
        del listeners["closed"]


class Closed:
    def get_addrs(self) -> tuple[object, ...]:
        """Fail as py-libp2p's listener does, which asks a closed socket for its name."""
        raise OSError(errno.EBADF, "Bad file descriptor")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/p2p/",
        "/ip4/127.0.0.1/tcp/4001",
        "/ip4/127.0.0.1/tcp/4001/p2p/",
        "/ip4/127.0.0.1/tcp/4001/p2p/0OIl",
        "/ip4/127.0.0.1/tcp/4001/p2p/12D3KooW",
        "/ip4/300.0.0.1/tcp/4001/p2p/{id}",
        "/ip4/127.0.0.1/udp/4001/p2p/{id}",
        "/ip4/127.0.0.1/tcp/4001/ws/p2p/{id}",
        "/ip4/127.0.0.1/tcp/4001/p2p/{id}/p2p-circuit",
        "127.0.0.1:4001",
    ],
)
def test_bad_peer_address_is_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_peer_address(text.replace("{id}", fresh_identity().peer_id))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ending", ["tcp/1/ws", "tcp/1/wss", "udp/1/quic-v1"])
def test_transports_that_are_not_supported_are_refused_with_the_reason(ending: str) -> None:
    with pytest.raises(ValueError, match="is not supported") as caught:
        parse_transport(f"/ip4/127.0.0.1/{ending}")
    assert "docs/reach.md" in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_ipv6() -> None:
    async with open_test_host(listen="/ip6/::1/tcp/0") as one:
        assert one.listen_addrs()[0].startswith("/ip6/::1/tcp/")
        async with open_test_host(listen="/ip6/::/tcp/0") as two:
            await two.dial(one.listen_addrs()[0])
            await until(one.connections)
            assert one.connections()[0].address.startswith("/ip6/::1/tcp/")
            assert await two.ping(one.peer_id) > 0
            await until(lambda: one.peer_addresses(two.peer_id))
            assert any(a.startswith("/ip6/::1/") for a in one.peer_addresses(two.peer_id))
            two.abort(one.peer_id)
            await until(lambda: not one.connections())
            await one.dial(next(a for a in two.listen_addrs() if "/::1/" in a))


def test_good_peer_addresses() -> None:
    peer_id = fresh_identity().peer_id
    for transport in ("/ip4/1.2.3.4/tcp/1", "/ip6/::1/tcp/1", "/dns4/example.org/tcp/1"):
        text = f"{transport}/p2p/{peer_id}"
        assert str(parse_peer_address(text)) == text
    assert parse_transport("/ip6/0:0:0:0:0:0:0:1/tcp/9") == "/ip6/::1/tcp/9"
