"""Gossipsub without I/O: inputs with their times, and the resulting events."""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_p2p.gossip.meshes import LEAVE_BACKOFF_S, MIX_EVERY_S, PRUNE_BACKOFF_S
from shoal_p2p.gossip.rpc import Forward, JudgedMessage, SendRpc, Validate
from shoal_p2p.gossip.settings import GossipLimits, GossipSettings, MeshSettings
from shoal_p2p.reputation.scoring import Cause
from shoal_wire.types import PeerId
from shoal_wire.verdict import ACCEPT, Reason, verdict
from tests.p2p.gossip.mesh_fixture import (
    ME,
    TOPIC,
    A,
    B,
    C,
    MeshFixture,
    MeshNetwork,
    a_message,
    charges,
    forgery,
    forwarded,
    of,
    sent,
)

MANY = [PeerId(f"peer {number}") for number in range(20)]
DISTRUSTED = -20.0
IN_VAIN = verdict(Reason.BUSY)


def mesh_with(*peers: PeerId, settings: GossipSettings | None = None) -> MeshFixture:
    """Return a fixture whose mesh consists of `peers`; each of them grafts."""
    node = MeshFixture(settings)
    node.join()
    node.connect(*peers)
    for peer in peers:
        node.receive(peer, graft=[TOPIC])
    assert node.members == set(peers)
    return node


# Members


def test_a_small_mesh_grafts_new_subscribers_and_a_heartbeat_fills_it() -> None:
    node = MeshFixture()
    node.join()
    events = node.connect(*MANY)
    shape = MeshSettings()
    assert [peer for peer, _ in sent(events, "graft")] == MANY[: shape.degree_low]
    node.mesh.on_stream_closed(MANY[0])
    grafted = sent(node.heartbeat(), "graft")
    assert len(grafted) == shape.degree - shape.degree_low + 1
    assert len(node.members) == shape.degree
    assert MANY[0] not in node.members


def test_joining_grafts_up_to_the_degree_and_leaving_prunes() -> None:
    node = MeshFixture()
    node.connect(*MANY)
    joined = node.join()
    members = set(node.members)
    assert len(members) == MeshSettings().degree
    assert {peer for peer, _ in sent(joined, "subscriptions")} == set(MANY)
    left = node.mesh.leave(TOPIC, 1.0)
    assert sent(left, "subscriptions") == [(peer, (TOPIC, False)) for peer in MANY]
    assert dict(sent(left, "prune")) == dict.fromkeys(members, (TOPIC, LEAVE_BACKOFF_S))
    again = {peer for peer, _ in sent(node.mesh.join(TOPIC, 2.0), "graft")}
    assert not again & members, "their back-off lasts"


def test_a_full_mesh_prunes_the_lowest_scores() -> None:
    node = MeshFixture()
    node.join()
    node.connect(*MANY, is_dialled=True)
    for peer in MANY:
        node.receive(peer, graft=[TOPIC])
    assert node.members == set(MANY)
    degree = MeshSettings().degree
    node.scores = dict.fromkeys(MANY[degree:], -1.0)
    pruned = {peer for peer, _ in sent(node.heartbeat(), "prune")}
    assert pruned == set(MANY[degree:])
    assert node.members == set(MANY[:degree])


def test_a_peer_below_the_gossip_threshold_is_pruned_and_gets_nothing() -> None:
    node = mesh_with(A, B)
    node.scores[A] = DISTRUSTED
    assert forwarded([node.mesh.publish(a_message(author=ME), 0.0)]) == [(B, b"me/1")]
    events = node.heartbeat()
    assert sent(events, "prune") == [(A, (TOPIC, PRUNE_BACKOFF_S))]
    assert [peer for peer, _ in sent(events, "ihave")] == [B]
    assert node.members == {B}
    node.scores[C] = DISTRUSTED
    assert sent(node.connect(C), "graft") == []
    assert sent(node.receive(C, graft=[TOPIC]), "prune") == [(C, (TOPIC, PRUNE_BACKOFF_S))]
    node.scores.clear()
    receivers = forwarded([node.mesh.publish(a_message(2, author=ME), 2.0)])
    assert {peer for peer, _ in receivers} == {A, B, C}, "trusted again"


@pytest.mark.parametrize(("backoff_s", "expected_s"), [(5, 5), (2**63, 600)])
def test_a_received_back_off_is_respected_up_to_the_maximum(
    backoff_s: int, expected_s: int
) -> None:
    node = mesh_with(A)
    node.receive(A, prune=[(TOPIC, backoff_s)])
    assert node.members == set()
    assert sent(node.heartbeat(expected_s - 1), "graft") == []
    assert sent(node.heartbeat(2), "graft") == [(A, TOPIC)]


@pytest.mark.parametrize(("after_s", "excused"), [(1.0, 1), (10.0, 0)])
def test_one_graft_that_may_have_crossed_a_prune_is_excused(after_s: float, excused: int) -> None:
    node = mesh_with(A)
    node.scores[A] = DISTRUSTED
    node.heartbeat()
    node.scores[A] = 0.0
    node.now += after_s
    charged = [charges(node.receive(A, graft=[TOPIC])) for _ in range(3)]
    offence = [(A, Cause.BROKEN_BACKOFF)]
    assert charged == [[]] * excused + [offence] * (3 - excused)
    node.now = 1.0 + PRUNE_BACKOFF_S + after_s - 2.0
    assert charges(node.receive(A, graft=[TOPIC])) == [], "the ends count in whole seconds"


def test_one_graft_of_a_new_connection_into_an_older_back_off_is_excused() -> None:
    node = mesh_with(A)
    node.scores[A] = DISTRUSTED
    node.heartbeat()
    node.scores[A] = 0.0
    offence = [(A, Cause.BROKEN_BACKOFF)]
    for _ in range(3):  # it may restart any number of times
        node.now += 7.0
        node.mesh.on_stream_closed(A)
        node.mesh.on_reading_ended(A)
        node.connect(A)
        assert charges(node.receive(A, graft=[TOPIC])) == []
        assert A not in node.members, "the back-off still holds"
        assert charges(node.receive(A, graft=[TOPIC])) == offence, "it knows the back-off"


def test_restarts_are_not_charged() -> None:
    names = [f"n{n}" for n in range(10)]
    swarm = MeshNetwork(names, seed=3)
    swarm.connect_all(names, names)
    swarm.pass_time(30)
    for _ in range(20):
        swarm.restart("n0")
        for name in names[1:]:
            swarm.connect("n0", name)
        swarm.pass_time(20)
        assert swarm.members_of("n0"), "some peer grafts it"
    assert swarm.charged == []


def test_a_full_mesh_accepts_only_peers_that_this_node_dialled() -> None:
    shape = MeshSettings()
    node = mesh_with(*MANY[: shape.degree_high])
    stranger, friend = MANY[-2:]
    node.connect(stranger)
    assert sent(node.receive(stranger, graft=[TOPIC]), "prune") == [
        (stranger, (TOPIC, PRUNE_BACKOFF_S))
    ]
    node.connect(friend, is_dialled=True)
    assert sent(node.receive(friend, graft=[TOPIC]), "prune") == []
    assert node.members == {*MANY[: shape.degree_high], friend}
    member = MANY[0]
    assert sent(node.receive(member, graft=[TOPIC]), "prune") == [], "a member may graft again"


@pytest.mark.parametrize("first", ["honest", "strangers", "neither"])
@pytest.mark.parametrize("num_strangers", [20, 60])
def test_silent_unknown_peers_leave_each_mesh_an_honest_member(
    num_strangers: int, first: str
) -> None:
    """Each honest node dialled four others; each unknown peer dialled all honest nodes."""
    honest = [PeerId(f"h{n}") for n in range(20)]
    strangers = [PeerId(f"s{n}") for n in range(num_strangers)]
    swarm = MeshNetwork([*honest, *strangers], seed=5)
    for name in honest:
        swarm.nodes[name].ranks = dict.fromkeys(honest, 1.0)  # for their deliveries
    own = [(name, honest[(n + step) % 20]) for n, name in enumerate(honest) for step in FAR]
    foreign = [(stranger, name) for stranger in strangers for name in honest]
    pairs = foreign + own if first == "strangers" else own + foreign
    if first == "neither":
        random.Random(7).shuffle(pairs)
    for name, other in pairs:
        swarm.connect(name, other)
    alone = looked = 0
    for _ in range(120):
        swarm.pass_time(1)
        alone += sum(not swarm.members_of(name) & set(honest) for name in honest)
        looked += len(honest)
    assert alone <= looked / 100


FAR = (1, 3, 7, 12)


def test_of_equal_scores_the_highest_ranked_stay() -> None:
    shape = MeshSettings()
    for seed in range(10):
        node = MeshFixture(seed=seed)
        node.join()
        for peer in MANY:
            node.connect(peer, is_dialled=True)
            node.receive(peer, graft=[TOPIC])
        node.ranks = {peer: 1.0 + number for number, peer in enumerate(MANY[:9])}
        node.heartbeat()
        assert len(node.members) == shape.degree
        assert set(MANY[9 - shape.degree_score : 9]) <= node.members


def test_the_last_dialled_members_stay_and_missing_ones_are_grafted() -> None:
    shape = MeshSettings()
    node = MeshFixture()
    node.join()
    friends, strangers = MANY[:4], MANY[4:]
    node.connect(*strangers)
    node.heartbeat()
    node.ranks = dict.fromkeys(strangers, 1.0)
    node.connect(*friends, is_dialled=True)
    for _ in range(60):
        node.heartbeat()
        assert len(node.members & set(friends)) >= shape.degree_out


def test_a_new_prune_excuses_a_graft_again() -> None:
    node = mesh_with(A)
    for _ in range(2):
        node.scores[A] = DISTRUSTED
        node.heartbeat()
        node.scores[A] = 0.0
        assert charges(node.receive(A, graft=[TOPIC])) == []
        node.now += PRUNE_BACKOFF_S + 1.0
        node.receive(A, graft=[TOPIC])
        assert node.members == {A}


def test_equal_scores_do_not_fill_the_mesh() -> None:
    """Opportunistic grafting would add two random peers at each heartbeat, until all are
    members."""
    shape = MeshSettings(degree=1, degree_low=1, degree_high=5)
    node = MeshFixture(GossipSettings(mesh=shape))
    node.join()
    node.connect(*MANY)
    node.heartbeat(100)
    assert len(node.members) <= 2


@pytest.mark.parametrize("size", [4, 6, 12])
def test_halves_merge_into_one_mesh_after_a_partition(size: int) -> None:
    """Runs five seeds: in one of sixty swarms of four and four, some node waits longer."""
    linked = sum(_linked_again(size, seed) for seed in range(5))
    assert linked >= 0.95 * 5 * 2 * size


def _linked_again(size: int, seed: int) -> int:
    """Partition a swarm, reconnect it, and return how many nodes have a member from the other
    half."""
    left, right = ([f"{side}{n}" for n in range(size)] for side in "lr")
    swarm = MeshNetwork([*left, *right, "meeting"], seed=100 * seed)
    # As after a minute of partition: each half has full meshes, and one has the bootstrap peer.
    swarm.connect_all(left, left)
    swarm.connect_all([*right, "meeting"], [*right, "meeting"])
    swarm.pass_time(60)
    swarm.connect_all(left, [*right, "meeting"])
    swarm.pass_time(1.5 * MIX_EVERY_S + 2)
    sides = ((left, right), (right, left))
    return sum(bool(swarm.members_of(name) & set(far)) for near, far in sides for name in near)


def test_mixing_keeps_mesh_sizes_and_is_not_charged() -> None:
    names, shape = [f"n{n}" for n in range(24)], MeshSettings()
    swarm = MeshNetwork(names, seed=1)
    swarm.connect_all(names, names)
    swarm.pass_time(5)
    before = {name: swarm.members_of(name) for name in names}
    swarm.pass_time(300)
    sizes = {name: len(swarm.members_of(name)) for name in names}
    assert max(sizes.values()) <= shape.degree_high
    assert sum(sizes.values()) / len(sizes) < shape.degree + 1
    assert any(swarm.members_of(name) != before[name] for name in names)
    for _ in range(3):  # a node that was just pruned lacks a member until its next heartbeats
        swarm.pass_time(1)
        sizes = {name: max(size, len(swarm.members_of(name))) for name, size in sizes.items()}
    assert min(sizes.values()) >= shape.degree_low
    assert swarm.charged == []


# Subscriptions


def test_subscriptions_are_bounded() -> None:
    node = MeshFixture()
    odd = ["x" * 10_000, "bell\a", "gr\u00fc\u00dfe"]
    topics = [*odd, *(f"/t/{number}" for number in range(5000))]
    node.receive(A, subscriptions=[(topic, True) for topic in topics])
    assert list(node.mesh.topics[A]) == topics[3:515]
    node.receive(A, subscriptions=[("/t/0", False), ("/never", False), ("/t/4000", True)])
    assert node.mesh.topics[A][-1] == "/t/4000"
    assert len(node.mesh.topics[A]) == 512
    node.mesh.on_reading_ended(A)
    assert node.mesh.subscribers == {}
    assert node.mesh.topics == {}


# Messages


def test_copies_are_judged_once() -> None:
    node = mesh_with(A, B)
    events = node.receive(A, messages=[a_message()] * 8) + node.receive(B, messages=[a_message()])
    assert len(of(Validate, events)) == 1
    assert node.mesh.counts["duplicate"] == 8
    node.mesh.on_verdict(A, a_message(), verdict(Reason.TOO_OLD), node.now)
    assert of(Validate, node.receive(B, messages=[a_message()])) == []
    node.now += GossipLimits().seen_ttl_s
    assert len(of(Validate, node.receive(B, messages=[a_message()]))) == 1


def test_forgery_does_not_shut_out_the_real_message() -> None:
    node = mesh_with(A, B)
    bad = forgery(a_message())
    events = node.receive(A, messages=[bad, a_message(), bad])
    (bad_one,) = of(JudgedMessage, events)
    assert bad_one == JudgedMessage(A, None, verdict(Reason.BAD_SIGNATURE))
    assert [one.message.data for one in of(Validate, events)] == [b""]
    assert len(of(Validate, node.receive(A, messages=[forgery(a_message(2)), a_message(2)]))) == 1


def test_message_in_my_name_is_dropped() -> None:
    node = mesh_with(A, B)
    assert node.deliver(A, a_message(author=ME)) == []
    assert node.mesh.counts["own_echo"] == 1


def test_a_message_of_another_topic_is_waste() -> None:
    settings = replace(GossipLimits().flood, waste_burst=10.0)
    node = mesh_with(A, settings=GossipSettings(limits=GossipLimits(flood=settings)))
    events = node.receive(A, messages=[a_message(number, topic="/other") for number in range(12)])
    assert events == []
    pause = node.mesh.pause(A, node.now)
    assert pause is not None
    assert pause.is_to_blame


def test_own_messages_go_to_the_mesh_and_random_subscribers() -> None:
    node = MeshFixture()
    node.connect(*MANY)
    targets = node.mesh.publish_targets(TOPIC)
    assert len(set(targets)) == MeshSettings().degree
    assert targets != node.mesh.publish_targets(TOPIC), "a new random sample each time"
    node.join()
    assert set(node.mesh.publish_targets(TOPIC)) == node.members


def test_a_large_message_sends_idontwant() -> None:
    node = mesh_with(A, B, C)
    node.mesh.on_stream_opened(B, 0.0, knows_idontwant=False)
    large = a_message(author=ME, data=bytes(MeshSettings().idontwant_bytes))
    large = large._replace(author=PeerId("other"))
    assert sent(node.receive(A, messages=[large]), "idontwant") == [(C, [large.id])]
    small = a_message(2)
    node.receive(B, idontwant=[[small.id]])
    assert forwarded(node.deliver(A, small._replace(author=A))) == [(C, small.id)]


# IHAVE and IWANT


def test_ihave_skips_the_author_senders_and_peers_that_advertised_the_id() -> None:
    writer, sender, copier, advertiser, other = MANY[:5]
    node = mesh_with(*MANY[:5])
    node.deliver(sender, a_message(author=writer))
    node.deliver(copier, a_message(author=writer))
    node.receive(advertiser, ihave=[(TOPIC, [a_message(author=writer).id])])
    offers = sent(node.heartbeat(5), "ihave")
    assert offers == [(other, (TOPIC, [a_message(author=writer).id]))], "and no peer twice"


def test_in_a_large_swarm_ihave_goes_to_some_peers_outside_the_mesh() -> None:
    node = MeshFixture()
    node.join()
    node.connect(*MANY)
    node.mesh.publish(a_message(author=ME), node.now)
    offered = {peer for peer, _ in sent(node.heartbeat(), "ihave")}
    assert len(offered) == MeshSettings().degree
    assert not offered & node.members


def test_a_congested_peer_gets_no_ihave() -> None:
    node = mesh_with(A, B)
    node.mesh.publish(a_message(author=ME), node.now)
    assert [peer for peer, _ in sent(node.heartbeat(busy=[A]), "ihave")] == [B]


def test_an_advertised_message_is_requested_from_one_peer_a_second() -> None:
    node = mesh_with(A, B, C)
    offer = [(TOPIC, [b"x", b"y"])]
    assert sent(node.receive(A, ihave=offer), "iwant") == [(A, [b"x", b"y"])]
    assert sent(node.receive(B, ihave=offer), "iwant") == []
    assert sent(node.heartbeat(), "iwant") == [(B, [b"x", b"y"])]
    assert sent(node.receive(A, ihave=[("/other", [b"z"])]), "iwant") == []


def test_a_broken_promise_is_charged_once() -> None:
    node = mesh_with(A)
    node.receive(A, ihave=[(TOPIC, [b"nothing"])])
    assert charges(node.heartbeat(30)) == [(A, Cause.BROKEN_PROMISE)]


def test_a_message_dropped_under_load_breaks_no_promise() -> None:
    node = mesh_with(A)
    node.receive(A, ihave=[(TOPIC, [a_message().id])])
    node.deliver(A, a_message(), IN_VAIN)
    assert charges(node.heartbeat(30)) == []


def test_a_copy_during_validation_keeps_the_promise() -> None:
    node = mesh_with(A, B)
    node.receive(B, ihave=[(TOPIC, [a_message().id])])
    node.receive(A, messages=[a_message()])
    node.receive(B, messages=[a_message()])
    node.mesh.on_verdict(A, a_message(), IN_VAIN, node.now)
    assert charges(node.heartbeat(30)) == []


def test_ten_thousand_requests_for_a_message_yield_three() -> None:
    node = mesh_with(A)
    node.mesh.publish(a_message(author=ME), node.now)
    given = []
    for _ in range(5):
        given += node.receive(A, iwant=[[a_message(author=ME).id] * 1000] * 2)
        node.mesh.heartbeat(node.now)
    assert forwarded(given) == [(A, a_message(author=ME).id)] * 3


def test_old_messages_are_neither_advertised_nor_sent() -> None:
    node = mesh_with(A)
    node.mesh.publish(a_message(author=ME), node.now)
    node.heartbeat(5)
    assert forwarded(node.receive(A, iwant=[[a_message(author=ME).id]])) == []


# Control


HOSTILE = [
    {"ihave": [(TOPIC, [os.urandom(40) for _ in range(10_000)])]},
    {"ihave": [(TOPIC, [])] * 500},
    {"iwant": [[os.urandom(40) for _ in range(10_000)]]},
    {"idontwant": [[os.urandom(40) for _ in range(10_000)]]},
    {"graft": [f"/unknown/{number}" for number in range(500)]},
    {"prune": [(f"/unknown/{number}", 2**63) for number in range(500)]},
]


def test_hostile_control_leaves_no_trace() -> None:
    node = mesh_with(A, B)
    answers = []
    for parts in HOSTILE:
        answers.append(node.receive(A, **parts))  # type: ignore[arg-type]
        node.mesh.heartbeat(node.now)
    assert len(sent(answers[0], "iwant")[0][1]) == 4096
    assert [back_off for _, (_, back_off) in sent(answers[4], "prune")] == [PRUNE_BACKOFF_S] * 64
    assert not node.mesh._meshes._backoffs
    node.heartbeat(15)
    assert len(node.mesh._iwant) == 0
    assert node.members == {A, B}


@pytest.mark.parametrize("kind", ["ihave", "iwant", "idontwant", "graft", "prune"])
def test_control_spam_is_charged_once_between_heartbeats(kind: str) -> None:
    ids = [b"%d" % number for number in range(3000)]
    entries = {
        "ihave": [(TOPIC, ids)] * 3,
        "iwant": [ids] * 3,
        "idontwant": [ids] * 3,
        "graft": ["/unknown"] * 1000,
        "prune": [("/unknown", 1)] * 1000,
    }[kind]
    node = mesh_with(A)
    answers = [event for _ in range(6) for event in node.receive(A, **{kind: entries})]
    assert charges(answers) == [(A, Cause.CONTROL_SPAM)]
    assert of(SendRpc, node.receive(A, graft=["/unknown"])) == [], (
        "further control messages are ignored"
    )
    node.heartbeat()
    assert len(of(SendRpc, node.receive(A, graft=["/unknown"]))) == 1


# Pauses


def test_a_tiny_debt_is_waited_for_at_most_a_second() -> None:
    flood = replace(GossipLimits().flood, pace_burst=1.0, pace_per_second=1e6)
    node = mesh_with(A, settings=GossipSettings(limits=GossipLimits(flood=flood)))
    node.receive(A, messages=[a_message(number) for number in range(3)])
    pause = node.mesh.pause(A, node.now)
    assert pause is not None
    assert 0.01 <= pause.seconds <= 1.0
    assert not pause.is_to_blame
    assert node.mesh.on_pause_ended(A, pause, node.now + pause.seconds) == []


def test_waste_is_charged_by_the_second_after_a_grace_period() -> None:
    flood = replace(GossipLimits().flood, waste_burst=100.0, waste_per_second=10.0)
    node = mesh_with(A, settings=GossipSettings(limits=GossipLimits(flood=flood)))
    node.deliver(A, a_message())
    node.receive(A, messages=[a_message()] * 1000)
    charged = []
    while (pause := node.mesh.pause(A, node.now)) is not None:
        node.now += pause.seconds
        charged += charges(node.mesh.on_pause_ended(A, pause, node.now))
    assert charged == [(A, Cause.FLOOD)] * 9


@pytest.mark.parametrize("own", [True, False])
def test_expensive_messages_pause_reading_and_only_own_ones_are_charged(own: bool) -> None:
    flood = replace(GossipLimits().flood, work_per_second=2.0, grace_s=0.2)
    node = mesh_with(A, settings=GossipSettings(limits=GossipLimits(flood=flood)))
    expensive, charged = replace(ACCEPT, work_s=0.1), []
    for number in range(60):
        while (pause := node.mesh.pause(A, node.now)) is not None:
            node.now += pause.seconds
            charged += charges(node.mesh.on_pause_ended(A, pause, node.now))
        assert 0.1 * number <= flood.work_burst + 2.0 * node.now + 0.1
        node.deliver(
            A, a_message(number, author=A if own else PeerId(f"author {number}")), expensive
        )
    assert set(charged) == ({(A, Cause.FLOOD)} if own else set())


# Any input

PEERS = st.sampled_from([A, B, C])
IDS = st.sampled_from([a_message(number).id for number in range(4)])
MESSAGES = st.builds(a_message, st.integers(0, 3), author=st.sampled_from([ME, A, C]))
TOPICS = st.sampled_from([TOPIC, "/other"])
PARTS = st.fixed_dictionaries(
    {},
    optional={
        "subscriptions": st.lists(st.tuples(TOPICS, st.booleans()), max_size=3),
        "messages": st.lists(st.one_of(MESSAGES, MESSAGES.map(forgery)), max_size=4),
        "ihave": st.lists(st.tuples(TOPICS, st.lists(IDS, max_size=4)), max_size=2),
        "iwant": st.lists(st.lists(IDS, max_size=4), max_size=2),
        "graft": st.lists(TOPICS, max_size=2),
        "prune": st.lists(st.tuples(TOPICS, st.integers(0, 2**63)), max_size=2),
        "idontwant": st.lists(st.lists(IDS, max_size=4), max_size=2),
    },
)
STEPS = st.one_of(
    st.tuples(st.just("say"), PEERS, PARTS),
    st.tuples(st.just("judge"), PEERS, st.sampled_from([Reason.VALID, Reason.BUSY])),
    st.tuples(st.sampled_from(["meet", "lose", "beat", "join", "leave", "publish"]), PEERS, PEERS),
)


@settings(max_examples=120)
@given(st.lists(STEPS, max_size=40))
def test_any_input_keeps_the_invariants_of_the_mesh(steps: list) -> None:
    node, here, waiting, number = MeshFixture(), set[PeerId](), list[Validate](), 0
    for what, peer, how in steps:
        events = []
        if what == "say":
            events = node.receive(peer, **how)
        elif what == "judge" and waiting:
            one = waiting.pop()
            events = node.mesh.on_verdict(one.peer, one.message, verdict(how), node.now)
        elif what == "meet":
            here.add(peer)
            events = node.mesh.on_stream_opened(peer, node.now)
        elif what == "lose":
            here.discard(peer)
            node.mesh.on_stream_closed(peer)
            node.mesh.on_reading_ended(peer)
        elif what == "beat":
            events = node.heartbeat()
        elif what == "publish":
            number += 1
            events = [node.mesh.publish(a_message(number, author=ME), node.now)]
        else:
            events = (node.join if what == "join" else lambda: node.mesh.leave(TOPIC, node.now))()
        waiting += of(Validate, events)
        keys = [one.message.id for one in waiting]
        assert len(set(keys)) == len(keys), "no message is validated twice at once"
        if what in ("beat", "join"):
            assert {send.peer for send in of(SendRpc, events)} <= here
        if what == "beat":
            assert node.members <= here
        assert all(one.frame.signed != "forged" for one in of(Forward, events))
