"""Gossip over real streams: all messages arrive, and a hostile peer can lose its stream at most."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from libp2p.pubsub.pb import rpc_pb2

from shoal_p2p.gossip.settings import GossipLimits, GossipSettings, MeshSettings
from shoal_wire.types import PeerId
from shoal_wire.verdict import ACCEPT, Verdict
from tests.support.network import HostilePeer, is_reset, signed_by
from tests.support.nodes import (
    TestNode,
    fresh_identity,
    is_meshed,
    join,
    open_test_host,
    open_test_node,
    open_test_swarm,
    until,
)

TOPIC = "/shoal/test"
QUICK = GossipSettings(mesh=MeshSettings(heartbeat_s=0.2))


def numbered(count: int, size: int = 1000) -> list[bytes]:
    return [n.to_bytes(4, "big") + bytes(size - 4) for n in range(count)]


async def all_receive(nodes: list[TestNode], messages: list[bytes]) -> None:
    await until(lambda: all(len(node.received(TOPIC)) >= len(messages) for node in nodes))
    for node in nodes:
        assert sorted(node.received(TOPIC)) == sorted(messages), "each message exactly once"


# Nothing is lost


async def test_publish_waits_for_capacity_instead_of_dropping() -> None:
    limits = GossipLimits(max_queue_frames=2, max_queue_bytes=150_000)
    settings = GossipSettings(limits=limits, mesh=QUICK.mesh)
    async with open_test_swarm(2, settings=settings) as nodes:
        await join(nodes, TOPIC)
        messages = numbered(60, size=60_000)
        for message in messages:
            assert await nodes[0].gossip.publish(TOPIC, message) == 1
        await all_receive(nodes[1:], messages)


async def test_restart_with_the_same_identity_loses_nothing() -> None:
    identity = fresh_identity()
    messages = numbered(60)
    async with open_test_node() as listener:
        await listener.subscribe(TOPIC)
        for part in (messages[:30], messages[30:]):
            async with open_test_node(identity=identity) as publisher:
                await publisher.host.dial(listener.address)
                await publisher.subscribe(TOPIC)
                await until(lambda p=publisher: p.gossip.topic_peers(TOPIC))
                for message in part:
                    assert await publisher.gossip.publish(TOPIC, message) == 1
                await until(lambda p=part: p[-1] in listener.received(TOPIC))
        await all_receive([listener], messages)


async def test_a_congested_peer_is_sent_no_ihave_over_streams() -> None:
    """Queued messages must not be advertised too: each would be sent up to four times."""
    settings = GossipSettings(mesh=MeshSettings(heartbeat_s=0.05))
    async with open_test_swarm(2, settings=settings) as nodes:
        await join(nodes, TOPIC)
        messages = numbered(150, size=20_000)
        for message in messages:
            await nodes[0].gossip.publish(TOPIC, message)
        await all_receive(nodes[1:], messages)
        assert nodes[1].gossip.stats().pubsub.get("duplicate", 0) <= 10


async def test_a_broken_stream_is_replaced_with_its_subscriptions() -> None:
    """A stream that dies on a live connection must not leave one end without messages."""
    async with open_test_swarm(2) as nodes:
        one, two = nodes
        await join(nodes, TOPIC)
        (stream,) = two.gossip._inbound.values()
        await stream.reset()
        await one.gossip.publish(TOPIC, b"into the void")
        await until(lambda: not one.host.connections())
        await two.host.dial(one.address)
        await until(lambda: all(is_meshed(node, nodes, TOPIC) for node in nodes))
        for sender, receiver in ((one, two), (two, one)):
            await sender.gossip.publish(TOPIC, b"again")
            await until(lambda who=receiver: b"again" in who.received(TOPIC))


# A hostile peer


@asynccontextmanager
async def under_attack() -> AsyncIterator[tuple[TestNode, TestNode, HostilePeer]]:
    """A victim with a friend in its mesh, and a hostile peer connected to it."""
    async with (
        open_test_node(settings=QUICK) as victim,
        open_test_node(settings=QUICK) as friend,
        open_test_host() as attacker,
    ):
        await join([victim, friend], TOPIC)
        await attacker.dial(victim.address)
        await until(lambda: victim.host.is_connected(attacker.peer_id))
        yield victim, friend, HostilePeer(attacker, victim.peer_id)


async def assert_unaffected(victim: TestNode, friend: TestNode) -> None:
    """Check that the victim runs and its friend is still connected."""
    marker = os.urandom(8)
    assert victim.host.is_connected(friend.peer_id)
    await friend.gossip.publish(TOPIC, marker)
    await until(lambda: marker in victim.received(TOPIC))
    await victim.gossip.publish(TOPIC, marker + b"!")
    await until(lambda: marker + b"!" in friend.received(TOPIC))


MALFORMED = {
    "not protobuf": b"\x0a" + b"\xff" * 10,
    "truncated message": b"\x40\x12\x3f\x0a",
    "over-long varint": b"\xff" * 11,
    "frame of a gigabyte": b"\x80\x80\x80\x80\x04",
}


async def test_malformed_rpc_costs_only_its_stream() -> None:
    async with under_attack() as (victim, friend, attacker):
        for name, data in MALFORMED.items():
            stream = await attacker.send_bytes(data + bytes(64))
            with trio.fail_after(10):
                assert await is_reset(stream), name
            await assert_unaffected(victim, friend)
            assert victim.host.is_connected(attacker.host.peer_id)


async def test_a_flood_in_one_rpc_is_validated_a_few_at_a_time() -> None:
    running = peak = 0

    async def count(data: bytes, author: PeerId, forwarder: PeerId) -> Verdict:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        for _ in range(20):
            await trio.lowlevel.checkpoint()
        running -= 1
        return ACCEPT

    limits = GossipLimits(max_validating_per_peer=4)
    settings = GossipSettings(limits=limits)
    async with open_test_node(settings=settings) as victim, open_test_host() as attacker:
        await victim.gossip.subscribe(TOPIC, count)
        await attacker.dial(victim.address)
        author = fresh_identity()
        flood = [signed_by(author, TOPIC, b"x", n) for n in range(1, 1001)]
        await HostilePeer(attacker, victim.peer_id).send_rpc(rpc_pb2.RPC(publish=flood))
        await until(lambda: victim.gossip.stats().pubsub.get("forwarded") == 1000)
        assert 1 <= peak <= 4


async def test_second_stream_of_a_peer_replaces_the_first() -> None:
    async with under_attack() as (victim, friend, attacker):
        subscribe = rpc_pb2.RPC(
            subscriptions=[rpc_pb2.RPC.SubOpts(subscribe=True, topicid="/mine")]
        )
        first = await attacker.send_rpc(subscribe)
        await until(lambda: victim.gossip.topic_peers("/mine"))
        second = await attacker.send_rpc(subscribe)
        with trio.fail_after(10):
            assert await is_reset(first)
        await assert_unaffected(victim, friend)
        assert victim.gossip.topic_peers("/mine") == (attacker.host.peer_id,)
        await second.reset()
        await until(lambda: not victim.gossip.topic_peers("/mine"))
