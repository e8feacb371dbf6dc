"""Connections through a relay: real hosts; the reserved peer listens where no peer can dial it."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import cast

import pytest
import trio
from libp2p.custom_types import TProtocol
from libp2p.relay.circuit_v2.pb import circuit_pb2 as pb

from shoal_p2p.net import relay_server
from shoal_p2p.net.address import host_and_port, is_circuit, parse_peer_address, parse_transport
from shoal_p2p.net.circuit import HOP, STOP, read_hop, read_stop
from shoal_p2p.net.connections import Direction
from shoal_p2p.net.host import DialError, Libp2pHost
from shoal_p2p.net.relay_server import RelayLimits, RelayServer
from shoal_p2p.net.streams import write_message
from shoal_p2p.net.swarm import SwarmSettings
from shoal_p2p.peers import outside, relay_client
from shoal_p2p.peers.outside import ReachabilityReport, ReachServer
from shoal_p2p.peers.relay_client import RelayClient, RelayUse, unsolicited
from shoal_wire.types import PeerId
from tests.support.doubles.host import connection_of
from tests.support.nodes import (
    PATIENCE_S,
    TestNode,
    echo,
    fresh_identity,
    open_test_host,
    open_test_node,
    until,
)
from tests.support.running import running
from tests.support.talks import TalkStream, open_talk

ECHO = "/test/echo/1"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_client, "RETRY_S", 0.02)


@dataclass
class Hidden:
    """A node that has a place at a relay."""

    node: TestNode
    client: RelayClient

    @property
    def circuit(self) -> str:
        return next(a for a in self.node.host.listen_addrs() if is_circuit(a))


@asynccontextmanager
async def open_relay_host(
    limits: RelayLimits | None = None, key: bytes | None = None
) -> AsyncIterator[tuple[Libp2pHost, RelayServer]]:
    async with open_test_host(swarm=SwarmSettings(key=key)) as host:
        server = RelayServer(host, limits)
        server.serve()
        yield host, server


@asynccontextmanager
async def open_hidden(
    relay: Libp2pHost, *, use: RelayUse = RelayUse.ON, key: bytes | None = None
) -> AsyncIterator[Hidden]:
    async with open_test_node(swarm=SwarmSettings(key=key)) as node:
        client = RelayClient(host=node.host, use=use)
        async with running(client):
            await node.host.dial(relay.listen_addrs()[0])
            if use is RelayUse.ON:
                await until(lambda: client.relays)
            yield Hidden(node, client)


async def test_two_hidden_nodes_exchange_through_a_relay() -> None:
    key = b"k" * 32
    async with (
        open_relay_host(key=key) as (relay, server),
        open_hidden(relay, key=key) as one,
        open_hidden(relay, key=key) as two,
    ):
        one.node.host.set_request_handler(ECHO, echo, max_request_bytes=1 << 21)
        await two.node.host.dial(one.circuit)
        await until(lambda: one.node.host.is_connected(two.node.peer_id))
        for node, other in ((one.node, two.node), (two.node, one.node)):
            await node.subscribe("/t")
            seen = {c.peer_id: c.address for c in node.host.connections()}
            assert is_circuit(seen[other.peer_id])
            assert not is_circuit(seen[relay.peer_id])
        await until(lambda: all(n.node.gossip.mesh().get("/t") for n in (one, two)))
        batches = [os.urandom(60_000) for _ in range(10)]
        for batch in batches:
            await one.node.gossip.publish("/t", batch)
        await until(lambda: len(two.node.received("/t")) == 10)
        assert sorted(two.node.received("/t")) == sorted(batches)
        big = os.urandom(1 << 20)
        answer = await two.node.host.request(
            one.node.peer_id, ECHO, big, max_response_bytes=1 << 21
        )
        assert answer == big
        assert server.bytes_relayed > 2 * (1 << 20) + 600_000
        assert server.num_circuits == 1
        await two.node.host.disconnect(one.node.peer_id)
        await until(lambda: not one.node.host.is_connected(two.node.peer_id))
        await until(lambda: server.num_circuits == 0)
        assert two.node.host.is_connected(relay.peer_id), "only the circuit has ended"


async def test_a_hidden_node_tells_its_way_through_the_relay_and_not_the_relays_own() -> None:
    async with open_relay_host() as (relay, _), open_hidden(relay) as one, open_test_host() as two:
        await two.dial(one.node.address)
        await until(lambda: two.peer_addresses(one.node.peer_id))
        addresses = set(two.peer_addresses(one.node.peer_id))
        assert addresses == {a.rpartition("/p2p/")[0] for a in one.node.host.listen_addrs()}
        assert any(map(is_circuit, addresses))


@pytest.mark.parametrize(("agent", "is_warned"), [("", False), ("kubo/0.22.0", True)])
async def test_a_relay_that_is_no_shoal_peer_is_named_with_the_remedy(
    agent: str, is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It tells no node of another one at it; a common shoal peer does."""
    caplog.set_level(logging.INFO)
    async with open_test_host(agent=agent) as relay:
        RelayServer(relay, None).serve()
        async with open_hidden(relay) as one, open_test_host() as other:
            await until(lambda: "reachable through relay" in caplog.text)
            lines = [r for r in caplog.records if "reachable through relay" in r.message]
            assert [r.levelno >= logging.WARNING for r in lines] == [is_warned]
            if is_warned:
                assert f"--bootstrap {one.circuit}" in lines[0].message
                await other.dial(one.circuit)
                assert other.is_connected(one.node.peer_id)


async def test_relay_that_goes_takes_its_addresses_with_it() -> None:
    async with open_relay_host() as (relay, server), open_hidden(relay) as one:
        assert server.num_reserved == 1
        assert server.addresses_of(one.node.peer_id)
        await relay.disconnect(one.node.peer_id)
        await until(lambda: not one.client.relays)
        assert not any(map(is_circuit, one.node.host.listen_addrs()))
        assert server.num_reserved == 0


async def test_who_can_be_dialled_takes_no_place() -> None:
    async with open_relay_host() as (relay, server):
        ReachServer(host=relay).serve()
        async with open_hidden(relay, use=RelayUse.AUTO) as one:
            await until(lambda: one.client.reachable is not None)
            assert one.client.reachable
            assert server.num_reserved == 0


async def test_who_cannot_be_dialled_takes_a_place_and_gives_it_up_once_it_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outside, "DIAL_PAUSE_S", 0.0)
    async with open_relay_host() as (relay, server), open_test_node() as node:
        ReachServer(host=relay).serve()
        listening = node.host.listen_addrs
        node.host.listen_addrs = lambda: (f"/ip4/127.0.0.1/tcp/1/p2p/{node.peer_id}",)  # type: ignore[method-assign]
        client = RelayClient(host=node.host)
        async with running(client):
            await node.host.dial(relay.listen_addrs()[0])
            await until(lambda: client.relays and node.host.announced.relayed)
            assert (client.reachable, server.num_reserved) == (False, 1)
            node.host.listen_addrs = listening  # type: ignore[method-assign]
            client.look_again()
            await until(lambda: not client.relays)
            assert (client.reachable, node.host.announced.relayed) == (True, ())


def test_a_peer_dialled_from_the_port_is_the_last_to_check_it() -> None:
    dialled, other = fresh_identity().peer_id, fresh_identity().peer_id

    def seen(peer_id: PeerId, *open_ports: int) -> ReachabilityReport:
        return ReachabilityReport(
            peer_id=peer_id, observed="", open_ports=open_ports, dialled=True, clock_ahead_ms=0
        )

    connections = [
        connection_of(peer_id, "/ip4/198.51.100.1/tcp/1", direction=Direction.OUT, local_port=port)
        for peer_id, port in ((dialled, 4001), (other, 50_000))
    ]
    both = [seen(dialled, 4001), seen(other)]
    assert unsolicited(both, connections, [4001]) == [seen(other)]
    assert unsolicited(both[:1], connections, [4001]) == both[:1], "better than nothing"


# Limits


async def test_places_are_limited() -> None:
    limits = RelayLimits(reservations=1)
    async with (
        open_relay_host(limits) as (relay, server),
        open_hidden(relay),
        open_test_node() as late,
    ):
        client = RelayClient(host=late.host, use=RelayUse.ON)
        async with running(client):
            await late.host.dial(relay.listen_addrs()[0])
            await until(lambda: server.refused["reservation refused"])
            assert not client.relays


async def ask_for_place(peer: Libp2pHost, relay: Libp2pHost) -> int:
    """Return the status that the relay answers."""
    await peer.dial(relay.listen_addrs()[0])
    stream = await peer.libp2p_host.new_stream(relay.libp2p_host.get_id(), [TProtocol(HOP)])
    await write_message(stream, pb.HopMessage(type=pb.HopMessage.RESERVE))
    return (await read_hop(stream)).status


@pytest.mark.parametrize(("network", "places"), [("198.51.100.0/24", 2), (None, 6)])
async def test_names_of_one_network_take_a_share_of_the_places_and_another_gets_one(
    network: str | None, places: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    other: list[PeerId] = []

    def network_of(_connections: object, peer_id: PeerId) -> str | None:
        return "203.0.113.0/24" if peer_id in other else network

    monkeypatch.setattr(relay_server, "network_of", network_of, raising=False)
    async with (
        open_relay_host(RelayLimits(reservations=8)) as (relay, server),
        AsyncExitStack() as s,
    ):
        answers = []
        for _ in range(6):
            name = await s.enter_async_context(open_test_host())
            answers.append(await ask_for_place(name, relay))
        assert answers.count(pb.Status.OK) == server.num_reserved == places
        assert server.refused["reservation refused"] == 6 - places
        newcomer = await s.enter_async_context(open_test_host())
        other.append(newcomer.peer_id)
        assert await ask_for_place(newcomer, relay) == pb.Status.OK
        assert await ask_for_place(newcomer, relay) == pb.Status.OK, "who has one may renew it"
        await newcomer.disconnect(relay.peer_id)
        await until(lambda: server.num_reserved == places)


async def test_who_is_not_connected_yet_or_any_more_gets_no_place() -> None:
    """Its network is not known, and those of none are free."""
    async with open_relay_host() as (relay, server):
        one, other = open_talk(relay.peer_id, fresh_identity().peer_id)
        await write_message(other, pb.HopMessage(type=pb.HopMessage.RESERVE))
        await server._handle(one)
        assert server.num_reserved == 0
        assert cast("TalkStream", one).was_reset


async def test_one_network_opens_a_share_of_the_circuits(monkeypatch: pytest.MonkeyPatch) -> None:
    networks: dict[PeerId, str] = {}
    monkeypatch.setattr(
        relay_server,
        "network_of",
        lambda _connections, peer_id: networks.get(peer_id),
        raising=False,
    )
    async with (
        open_relay_host(RelayLimits(circuits=4)) as (relay, server),
        open_hidden(relay) as one,
        open_test_host() as two,
        open_test_host() as three,
        open_test_host() as four,
    ):
        networks |= {two.peer_id: "a", three.peer_id: "a", four.peer_id: "b"}
        await two.dial(one.circuit)
        with pytest.raises(DialError, match="resource limit exceeded"):
            await three.dial(one.circuit)
        await four.dial(one.circuit)
        two.abort(one.node.peer_id)
        await until(lambda: server.num_circuits == 1)
        await until_dialled(three, one.circuit)


@pytest.mark.parametrize(
    "limits", [RelayLimits(circuit_bytes=300_000), RelayLimits(circuit_seconds=1.0)]
)
async def test_a_circuit_ends_at_its_limit(limits: RelayLimits) -> None:
    async with (
        open_relay_host(limits) as (relay, server),
        open_hidden(relay) as one,
        open_hidden(relay) as two,
    ):
        one.node.host.set_request_handler(ECHO, echo, max_request_bytes=1 << 21)
        await two.node.host.dial(one.circuit)

        async def load() -> None:
            for _ in range(20):
                if two.node.host.is_connected(one.node.peer_id):
                    await two.node.host.request(
                        one.node.peer_id, ECHO, bytes(40_000), max_response_bytes=1 << 21
                    )

        if limits.circuit_bytes < 1_000_000:
            with pytest.raises(Exception, match=r"reset|not_connected"):
                await load()
        await until(lambda: not two.node.host.is_connected(one.node.peer_id))
        await until(lambda: server.num_circuits == 0)
        assert server.bytes_relayed <= limits.circuit_bytes
        await until_dialled(two.node.host, one.circuit)  # a new one may be had


async def until_dialled(host: Libp2pHost, address: str) -> None:
    """Dial as discovery does: again, if it fails."""
    with trio.fail_after(PATIENCE_S):
        while True:
            try:
                await host.dial(address)
                return
            except DialError:
                await trio.sleep(0.1)


async def test_circuits_are_limited() -> None:
    async with (
        open_relay_host(RelayLimits(circuits_per_peer=1)) as (relay, server),
        open_hidden(relay) as one,
        open_hidden(relay) as two,
        open_test_host() as three,
    ):
        await two.node.host.dial(one.circuit)
        with pytest.raises(DialError, match="resource limit exceeded"):
            await three.dial(one.circuit)
        assert server.refused["resource limit exceeded"] == 1


# Strangers


async def test_no_peer_is_connected_without_a_slot() -> None:
    async with open_relay_host() as (relay, _), open_test_host() as one, open_test_host() as two:
        await one.dial(relay.listen_addrs()[0])
        address = f"{relay.listen_addrs()[0]}/p2p-circuit/p2p/{one.peer_id}"
        with pytest.raises(DialError, match="no reservation") as caught:
            await two.dial(address)
        assert "\n" not in str(caught.value)
        gone = f"/ip4/127.0.0.1/tcp/1/p2p/{relay.peer_id}/p2p-circuit/p2p/{one.peer_id}"
        async with open_test_host() as lonely:
            with pytest.raises(DialError, match=r"all attempts to connect.* failed: .*refused$"):
                await lonely.dial(gone)


async def test_a_peer_that_is_no_relay_of_ours_opens_no_circuit_to_us() -> None:
    async with open_relay_host() as (relay, _), open_hidden(relay) as one, open_test_host() as bad:
        await bad.dial(one.node.address)
        stream = await bad.libp2p_host.new_stream(
            one.node.host.libp2p_host.get_id(),
            [STOP],
        )
        stranger = pb.PeerId(id=b"\x00\x01x")
        await write_message(stream, pb.StopMessage(type=pb.StopMessage.CONNECT, peer=stranger))
        answer = await read_stop(stream)
        assert answer.status == pb.Status.PERMISSION_DENIED
        await until(lambda: len(one.node.host.connections()) == 2)


def test_circuit_addresses() -> None:
    relay, target = fresh_identity().peer_id, fresh_identity().peer_id
    transport = f"/ip4/192.0.2.1/tcp/4001/p2p/{relay}/p2p-circuit"
    parsed = parse_peer_address(f"{transport}/p2p/{target}")
    assert (parsed.transport, parsed.peer_id) == (transport, target)
    assert host_and_port(transport) == ("192.0.2.1", 4001)
    for bad in (f"/p2p/{relay}/p2p-circuit", f"{transport}/p2p/{target}/p2p-circuit"):
        with pytest.raises(ValueError, match="not"):
            parse_transport(bad)
