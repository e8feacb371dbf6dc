"""Both gossips implement `gossip.interface.Gossip`: topics, publishing and meshes."""

from __future__ import annotations

import pytest

from shoal_p2p.gossip.interface import OversizeError
from shoal_p2p.gossip.settings import GossipLimits, GossipSettings, MeshSettings
from shoal_wire.verdict import Reason
from tests.conformance.talkers import Talker, connect, mesh
from tests.conformance.worlds import World
from tests.support.nodes import until

TOPIC = "/shoal/test/0"
OTHER = "/shoal/test/1"


async def sees(one: Talker, other: Talker, *topics: str) -> None:
    """Wait until `one` knows the subscriptions of `other`."""
    await until(lambda: set(one.gossip.peer_topics(other.peer_id)) == set(topics))


# Subscriptions


async def test_who_subscribes_is_seen_and_who_leaves_is_not(world: World) -> None:
    one, two, three = await world.talkers(3)
    assert one.gossip.topics() == ()
    assert one.gossip.subscriptions() == {}
    await two.join(TOPIC)
    await three.join(TOPIC)
    await three.join(OTHER)
    assert set(three.gossip.topics()) == {TOPIC, OTHER}
    await sees(one, two, TOPIC)
    await sees(one, three, TOPIC, OTHER)
    assert set(one.gossip.topic_peers(TOPIC)) == {two.peer_id, three.peer_id}
    assert one.gossip.topic_peers(OTHER) == (three.peer_id,)
    subscribed = {peer_id: set(topics) for peer_id, topics in one.gossip.subscriptions().items()}
    assert subscribed == {two.peer_id: {TOPIC}, three.peer_id: {TOPIC, OTHER}}
    assert one.gossip.topics() == (), "what others hear is not what one hears oneself"
    assert two.peer_id not in two.gossip.topic_peers(TOPIC)
    await three.gossip.unsubscribe(TOPIC)
    await three.gossip.unsubscribe("/never/joined")
    assert three.gossip.topics() == (OTHER,)
    await sees(one, three, OTHER)
    assert one.gossip.topic_peers(TOPIC) == (two.peer_id,)
    await three.gossip.unsubscribe(OTHER)
    await sees(one, three)
    assert one.gossip.subscriptions() == {two.peer_id: (TOPIC,)}


async def test_a_subscription_is_of_a_connection(world: World) -> None:
    one, two = await world.talker(), await world.talker()
    await two.join(TOPIC)
    assert one.gossip.topic_peers(TOPIC) == ()
    await one.dial(two)
    await sees(one, two, TOPIC)
    await one.host.disconnect(two.peer_id)
    await sees(one, two)
    assert one.gossip.subscriptions() == {}
    assert one.gossip.topic_peers(TOPIC) == ()
    await until(lambda: not two.host.connections())
    await two.dial(one)
    await sees(one, two, TOPIC)


async def test_a_host_without_gossip_is_subscribed_to_nothing(world: World) -> None:
    one, mute = await world.talker(), await world.host()
    await one.join(TOPIC)
    await connect(mute, one.host)
    assert await one.say(TOPIC, b"hello") == 0
    await world.rest()
    assert one.gossip.peer_topics(mute.peer_id) == ()
    assert one.host.is_connected(mute.peer_id)


# Publishing


async def test_every_subscriber_hears_once_and_the_author_never(world: World) -> None:
    talkers = await world.talkers(4)
    await mesh(TOPIC, *talkers)
    author, others = talkers[0], talkers[1:]
    assert await author.say(TOPIC, b"one") == 3
    assert await author.say(TOPIC, b"one") == 3, "the same words again are another message"
    await until(lambda: all(len(other.received) == 2 for other in others))
    await world.rest()
    assert author.received == []
    assert author.watch.verdicts == []
    members = {talker.peer_id for talker in talkers}
    for other in others:
        assert other.received == [b"one", b"one"]
        for delivery in other.deliveries:
            assert delivery.author == author.peer_id
            assert delivery.forwarder in members - {other.peer_id}


async def test_publishing_without_peers_is_reported(world: World) -> None:
    one, two = await world.talkers(2)
    await one.join(TOPIC)
    assert await one.say(TOPIC, b"anybody?") == 0
    await two.join(OTHER)
    await sees(one, two, OTHER)
    assert await one.say(TOPIC, b"anybody?") == 0
    assert await one.say(OTHER, b"you!") == 1
    await until(lambda: two.received)
    assert two.received == [b"you!"]
    assert one.received == []


async def test_who_is_not_subscribed_may_publish_and_hears_nothing(world: World) -> None:
    outside, two, three = await world.talkers(3)
    await mesh(TOPIC, two, three)
    await sees(outside, two, TOPIC)
    await sees(outside, three, TOPIC)
    assert await outside.say(TOPIC, b"from outside") == 2
    await until(lambda: two.received and three.received)
    assert await two.say(TOPIC, b"from inside") == 1
    await until(lambda: b"from inside" in three.received)
    await world.rest()
    assert outside.received == []
    assert outside.count("received") == 0
    assert outside.gossip.topics() == ()
    assert (two.received, three.received) == ([b"from outside"], [b"from outside", b"from inside"])


async def test_the_longest_message_arrives_and_a_longer_one_is_refused(world: World) -> None:
    settings = GossipSettings(limits=GossipLimits(max_message_bytes=1000))
    one, two = await world.talkers(2, settings)
    await mesh(TOPIC, one, two)
    with pytest.raises(OversizeError):
        await one.say(TOPIC, bytes(1001))
    assert await one.say(TOPIC, bytes(1000)) == 1
    await until(lambda: two.received == [bytes(1000)])


async def test_many_hear_what_is_sent_to_few(world: World) -> None:
    # With a target of 2, all others may prune one peer, which then waits for a minute.
    narrow = MeshSettings(degree=3, degree_low=2, degree_high=4, degree_out=1, heartbeat_s=0.1)
    talkers = await world.talkers(6, GossipSettings(mesh=narrow))
    for talker in talkers:
        await talker.join(TOPIC)
    await until(lambda: len(talkers[0].gossip.topic_peers(TOPIC)) == 5)
    await until(lambda: all(1 <= len(talker.members(TOPIC)) <= 4 for talker in talkers))
    assert 1 <= await talkers[0].say(TOPIC, b"pass it on") < 5
    await until(lambda: all(talker.received for talker in talkers[1:]))
    await world.rest()
    assert all(talker.received == [b"pass it on"] for talker in talkers[1:])


# Leaving


async def test_leaving_ends_delivery_and_returning_begins_it_again(world: World) -> None:
    one, two = await world.talkers(2)
    await mesh(TOPIC, one, two)
    assert await one.say(TOPIC, b"before") == 1
    await until(lambda: two.received == [b"before"])
    await two.gossip.unsubscribe(TOPIC)
    await one.say(TOPIC, b"meanwhile")
    await sees(one, two)
    assert await one.say(TOPIC, b"after") == 0
    await world.rest()
    assert two.received == [b"before"]
    assert set(two.reasons[1:]) <= {Reason.LEFT_TOPIC}
    assert two.gossip.mesh() == {}
    await two.join(TOPIC)
    await sees(one, two, TOPIC)
    assert await one.say(TOPIC, b"again") == 1
    await until(lambda: b"again" in two.received)


# Repair


async def test_a_new_peer_is_offered_recent_messages(world: World) -> None:
    settings = GossipSettings(mesh=MeshSettings(heartbeat_s=0.5))
    one, two, late = await world.talkers(3, settings)
    await mesh(TOPIC, one, two)
    assert await one.say(TOPIC, b"message") == 1
    await late.join(TOPIC)
    await until(lambda: late.received == [b"message"])
    assert {d.author for d in late.deliveries} == {one.peer_id}
    await world.rest()
    assert late.count("received") == 1, "one of the peers that offer it gets the request"


# Meshes


async def test_a_mesh_knows_its_members_and_their_ages(world: World) -> None:
    one, old, young = await world.talkers(3)
    await mesh(TOPIC, one, old)
    assert list(one.gossip.mesh()) == [TOPIC]
    (member,) = one.gossip.mesh()[TOPIC]
    assert member.peer_id == old.peer_id
    assert 0 <= member.since_s < 20
    await until(lambda: one.gossip.mesh()[TOPIC][0].since_s > member.since_s + 0.1)
    await young.join(TOPIC)
    await until(lambda: len(one.members(TOPIC)) == 2)
    assert [m.peer_id for m in one.gossip.mesh()[TOPIC]] == [old.peer_id, young.peer_id]
    ages = [m.since_s for m in one.gossip.mesh()[TOPIC]]
    assert ages[0] > ages[1] >= 0
    await old.gossip.unsubscribe(TOPIC)
    await until(lambda: one.members(TOPIC) == {young.peer_id})
    await young.host.close()
    await until(lambda: one.gossip.mesh() == {TOPIC: []})
    await one.gossip.unsubscribe(TOPIC)
    assert one.gossip.mesh() == {}


# Counters


async def test_the_counters_say_what_has_happened(world: World) -> None:
    first, middle, last = await world.chain()
    for talker in (first, middle, last):
        before = talker.gossip.stats()
        assert not any(before.pubsub.values())
        assert not any(before.verdicts.values())
    await mesh(TOPIC, first, middle, last)
    for data in (b"one", b"two"):
        await first.say(TOPIC, data)
    await until(lambda: len(last.received) == 2)
    await until(lambda: last.count("forwarded") == 2)
    stats = [talker.gossip.stats() for talker in (first, middle, last)]
    assert [s.verdicts.get(Reason.VALID, 0) for s in stats] == [0, 2, 2]
    for name, counts in {
        "received": [0, 2, 2],
        "forwarded": [0, 2, 2],
        "duplicate": [0, 0, 0],
        "own_echo": [0, 0, 0],
        "unknown_topic": [0, 0, 0],
        "malformed_rpc": [0, 0, 0],
        "fault": [0, 0, 0],
        "publish_skipped": [0, 0, 0],
        "read_paused": [0, 0, 0],
    }.items():
        assert [s.pubsub.get(name, 0) for s in stats] == counts, name
