"""Hostile behaviour that no single message shows: floods, spam, starvation.

After each attack the node works, its loop has never stood still, its memory is bounded, and the
attacker is cut off or held back.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager

import pytest
import trio
from libp2p.custom_types import TProtocol
from libp2p.pubsub.pb import rpc_pb2

from shoal_p2p.gossip.codec import encode_frame
from shoal_p2p.gossip.rate_limiter import FloodLimits
from shoal_p2p.gossip.settings import GossipLimits, GossipSettings, MeshSettings
from shoal_p2p.net.host import DialError
from shoal_p2p.net.inbound_gate import GateLimits
from shoal_p2p.net.swarm import SwarmSettings
from shoal_p2p.reputation.scoring import Cause
from shoal_wire.types import PeerId
from tests.support import factories as make
from tests.support.network import MESHSUB, HostilePeer, is_reset, port_of
from tests.support.nodes import TestNode, join, open_test_host, open_test_node, until
from tests.support.victim import GROWTH_BYTES, Attacker, Victim, open_hostile, still_works

CUT_WITHIN_S = 40.0
"""How long a test waits for the cut, in seconds: generous, for a machine with other work."""


@asynccontextmanager
async def attack(victim: Victim) -> AsyncIterator[Attacker]:
    """An attacker; afterwards the node must work and must not have grown without bound."""
    before = victim.rss()
    victim.longest_pause_s = 0.0
    async with open_hostile(victim) as attacker:
        yield attacker
        await still_works(victim)
    assert victim.rss() - before < GROWTH_BYTES


# Floods


async def test_a_flood_of_forged_messages_is_cut_off(victim: Victim) -> None:
    async with attack(victim) as attacker:
        messages = [attacker.message(os.urandom(100)) for _ in range(200)]
        for message in messages:
            message.signature = bytes(64)
        await attacker.flood(encode_frame(rpc_pb2.RPC(publish=messages)), seconds=CUT_WITHIN_S)
        assert victim.points(attacker.peer_id)[Cause.FORWARDED_HEAVY] < -40


async def test_a_flood_of_large_forged_messages_is_cut_off(victim: Victim) -> None:
    async with attack(victim) as attacker:
        message = attacker.message(bytes(900_000))
        message.signature = bytes(64)
        await attacker.flood(encode_frame(rpc_pb2.RPC(publish=[message])), seconds=CUT_WITHIN_S)
        assert victim.points(attacker.peer_id)[Cause.FORWARDED_HEAVY] < -40


@pytest.mark.slow
async def test_a_flood_of_copies_is_held_back_and_cut_off(victim: Victim) -> None:
    async with attack(victim) as attacker:
        message = attacker.message(attacker.author.envelope())
        await attacker.flood(
            encode_frame(rpc_pb2.RPC(publish=[message] * 1000)), seconds=CUT_WITHIN_S
        )
        assert set(victim.points(attacker.peer_id)) == {Cause.FLOOD}


async def test_a_flood_of_valid_batches_over_quota_is_held_back_and_cut_off(
    victim: Victim,
) -> None:
    async with attack(victim) as attacker:
        copies = victim.counts()["duplicate"]
        groups = [make.group(n) for n in range(512)]
        for _ in range(2):  # its quota, at once
            await attacker.publish(attacker.author.envelope(attacker.author.batch(groups)))
        batches = [attacker.author.envelope(attacker.author.batch(groups[:40])) for _ in range(400)]
        messages = [attacker.message(batch) for batch in batches]
        frames = [
            encode_frame(rpc_pb2.RPC(publish=messages[start : start + 20]))
            for start in range(0, len(messages), 20)
        ]
        await attacker.flood(b"".join(frames), seconds=CUT_WITHIN_S)
        assert Cause.FLOOD in victim.points(attacker.peer_id)
        assert victim.counts()["duplicate"] == copies, "before it repeats itself"


@pytest.mark.slow
async def test_a_flood_of_messages_of_unknown_topics_is_cut_off(victim: Victim) -> None:
    async with attack(victim) as attacker:
        message = attacker.message(b"x", topic="/shoal/1/other/rollouts/0")
        await attacker.flood(
            encode_frame(rpc_pb2.RPC(publish=[message] * 1000)), seconds=CUT_WITHIN_S
        )


async def test_a_valid_burst_is_neither_held_back_nor_blamed(victim: Victim) -> None:
    async with attack(victim) as attacker:
        kept, held = (
            victim.node.counters.groups_received,
            victim.counts()["read_paused"],
        )
        # Enough to be limited if each counted as judged in vain.
        for number in range(1, 5):
            envelopes = [attacker.author.envelope() for _ in range(150)]
            await attacker.publish(*envelopes)
            await until(
                lambda number=number: victim.node.counters.groups_received == kept + 150 * number
            )
        assert victim.score(attacker.peer_id) == 0.0
        assert victim.counts()["read_paused"] == held


async def test_many_peers_of_one_network_are_held_back_together_and_not_blamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shoal_p2p.gossip.gossip.prefix_of", lambda _host: "203.0.113.0/24")
    flood = FloodLimits(waste_per_second=0.01, waste_burst=100.0, grace_s=0.0)
    settings = GossipSettings(limits=GossipLimits(flood=flood))
    async with open_test_node(settings=settings) as victim, AsyncExitStack() as stack:
        await victim.subscribe("/t")
        counts = victim.gossip._mesh.counts
        for number in range(1, 4):
            assert not counts["read_paused"]
            host = await stack.enter_async_context(open_test_host())
            await host.dial(victim.address)
            other = rpc_pb2.Message(topicIDs=["/other"], from_id=b"x", seqno=bytes([number]))
            frame = encode_frame(rpc_pb2.RPC(publish=[other] * 90))
            await HostilePeer(host, victim.peer_id).send_bytes(frame)
            await until(lambda number=number: counts["unknown_topic"] == 90 * number)
        await until(lambda: counts["read_paused"] > 1)  # once it was held back to the end
        assert victim.watch.charged == []


# Control spam


async def test_malformed_rpcs_end_in_a_ban(victim: Victim) -> None:
    async with attack(victim) as attacker:
        for _ in range(3):
            await is_reset(await attacker.send_bytes(b"\x0a" + b"\xff" * 80))
        await until(lambda: victim.is_cut(attacker.peer_id))
        assert Cause.MALFORMED_RPC in victim.points(attacker.peer_id)


async def test_an_rpc_of_half_a_million_empty_parts_is_refused(victim: Victim) -> None:
    async with attack(victim) as attacker:
        for part in (b"\x12\x00", b"\x0a\x00"):
            body = part * 250_000
            stream = await attacker.send_bytes(b"\xa0\xc2\x1e" + body)
            with trio.fail_after(20):
                assert await is_reset(stream)
        assert Cause.MALFORMED_RPC in victim.points(attacker.peer_id)


async def test_graft_during_back_off_is_cut_off(victim: Victim) -> None:
    async with attack(victim) as attacker:
        subscribe = rpc_pb2.RPC.SubOpts(subscribe=True, topicid=victim.topic)
        control = rpc_pb2.ControlMessage(
            prune=[rpc_pb2.ControlPrune(topicID=victim.topic, backoff=60)],
            graft=[rpc_pb2.ControlGraft(topicID=victim.topic)] * 60,
        )
        stream = await attacker.send_rpc(rpc_pb2.RPC(subscriptions=[subscribe]))
        # Grafts are read before prunes, so those of the second RPC break the back-off.
        for _ in range(2):
            await stream.write(encode_frame(rpc_pb2.RPC(control=control)))
        await until(lambda: victim.is_cut(attacker.peer_id))
        assert set(victim.points(attacker.peer_id)) == {Cause.BROKEN_BACKOFF}


@pytest.mark.slow
async def test_control_spam_is_cut_off(victim: Victim) -> None:
    """One kind of it; `test_mesh.py` has all five."""
    ids = [os.urandom(20) for _ in range(3000)]
    entry = rpc_pb2.ControlIHave(topicID=victim.topic, messageIDs=ids)
    control = rpc_pb2.ControlMessage(ihave=[entry] * 8)
    async with attack(victim) as attacker:
        await attacker.flood(encode_frame(rpc_pb2.RPC(control=control)), seconds=CUT_WITHIN_S)
        assert Cause.CONTROL_SPAM in victim.points(attacker.peer_id)


async def test_offers_that_are_never_kept_cost_points_but_no_ban(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shoal_p2p.gossip.ihave.REPLY_S", 0.3)
    settings = GossipSettings(mesh=MeshSettings(heartbeat_s=0.2))
    async with open_test_node(settings=settings) as victim, open_test_host() as host:
        _never_read(host)
        await victim.subscribe("/t")
        await host.dial(victim.address)
        attacker = HostilePeer(host, victim.peer_id)
        await until(lambda: victim.gossip._queues)
        offer = rpc_pb2.ControlIHave(topicID="/t", messageIDs=[os.urandom(40)])
        control = rpc_pb2.ControlMessage(ihave=[offer])
        stream = await attacker.send_rpc(rpc_pb2.RPC(control=control))
        await until(lambda: victim.watch.charged == [(host.peer_id, Cause.BROKEN_PROMISE)])
        await stream.reset()


# Starving the node of something


async def test_a_peer_that_never_reads_is_cut_off_and_its_queue_was_bounded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    limits = GossipLimits(max_queue_bytes=4 << 20, write_deadline_s=1.0)
    settings = GossipSettings(limits=limits, mesh=MeshSettings(heartbeat_s=0.2))
    async with open_test_node(settings=settings) as victim, open_test_host() as host:
        _never_read(host)
        await victim.subscribe("/t")
        await host.dial(victim.address)
        subscribe = rpc_pb2.RPC.SubOpts(subscribe=True, topicid="/t")
        await HostilePeer(host, victim.peer_id).send_rpc(rpc_pb2.RPC(subscriptions=[subscribe]))
        await until(lambda: victim.gossip._queues and victim.gossip.topic_peers("/t"))
        (queue,) = victim.gossip._queues.values()
        peak = 0
        for _ in range(20):
            with trio.move_on_after(0.05):
                await victim.gossip.publish("/t", bytes(500_000))
            peak = max(peak, queue.num_data_bytes)
        assert 0 < peak <= 4 << 20
        await until(lambda: not victim.host.is_connected(host.peer_id))
        assert victim.watch.charged == [(host.peer_id, Cause.SLOW_READER)]
        assert "took too long" in caplog.text, "not by what the library does after some seconds"
        async with open_test_node(settings=settings) as friend:
            await join([victim, friend], "/t")
            await victim.gossip.publish("/t", b"hello")
            await until(lambda: b"hello" in friend.received("/t"))


def _never_read(host: object) -> None:
    async def ignore(_stream: object) -> None:
        await trio.sleep_forever()

    library = host.libp2p_host  # type: ignore[attr-defined]
    library.set_stream_handler(TProtocol(MESHSUB), ignore)


GATE = GateLimits(limit_loopback=True, prefix_handshakes=8, prefix_connections=20)


async def test_silent_connections_of_one_network_do_not_keep_another_out() -> None:
    swarm = SwarmSettings(gate=GATE, max_connections=64)
    async with open_test_node(swarm=swarm) as victim, open_test_host() as honest:
        refused = victim.host.refused_connections
        async with silent_connections(victim, 200):
            await until(lambda: sum(refused().values()) >= 192)
            assert refused().get("prefix_handshakes", 0) > 40
            await honest.dial(victim.address)
            await until(lambda: victim.host.is_connected(honest.peer_id))


@asynccontextmanager
async def silent_connections(victim: TestNode, count: int) -> AsyncIterator[None]:
    """Connections from another network of the loopback that never say a word."""
    with ExitStack() as stack:
        for _ in range(count):
            sock = trio.socket.socket()
            stack.callback(sock.close)
            await sock.bind(("127.9.9.9", 0))
            await sock.connect(("127.0.0.1", port_of(victim.host)))
        yield


@pytest.mark.slow
async def test_thousands_of_connections_leave_room_and_memory() -> None:
    swarm = SwarmSettings(gate=GATE, max_connections=64)
    async with open_test_node(swarm=swarm) as victim, open_test_host() as honest:
        for _ in range(20):
            async with silent_connections(victim, 200):
                pass
        await honest.dial(victim.address)
        await until(lambda: victim.host.is_connected(honest.peer_id))
        gate = victim.host._host.get_network()._gate
        await until(lambda: gate is not None and gate._handshakes == 0)
        assert sum(gate._open.values()) == 1, "only the honest one is left"  # type: ignore[union-attr]


async def test_a_banned_peer_that_keeps_coming_back_stays_out(victim: Victim) -> None:
    async with attack(victim) as attacker:
        for _ in range(3):
            await is_reset(await attacker.send_bytes(b"\x0a" + b"\xff" * 80))
        await until(lambda: victim.is_cut(attacker.peer_id))
        await until(lambda: not attacker.host.is_connected(victim.peer_id))
        connections: list[PeerId] = []
        victim.node.member.host.add_peer_callbacks(connected=connections.append)
        for _ in range(10):
            # Not for a moment: where a muxer is agreed on, its dial ends well.
            with pytest.raises(DialError):
                await attacker.host.dial(victim.address, timeout=5.0)
        assert attacker.peer_id not in connections
        assert victim.is_cut(attacker.peer_id)


async def test_hundreds_of_streams_on_one_connection_are_bounded(victim: Victim) -> None:
    async with attack(victim) as attacker:
        network = victim.node.member.host._host.get_network()  # type: ignore[attr-defined]
        peak = 0
        streams = []
        for _ in range(150):
            try:
                streams.append(await attacker.open_stream())
            except Exception:  # noqa: BLE001 - refused is what may happen
                break
            peak = max(peak, *network._serving.values(), 0)
        assert peak <= 64
        for stream in streams:
            await stream.reset()
