"""Gossip between real nodes: everything arrives, once, and verdicts decide what travels on."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial

import pytest
import trio

from p2p.gossip.gossip import GossipSettings
from p2p.gossip.interface import OversizeError
from p2p.gossip.pubsub import PubsubLimits
from p2p.gossip.scorer import MeshSettings
from shoal_wire.types import PeerId
from shoal_wire.verdict import ACCEPT, Outcome, Reason, Verdict, verdict
from tests.support.nodes import (
    TestNode,
    connect_all,
    fresh_identity,
    is_meshed,
    join,
    open_test_node,
    open_test_swarm,
    until,
)

TOPIC = "/shoal/test"


def numbered(count: int, size: int = 1000) -> list[bytes]:
    return [n.to_bytes(4, "big") + bytes(size - 4) for n in range(count)]


async def all_receive(nodes: list[TestNode], messages: list[bytes]) -> None:
    await until(lambda: all(len(node.received(TOPIC)) >= len(messages) for node in nodes))
    for node in nodes:
        assert sorted(node.received(TOPIC)) == sorted(messages), "each exactly once"


# Nothing is lost


async def test_four_nodes_form_a_full_mesh_and_hear_everything() -> None:
    async with open_test_swarm(4) as nodes:
        await join(nodes, TOPIC)
        messages = numbered(40)
        for index, message in enumerate(messages):
            assert await nodes[index % 4].gossip.publish(TOPIC, message) == 3
        for index, node in enumerate(nodes):
            own = set(messages[index::4])
            expected = [message for message in messages if message not in own]
            await until(lambda n=node, e=expected: len(n.received(TOPIC)) >= len(e))  # type: ignore[misc]
            assert sorted(node.received(TOPIC)) == sorted(expected)
            assert {delivery.author for delivery in node.deliveries[TOPIC]} == {
                other.peer_id for other in nodes if other is not node
            }


async def test_a_message_is_no_task_of_the_librarys_manager() -> None:
    """It would give each a row, a name and an id: a twentieth of what a message costs."""
    async with open_test_swarm(2) as (one, two):
        await join([one, two], TOPIC)
        manager = two.gossip._pubsub.manager
        before = manager.stats.tasks.total_count
        messages = numbered(20)
        for message in messages:
            await one.gossip.publish(TOPIC, message)
        await until(lambda: sorted(two.received(TOPIC)) == sorted(messages))
        assert manager.stats.tasks.total_count - before < len(messages)


async def test_thirty_messages_a_second_all_arrive() -> None:
    async with open_test_swarm(2) as nodes:
        await join(nodes, TOPIC)
        messages = numbered(60)
        for message in messages:
            await nodes[0].gossip.publish(TOPIC, message)
            await trio.sleep(1 / 30)  # the rate that spam protection would cut to a third
        await all_receive(nodes[1:], messages)


async def test_tight_publish_loop_loses_nothing() -> None:
    async with open_test_swarm(3) as nodes:
        await join(nodes, TOPIC)
        messages = numbered(400)
        for message in messages:
            await nodes[0].gossip.publish(TOPIC, message)
        await all_receive(nodes[1:], messages)
        assert nodes[0].gossip.stats().pubsub["publish_skipped"] == 0


async def test_a_message_is_offered_to_a_peer_at_most_once() -> None:
    async with open_test_swarm(4) as nodes:
        offered: list[tuple[int, str, bytes]] = []
        for number, node in enumerate(nodes):
            router = node.gossip._router
            heed = router.handle_ihave

            async def note(offer, sender, number=number, heed=heed):  # type: ignore[no-untyped-def]
                offered.extend((number, str(sender), key) for key in offer.messageIDs)
                await heed(offer, sender)

            router.handle_ihave = note  # type: ignore[method-assign]
        await join(nodes, TOPIC)
        for message in numbered(5):
            await nodes[0].gossip.publish(TOPIC, message)
        caches = [node.gossip._router.mcache._frames for node in nodes]
        await until(lambda: all(len(cache) == 5 for cache in caches))
        await until(lambda: not any(caches), patience_s=20)
        assert offered, "or nothing mends what a busy validator dropped"
        assert len(set(offered)) == len(offered)


async def test_publish_waits_for_room_instead_of_dropping() -> None:
    limits = PubsubLimits(max_queue_frames=2, max_queue_bytes=150_000)
    settings = GossipSettings(limits=limits, mesh=MeshSettings(heartbeat_s=0.2))
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
                await until(lambda p=publisher: p.gossip.topic_peers(TOPIC))  # type: ignore[misc]
                for message in part:
                    assert await publisher.gossip.publish(TOPIC, message) == 1
                await until(lambda p=part: p[-1] in listener.received(TOPIC))  # type: ignore[misc]
        await all_receive([listener], messages)


async def test_joining_a_topic_of_large_messages_harms_nobody() -> None:
    messages = numbered(30, size=100_000)
    async with AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(open_test_swarm(2))
        await join(nodes, TOPIC)
        for index, message in enumerate(messages):
            await nodes[0].gossip.publish(TOPIC, message)
            if index in (10, 20):
                joiner = await stack.enter_async_context(open_test_node())
                nodes.append(joiner)
                await joiner.host.dial(nodes[0].address)
                await joiner.subscribe(TOPIC)
        # Gossip keeps no order, so the last one published need not be the last to arrive.
        await until(lambda: all(messages[-1] in node.received(TOPIC) for node in nodes[1:]))
        await all_receive([nodes[1]], messages)
        for node in nodes:
            assert not node.gossip.stats().pubsub.get("malformed_rpc")
            assert len(node.host.connections()) >= 1


async def test_largest_message_passes_and_a_larger_one_is_refused() -> None:
    async with open_test_swarm(2) as nodes:
        await join(nodes, TOPIC)
        message = bytes(1_000_000)
        assert await nodes[0].gossip.publish(TOPIC, message) == 1
        await all_receive(nodes[1:], [message])
        with pytest.raises(OversizeError):
            await nodes[0].gossip.publish(TOPIC, message + b"x")


async def test_publishing_to_nobody_says_so() -> None:
    async with open_test_node() as node:
        await node.subscribe(TOPIC)
        assert await node.gossip.publish(TOPIC, b"anybody?") == 0
        assert node.received(TOPIC) == []


async def test_message_dropped_by_overload_is_repaired() -> None:
    """In a mesh of two there is no other copy: only the offer at the heartbeat brings it back."""
    busy = True

    async def validate(data: bytes, author: PeerId, forwarder: PeerId) -> Verdict:
        if busy:
            return verdict(Reason.BUSY)
        received.append(data)
        return ACCEPT

    received: list[bytes] = []
    settings = GossipSettings(mesh=MeshSettings(heartbeat_s=0.2))
    async with open_test_swarm(2, settings=settings) as (one, two):
        await connect_all([one, two])
        await one.subscribe(TOPIC)
        await two.gossip.subscribe(TOPIC, validate)
        await until(lambda: one.gossip.mesh()[TOPIC] and two.gossip.mesh()[TOPIC])
        for message in (b"again please", b"and again", b"and again!"):
            busy = True
            refused = two.gossip.stats().verdicts.get(Reason.BUSY, 0)
            await one.gossip.publish(TOPIC, message)
            await until(
                lambda n=refused: two.gossip.stats().verdicts.get(Reason.BUSY, 0) > n  # type: ignore[misc]
            )
            busy = False
            await until(lambda m=message: received[-1:] == [m])  # type: ignore[misc]
        assert len(received) == 3


async def test_congestion_is_not_answered_with_offers() -> None:
    """Messages that wait in a queue must not be offered too: each would be sent up to 4 times."""
    settings = GossipSettings(mesh=MeshSettings(heartbeat_s=0.05))
    async with open_test_swarm(2, settings=settings) as nodes:
        await join(nodes, TOPIC)
        messages = numbered(150, size=20_000)
        for message in messages:
            await nodes[0].gossip.publish(TOPIC, message)
        await all_receive(nodes[1:], messages)
        assert nodes[1].gossip.stats().pubsub.get("duplicate", 0) <= 10


# Verdicts


@pytest.mark.parametrize(
    ("reason", "travels"),
    [(Reason.VALID, True), (Reason.DUPLICATE, False), (Reason.BAD_FIELD, False)],
)
async def test_only_accepted_messages_travel_on(reason: Reason, travels: bool) -> None:
    async with open_test_swarm(3) as nodes:
        first, middle, last = nodes
        await middle.host.dial(first.address)
        await last.host.dial(middle.address)
        for node in nodes:
            await node.subscribe(TOPIC)
        middle.judge = verdict(reason)
        await until(lambda: len(middle.gossip.mesh()[TOPIC]) == 2)
        await first.gossip.publish(TOPIC, b"judge me")
        await until(lambda: middle.verdicts)
        assert middle.verdicts == [(first.peer_id, first.peer_id, verdict(reason))]
        middle.judge = ACCEPT
        await middle.gossip.publish(TOPIC, b"marker")
        await until(lambda: b"marker" in last.received(TOPIC))
        assert (b"judge me" in last.received(TOPIC)) is travels
        if travels:
            (delivery,) = [d for d in last.deliveries[TOPIC] if d.data == b"judge me"]
            assert (delivery.author, delivery.forwarder) == (first.peer_id, middle.peer_id)


async def test_validator_that_raises_is_contained_and_counted() -> None:
    async def broken(data: bytes, author: PeerId, forwarder: PeerId) -> Verdict:
        raise RuntimeError("validator bug")

    async with open_test_swarm(2) as (one, two):
        await connect_all([one, two])
        await one.subscribe(TOPIC)
        await two.gossip.subscribe(TOPIC, broken)
        await until(lambda: one.gossip.mesh()[TOPIC])
        await one.gossip.publish(TOPIC, b"x")
        await until(lambda: two.verdicts)
        assert two.verdicts[0][2] == verdict(Reason.VALIDATOR_FAULT)
        assert two.verdicts[0][2].outcome is Outcome.IGNORE
        await two.gossip.unsubscribe(TOPIC)
        await two.subscribe(TOPIC)
        await until(lambda: one.gossip.mesh()[TOPIC])
        await one.gossip.publish(TOPIC, b"y")
        await until(lambda: b"y" in two.received(TOPIC))


async def test_slow_validator_is_cut_short_without_blame() -> None:
    async def stuck(data: bytes, author: PeerId, forwarder: PeerId) -> Verdict:
        await trio.sleep_forever()
        raise AssertionError

    async with (
        open_test_node() as one,
        open_test_node(settings=GossipSettings(validator_deadline_s=0.1)) as two,
    ):
        await connect_all([one, two])
        await one.subscribe(TOPIC)
        await two.gossip.subscribe(TOPIC, stuck)
        await until(lambda: one.gossip.mesh()[TOPIC])
        await one.gossip.publish(TOPIC, b"x")
        await until(lambda: two.verdicts)
        assert two.verdicts[0][2] == verdict(Reason.BUSY)


async def test_own_messages_are_neither_judged_nor_delivered() -> None:
    async with open_test_swarm(3) as nodes:
        await join(nodes, TOPIC)
        await nodes[0].gossip.publish(TOPIC, b"mine")
        await all_receive(nodes[1:], [b"mine"])
        await nodes[1].gossip.publish(TOPIC, b"marker")
        await until(lambda: b"marker" in nodes[0].received(TOPIC))
        assert nodes[0].received(TOPIC) == [b"marker"]


# Score and mesh


async def test_a_bad_score_ends_membership_and_silences() -> None:
    settings = GossipSettings(mesh=MeshSettings(heartbeat_s=0.1))
    async with open_test_swarm(3, settings=settings) as nodes:
        good, bad, judge = nodes
        await join(nodes, TOPIC)
        judge.watch.score_of = lambda peer: -100.0 if peer == bad.peer_id else 0.0
        await until(lambda: [m.peer_id for m in judge.gossip.mesh()[TOPIC]] == [good.peer_id])
        good.judge = verdict(Reason.DUPLICATE)  # nothing of bad's comes round by good
        await bad.gossip.publish(TOPIC, b"spam")
        await until(lambda: b"spam" in good.received(TOPIC))
        await good.gossip.publish(TOPIC, b"news")
        await until(lambda: b"news" in judge.received(TOPIC))
        assert judge.received(TOPIC) == [b"news"]
        assert bad.received(TOPIC) == [b"news"]


async def test_score_function_that_raises_counts_as_neutral() -> None:
    async with open_test_swarm(2) as nodes:
        nodes[0].watch.score_of = lambda peer: 1 / 0
        await join(nodes, TOPIC)
        await nodes[0].gossip.publish(TOPIC, b"x")
        await all_receive(nodes[1:], [b"x"])


async def test_mesh_says_since_when_and_forgets_the_gone() -> None:
    settings = GossipSettings(mesh=MeshSettings(heartbeat_s=0.1))
    async with open_test_node(settings=settings) as stays:
        async with open_test_node(settings=settings) as leaves:
            await join([stays, leaves], TOPIC)
            (member,) = stays.gossip.mesh()[TOPIC]
            age = member.since_s
            assert member.peer_id == leaves.peer_id
            await until(lambda: stays.gossip.mesh()[TOPIC][0].since_s > age)
            assert stays.gossip.topic_peers(TOPIC) == (leaves.peer_id,)
            assert stays.gossip.peer_topics(leaves.peer_id) == (TOPIC,)
            await leaves.gossip.unsubscribe(TOPIC)
            await until(lambda: not stays.gossip.topic_peers(TOPIC))
            assert stays.gossip.mesh() == {TOPIC: []}
        await until(lambda: not stays.host.connections())
        assert stays.gossip.topics() == (TOPIC,)


async def test_equal_scores_do_not_fill_the_mesh() -> None:
    """Opportunistic grafting adds two random peers at each heartbeat, up to everybody."""
    settings = GossipSettings(
        mesh=MeshSettings(degree=1, degree_low=1, degree_high=5, heartbeat_s=0.05)
    )
    async with open_test_swarm(6, settings=settings) as nodes:
        router = nodes[0].gossip._router
        beats = 0
        shift = router.mcache.shift

        def count_beats() -> None:
            nonlocal beats
            beats += 1
            shift()

        await connect_all(nodes)
        for node in nodes:
            await node.subscribe(TOPIC)
        await until(lambda: all(node.gossip.mesh()[TOPIC] for node in nodes))
        router.mcache.shift = count_beats  # type: ignore[method-assign]
        await until(lambda: beats > 10)
        num_ends = sum(len(node.gossip.mesh()[TOPIC]) for node in nodes)
        assert num_ends <= 2 * len(nodes), "each grafts one; fifteen pairs would be 30 ends"


async def test_broken_stream_heals_with_its_subscriptions() -> None:
    """A stream that dies on a living connection must not leave one end deaf."""
    async with open_test_swarm(2) as nodes:
        one, two = nodes
        await join(nodes, TOPIC)
        pubsub = one.gossip._pubsub
        (stream,) = pubsub.peers.values()
        await stream.reset()
        await one.gossip.publish(TOPIC, b"into the void")
        await until(lambda: not one.host.connections())
        await two.host.dial(one.address)
        await until(lambda: all(is_meshed(node, nodes, TOPIC) for node in nodes))
        for sender, receiver in ((one, two), (two, one)):
            await sender.gossip.publish(TOPIC, b"again")
            await until(partial(_has, receiver, b"again"))


def _has(node: TestNode, data: bytes) -> bool:
    return data in node.received(TOPIC)
