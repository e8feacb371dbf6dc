"""A hostile peer on the pubsub protocol: it may lose its stream, nobody else loses anything."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from libp2p.peer.id import ID
from libp2p.pubsub.pb import rpc_pb2
from libp2p.utils.varint import encode_uvarint

from p2p.gossip.gossip import GossipSettings
from p2p.gossip.messages import SeenCache, fault_of, sign_message
from p2p.gossip.outbound import MAX_RPC_BYTES, OutboundQueue, encode_frame
from p2p.gossip.pubsub import PubsubLimits
from p2p.gossip.scorer import MeshSettings
from p2p.net.identity import Identity
from p2p.net.streams import FrameReader, MalformedFrameError
from shoal_wire.types import PeerId
from shoal_wire.verdict import ACCEPT, Outcome, Reason, Verdict, verdict
from tests.support.network import HostilePeer, is_reset
from tests.support.nodes import (
    TestNode,
    fresh_identity,
    is_meshed,
    join,
    open_test_host,
    open_test_node,
    until,
)

TOPIC = "/shoal/test"
PATIENT = GossipSettings(
    limits=PubsubLimits(offences_to_ban=10**6), mesh=MeshSettings(heartbeat_s=0.2)
)


def raw_id(identity: Identity) -> bytes:
    return bytes(ID.from_base58(identity.peer_id).to_bytes())


def signed(identity: Identity, data: bytes, seqno: int, topic: str = TOPIC) -> rpc_pb2.Message:
    return sign_message(identity, raw_id(identity), topic, data, seqno)


@asynccontextmanager
async def under_attack(
    settings: GossipSettings = PATIENT,
) -> AsyncIterator[tuple[TestNode, TestNode, HostilePeer]]:
    """A victim with a friend in its mesh and a hostile peer connected to it."""
    async with (
        open_test_node(settings=settings) as victim,
        open_test_node(settings=settings) as friend,
        open_test_host() as attacker,
    ):
        await join([victim, friend], TOPIC)
        await attacker.dial(victim.address)
        await until(lambda: victim.host.is_connected(attacker.peer_id))
        yield victim, friend, HostilePeer(attacker, victim.peer_id)


async def still_hears(victim: TestNode, friend: TestNode) -> None:
    """The victim runs, and its friend was never cut off."""
    marker = os.urandom(8)
    ages = {c.peer_id: c.opened_s for c in victim.host.connections()}
    assert friend.peer_id in ages
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


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
async def test_malformed_rpc_costs_only_its_stream(data: bytes) -> None:
    async with under_attack() as (victim, friend, attacker):
        stream = await attacker.send_bytes(data + bytes(64))
        with trio.fail_after(10):
            assert await is_reset(stream)
        await still_hears(victim, friend)
        assert victim.host.is_connected(attacker.host.peer_id)


async def test_random_bytes_on_the_pubsub_stream() -> None:
    generator = random.Random(5)
    async with under_attack() as (victim, friend, attacker):
        for size in (1, 3, 30, 300, 3000, 30_000):
            await attacker.send_bytes(encode_uvarint(size) + generator.randbytes(size))
        await still_hears(victim, friend)


async def test_repeated_malformed_rpcs_end_in_a_ban() -> None:
    async with under_attack(GossipSettings()) as (victim, friend, attacker):
        for _ in range(3):
            await is_reset(await attacker.send_bytes(MALFORMED["not protobuf"] + bytes(64)))
        await until(lambda: not victim.host.is_connected(attacker.host.peer_id))
        assert victim.host.is_banned(attacker.host.peer_id)
        assert victim.gossip.stats().pubsub["malformed_rpc"] == 3
        await still_hears(victim, friend)


async def reason_given(victim: TestNode, attacker: HostilePeer, bad: rpc_pb2.Message) -> Reason:
    await attacker.send_rpc(rpc_pb2.RPC(publish=[bad]))
    await until(lambda: victim.verdicts)
    ((forwarder, author, judged),) = victim.verdicts
    assert forwarder == attacker.host.peer_id
    assert author is None
    assert judged.outcome is Outcome.REJECT
    return judged.reason


async def test_hashed_peer_id_with_a_junk_key_is_rejected() -> None:
    message = rpc_pb2.Message(
        from_id=b"\x12\x20" + bytes(32),
        key=b"junk",
        data=b"x",
        seqno=bytes(8),
        topicIDs=[TOPIC],
        signature=bytes(64),
    )
    async with under_attack() as (victim, friend, attacker):
        assert await reason_given(victim, attacker, message) is Reason.BAD_SIGNATURE
        await still_hears(victim, friend)
        assert victim.gossip.stats().pubsub.get("fault", 0) == 0


def _without_signature(m: rpc_pb2.Message) -> None:
    m.ClearField("signature")


def _short_signature(m: rpc_pb2.Message) -> None:
    m.signature = m.signature[:10]


def _other_data(m: rpc_pb2.Message) -> None:
    m.data = b"other"


def _other_key(m: rpc_pb2.Message) -> None:
    m.key = signed(fresh_identity(), b"", 1).key


def _no_author(m: rpc_pb2.Message) -> None:
    m.ClearField("from_id")


def _weak_author(m: rpc_pb2.Message) -> None:
    m.ClearField("key")
    m.from_id = m.from_id[:-32] + bytes(32)


def _two_topics(m: rpc_pb2.Message) -> None:
    m.topicIDs.append("/other")


def _long_seqno(m: rpc_pb2.Message) -> None:
    m.seqno = bytes(9)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_without_signature, Reason.BAD_SIGNATURE),
        (_short_signature, Reason.BAD_SIGNATURE),
        (_other_data, Reason.BAD_SIGNATURE),
        (_other_key, Reason.SIGNER_NOT_SENDER),
        (_no_author, Reason.BAD_SIGNATURE),
        (_weak_author, Reason.WEAK_KEY),
        (_two_topics, Reason.WRONG_SWARM),
        (_long_seqno, Reason.MALFORMED_ENVELOPE),
    ],
)
def test_every_break_of_strict_signing_has_its_reason(change: object, reason: Reason) -> None:
    message = signed(fresh_identity(), b"data", 7)
    assert fault_of(message, 100) is None
    assert fault_of(message, 3) is Reason.OVERSIZE_MESSAGE
    change(message)  # type: ignore[operator]
    assert fault_of(message, 100) is reason


async def test_forgery_does_not_shut_out_the_real_message() -> None:
    author = fresh_identity()
    real = signed(author, b"real", 7)
    forged = rpc_pb2.Message()
    forged.CopyFrom(real)
    forged.data = b"forged"
    async with under_attack() as (victim, _, attacker):
        await attacker.send_rpc(rpc_pb2.RPC(publish=[forged, real, forged]))
        await until(lambda: victim.received(TOPIC) == [b"real"])
        await until(lambda: len(victim.verdicts) >= 2)
        assert victim.verdicts[0][2].reason is Reason.BAD_SIGNATURE


async def test_message_in_my_name_is_dropped() -> None:
    async with under_attack() as (victim, friend, attacker):
        await attacker.send_rpc(
            rpc_pb2.RPC(publish=[signed(victim.host.identity, b"echo of an earlier life", 7)])
        )
        await until(lambda: victim.gossip.stats().pubsub.get("own_echo"))
        await still_hears(victim, friend)
        assert b"echo of an earlier life" not in friend.received(TOPIC)


async def test_copies_in_one_rpc_are_judged_once() -> None:
    calls = 0
    release = trio.Event()

    async def slow(data: bytes, author: PeerId, forwarder: PeerId) -> Verdict:
        nonlocal calls
        calls += 1
        await release.wait()
        return ACCEPT

    async with open_test_node() as victim, open_test_host() as attacker:
        await victim.gossip.subscribe(TOPIC, slow)
        await attacker.dial(victim.address)
        message = signed(fresh_identity(), b"x", 7)
        await HostilePeer(attacker, victim.peer_id).send_rpc(rpc_pb2.RPC(publish=[message] * 8))
        await until(lambda: victim.gossip.stats().pubsub.get("duplicate") == 7)
        release.set()
        await until(lambda: victim.gossip.stats().pubsub.get("forwarded") == 1)
        assert calls == 1


async def test_who_has_written_or_sent_a_message_is_not_offered_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    author = fresh_identity()
    message = signed(author, b"x", 7)
    async with under_attack() as (victim, _, first), open_test_host() as host:
        await host.dial(victim.address)
        router, counts = victim.gossip._router, victim.gossip._pubsub.counts
        # Noted as they come: of who has no pubsub stream, the next heartbeat forgets it.
        noted: list[tuple[str, bytes]] = []
        note = router.note_holder
        monkeypatch.setattr(
            router,
            "note_holder",
            lambda peer, key: (noted.append((str(peer), key)), note(peer, key)),
        )
        await first.send_rpc(rpc_pb2.RPC(publish=[message]))
        await until(lambda: counts["forwarded"] == 1)
        await HostilePeer(host, victim.peer_id).send_rpc(rpc_pb2.RPC(publish=[message]))
        await until(lambda: counts["duplicate"])
        (key,) = router.mcache._frames
        holders = (first.host.peer_id, author.peer_id, host.peer_id)
        assert noted == [(holder, key) for holder in holders]


@asynccontextmanager
async def overloaded(times: int) -> AsyncIterator[tuple[TestNode, TestNode, list[bytes]]]:
    """A victim whose validator has no time for the first messages, its friend, what it judged."""
    judged: list[bytes] = []

    async def validate(data: bytes, author: PeerId, forwarder: PeerId) -> Verdict:
        judged.append(data)
        if len(judged) > times:
            return ACCEPT
        if len(judged) == 1:
            await trio.sleep(0.5)  # some heartbeats, in one of which the friend makes its offer
        return verdict(Reason.BUSY)

    async with (
        open_test_node(settings=PATIENT) as victim,
        open_test_node(settings=PATIENT) as friend,
    ):
        await victim.gossip.subscribe(TOPIC, validate)
        await friend.subscribe(TOPIC)
        await friend.host.dial(victim.address)
        both = [victim, friend]
        await until(lambda: all(is_meshed(node, both, TOPIC) for node in both))
        yield victim, friend, judged


async def test_what_was_offered_while_it_was_judged_in_vain_is_asked_for() -> None:
    async with overloaded(1) as (victim, friend, judged):
        await friend.gossip.publish(TOPIC, b"x")
        await until(lambda: victim.gossip.stats().pubsub.get("forwarded") == 1)
        assert judged == [b"x", b"x"]


async def test_who_sends_what_we_have_no_time_for_has_broken_no_promise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("p2p.gossip.wants._PROMISE_S", 0.8)
    async with overloaded(100) as (victim, friend, judged):
        await friend.gossip.publish(TOPIC, b"x")
        await until(lambda: len(judged) == 2)
        await trio.sleep(1.5)
        assert victim.watch.charged == []


async def test_flood_in_one_rpc_is_judged_a_few_at_a_time() -> None:
    running = peak = 0

    async def count(data: bytes, author: PeerId, forwarder: PeerId) -> Verdict:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        for _ in range(20):
            await trio.lowlevel.checkpoint()
        running -= 1
        return ACCEPT

    limits = PubsubLimits(max_validating_per_peer=4)
    settings = GossipSettings(limits=limits)
    async with open_test_node(settings=settings) as victim, open_test_host() as attacker:
        await victim.gossip.subscribe(TOPIC, count)
        await attacker.dial(victim.address)
        author = fresh_identity()
        flood = [signed(author, b"x", n) for n in range(1, 1001)]
        await HostilePeer(attacker, victim.peer_id).send_rpc(rpc_pb2.RPC(publish=flood))
        await until(lambda: victim.gossip.stats().pubsub.get("forwarded") == 1000)
        assert 1 <= peak <= 4


def hostile_control() -> list[rpc_pb2.ControlMessage]:
    ids = [os.urandom(40) for _ in range(2000)]
    topics = [f"/unknown/{n}" for n in range(500)]
    return [
        rpc_pb2.ControlMessage(ihave=[rpc_pb2.ControlIHave(topicID=TOPIC, messageIDs=ids * 5)]),
        rpc_pb2.ControlMessage(ihave=[rpc_pb2.ControlIHave(topicID=TOPIC)] * 500),
        rpc_pb2.ControlMessage(iwant=[rpc_pb2.ControlIWant(messageIDs=ids * 5)]),
        rpc_pb2.ControlMessage(idontwant=[rpc_pb2.ControlIDontWant(messageIDs=ids * 5)]),
        rpc_pb2.ControlMessage(graft=[rpc_pb2.ControlGraft(topicID=t) for t in topics]),
        rpc_pb2.ControlMessage(
            prune=[rpc_pb2.ControlPrune(topicID=t, backoff=2**63) for t in topics]
        ),
        rpc_pb2.ControlMessage(
            prune=[
                rpc_pb2.ControlPrune(
                    topicID=TOPIC, peers=[rpc_pb2.PeerInfo(peerID=b"x", signedPeerRecord=b"y")]
                )
            ]
        ),
    ]


async def test_hostile_control_messages_leave_no_trace() -> None:
    async with under_attack() as (victim, friend, attacker):
        for control in hostile_control():
            await attacker.send_rpc(rpc_pb2.RPC(control=control))
        await still_hears(victim, friend)
        router = victim.gossip._router
        assert set(router.back_off) <= {TOPIC}
        assert max(router._heeded.values(), default=0) <= 4096
        assert victim.gossip.stats().pubsub.get("fault", 0) == 0
        await until(lambda: not router._wants, patience_s=15)


async def test_asking_for_one_message_ten_thousand_times_yields_three() -> None:
    async with under_attack() as (victim, friend, attacker):
        await victim.gossip.publish(TOPIC, bytes(1000))
        (key,) = victim.gossip._router.mcache.window(TOPIC)
        queue_of = victim.gossip._pubsub.peer_queues
        attacker_id = ID.from_base58(attacker.host.peer_id)
        counted = OutboundQueue(max_frames=10_000, max_bytes=10**9)
        queue_of[attacker_id] = counted
        for _ in range(5):
            wanted = [rpc_pb2.ControlIWant(messageIDs=[key] * 1000)] * 2
            await attacker.send_rpc(rpc_pb2.RPC(control=rpc_pb2.ControlMessage(iwant=wanted)))
        await still_hears(victim, friend)
        assert len(counted._data) == 3


async def test_subscriptions_are_bounded() -> None:
    async with under_attack() as (victim, friend, attacker):
        peer = ID.from_base58(attacker.host.peer_id)
        pubsub = victim.gossip._pubsub
        many = [rpc_pb2.RPC.SubOpts(subscribe=True, topicid=f"/t/{n}") for n in range(5000)]
        odd = ["x" * 10_000, "bell\a", "gr\u00fc\u00dfe"]
        long = [rpc_pb2.RPC.SubOpts(subscribe=True, topicid=topic) for topic in odd]
        stream = await attacker.send_rpc(rpc_pb2.RPC(subscriptions=long + many))
        await until(lambda: any(peer in peers for peers in pubsub.peer_topics.values()))
        await stream.write(encode_frame(rpc_pb2.RPC(subscriptions=many[2500:])))
        await still_hears(victim, friend)
        held = [topic for topic, peers in pubsub.peer_topics.items() if peer in peers]
        assert 1 <= len(held) <= 64
        assert all(topic.startswith("/t/") for topic in held)


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
        await still_hears(victim, friend)
        assert victim.gossip.topic_peers("/mine") == (attacker.host.peer_id,)
        await second.reset()
        await until(lambda: not victim.gossip.topic_peers("/mine"))


# The parts alone


class Pieces:
    """A stream that returns its bytes in given pieces."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    async def read(self, n: int | None = None) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


async def test_frames_survive_any_cutting() -> None:
    bodies = [b"", b"x", bytes(300), bytes(70_000)]
    whole = b"".join(encode_uvarint(len(body)) + body for body in bodies)
    generator = random.Random(1)
    for _ in range(20):
        cuts = sorted(generator.sample(range(len(whole)), 12))
        pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
        reader = FrameReader(Pieces([p for p in pieces if p]), 1 << 20)  # type: ignore[arg-type]
        assert [await reader.read() for _ in bodies] == bodies


@pytest.mark.parametrize("data", [b"\x80\x80\x80\x80\x80", b"\x81\x80\x40", b"\xff\xff\xff\x7f"])
async def test_bad_lengths_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedFrameError):
        await FrameReader(Pieces([data]), 1 << 20).read()  # type: ignore[arg-type]


async def test_outbound_queue_is_bounded_and_puts_control_first() -> None:
    queue = OutboundQueue(max_frames=3, max_bytes=100)
    assert [queue.push_frame(bytes(30)) for _ in range(4)] == [True, True, True, False]
    assert queue.push_frame(b"control", control=True)
    assert not queue.push_frame(b"c" * 10, control=True), "over the byte bound"
    assert await queue.pop_frame() == b"control"
    assert [await queue.pop_frame() for _ in range(3)] == [bytes(30)] * 3
    assert not queue.push_frame(bytes(MAX_RPC_BYTES + 5))
    queue.close()
    assert await queue.pop_frame() is None
    assert not queue.push_frame(b"late")


async def test_waiting_for_room_ends_with_room_or_with_the_queue() -> None:
    queue = OutboundQueue(max_frames=1, max_bytes=100)
    outcomes: list[bool] = []

    async def wait() -> None:
        outcomes.append(await queue.wait_for_room(10))

    queue.push_frame(bytes(10))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        assert outcomes == []
        await queue.pop_frame()
    assert outcomes == [True]
    queue.push_frame(bytes(10))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        queue.close()
    assert outcomes == [True, False]


async def test_seen_cache_forgets_by_age_and_by_number(
    autojump_clock: trio.testing.MockClock,
) -> None:
    cache = SeenCache(ttl_s=10, max_ids=3)
    assert cache.add(b"a")
    assert not cache.add(b"a")
    await trio.sleep(9)
    assert cache.has(b"a")
    await trio.sleep(2)
    assert not cache.has(b"a")
    for key in (b"b", b"c", b"d", b"e"):
        cache.add(key)
        assert len(cache) <= 3
    assert not cache.has(b"b")
    assert cache.has(b"e")


async def test_what_an_author_did_not_sign_is_not_passed_on() -> None:
    """Whoever verifies all bytes of a message would take it for a forgery of who passed it on."""
    author = fresh_identity()
    honest = signed(author, b"data", 1).SerializeToString()
    padded = rpc_pb2.Message.FromString(honest + b"\xfa\x7c\x90\x4e" + bytes(10_000))
    assert padded.ByteSize() > 10_000
    async with under_attack() as (_victim, friend, attacker):
        came: list[bytes] = []
        take = friend.gossip._pubsub.push_msg

        async def record(forwarder: ID, message: rpc_pb2.Message) -> None:
            came.append(message.SerializeToString())
            await take(forwarder, message)

        friend.gossip._pubsub.push_msg = record  # type: ignore[method-assign]
        await attacker.send_rpc(rpc_pb2.RPC(publish=[padded]))
        await until(lambda: b"data" in friend.received(TOPIC))
        assert came == [honest]
