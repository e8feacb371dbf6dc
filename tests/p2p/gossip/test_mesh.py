"""Gossipsub by itself: what comes in, at which time, and what comes out."""

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
from tests.p2p.gossip.bench import (
    ME,
    TOPIC,
    A,
    B,
    Bench,
    C,
    Swarm,
    charges,
    forgery,
    forwarded,
    of,
    said,
    sent,
)

MANY = [PeerId(f"peer {number}") for number in range(20)]
DISTRUSTED = -20.0
IN_VAIN = verdict(Reason.BUSY)


def meshed(*peers: PeerId, settings: GossipSettings | None = None) -> Bench:
    """Return a bench whose mesh is `peers`, each of which grafts."""
    bench = Bench(settings)
    bench.join()
    bench.meet(*peers)
    for peer in peers:
        bench.say(peer, graft=[TOPIC])
    assert bench.members == set(peers)
    return bench


# Members


def test_a_small_mesh_grafts_who_subscribes_and_a_heartbeat_fills_it() -> None:
    bench = Bench()
    bench.join()
    events = bench.meet(*MANY)
    shape = MeshSettings()
    assert [peer for peer, _ in sent(events, "graft")] == MANY[: shape.degree_low]
    bench.mesh.closed(MANY[0])
    grafted = sent(bench.beat(), "graft")
    assert len(grafted) == shape.degree - shape.degree_low + 1
    assert len(bench.members) == shape.degree
    assert MANY[0] not in bench.members


def test_who_joins_late_grafts_up_to_the_degree_and_who_leaves_prunes() -> None:
    bench = Bench()
    bench.meet(*MANY)
    joined = bench.join()
    members = set(bench.members)
    assert len(members) == MeshSettings().degree
    assert {peer for peer, _ in sent(joined, "subscriptions")} == set(MANY)
    left = bench.mesh.leave(TOPIC, 1.0)
    assert sent(left, "subscriptions") == [(peer, (TOPIC, False)) for peer in MANY]
    assert dict(sent(left, "prune")) == dict.fromkeys(members, (TOPIC, LEAVE_BACKOFF_S))
    again = {peer for peer, _ in sent(bench.mesh.join(TOPIC, 2.0), "graft")}
    assert not again & members, "their back-off lasts"


def test_a_full_mesh_prunes_the_lowest_scores() -> None:
    bench = Bench()
    bench.join()
    bench.meet(*MANY, is_dialled=True)
    for peer in MANY:
        bench.say(peer, graft=[TOPIC])
    assert bench.members == set(MANY)
    degree = MeshSettings().degree
    bench.scores = dict.fromkeys(MANY[degree:], -1.0)
    pruned = {peer for peer, _ in sent(bench.beat(), "prune")}
    assert pruned == set(MANY[degree:])
    assert bench.members == set(MANY[:degree])


def test_who_is_distrusted_is_pruned_refused_and_told_nothing() -> None:
    bench = meshed(A, B)
    bench.scores[A] = DISTRUSTED
    assert forwarded([bench.mesh.publish(said(author=ME), 0.0)]) == [(B, b"me/1")]
    events = bench.beat()
    assert sent(events, "prune") == [(A, (TOPIC, PRUNE_BACKOFF_S))]
    assert [peer for peer, _ in sent(events, "ihave")] == [B]
    assert bench.members == {B}
    bench.scores[C] = DISTRUSTED
    assert sent(bench.meet(C), "graft") == []
    assert sent(bench.say(C, graft=[TOPIC]), "prune") == [(C, (TOPIC, PRUNE_BACKOFF_S))]
    bench.scores.clear()
    told = forwarded([bench.mesh.publish(said(2, author=ME), 2.0)])
    assert {peer for peer, _ in told} == {A, B, C}, "trusted again"


@pytest.mark.parametrize(("told_s", "kept_s"), [(5, 5), (2**63, 600)])
def test_who_is_pruned_grafts_after_the_back_off_it_was_told_if_that_ends(
    told_s: int, kept_s: int
) -> None:
    bench = meshed(A)
    bench.say(A, prune=[(TOPIC, told_s)])
    assert bench.members == set()
    assert sent(bench.beat(kept_s - 1), "graft") == []
    assert sent(bench.beat(2), "graft") == [(A, TOPIC)]


@pytest.mark.parametrize(("after_s", "excused"), [(1.0, 1), (10.0, 0)])
def test_one_graft_that_may_have_crossed_a_prune_is_excused(after_s: float, excused: int) -> None:
    bench = meshed(A)
    bench.scores[A] = DISTRUSTED
    bench.beat()
    bench.scores[A] = 0.0
    bench.now += after_s
    charged = [charges(bench.say(A, graft=[TOPIC])) for _ in range(3)]
    offence = [(A, Cause.BROKEN_BACKOFF)]
    assert charged == [[]] * excused + [offence] * (3 - excused)
    bench.now = 1.0 + PRUNE_BACKOFF_S + after_s - 2.0
    assert charges(bench.say(A, graft=[TOPIC])) == [], "the ends count in whole seconds"


def test_one_graft_of_a_new_connection_into_an_older_back_off_is_excused() -> None:
    bench = meshed(A)
    bench.scores[A] = DISTRUSTED
    bench.beat()
    bench.scores[A] = 0.0
    offence = [(A, Cause.BROKEN_BACKOFF)]
    for _ in range(3):  # it may be started again any number of times
        bench.now += 7.0
        bench.mesh.closed(A)
        bench.mesh.unreads(A)
        bench.meet(A)
        assert charges(bench.say(A, graft=[TOPIC])) == []
        assert A not in bench.members, "and yet it waits"
        assert charges(bench.say(A, graft=[TOPIC])) == offence, "it was told"


def test_restarts_alone_cost_nobody_anything() -> None:
    names = [f"n{n}" for n in range(10)]
    swarm = Swarm(names, seed=3)
    swarm.connect_all(names, names)
    swarm.pass_time(30)
    for _ in range(20):
        swarm.restart("n0")
        for name in names[1:]:
            swarm.connect("n0", name)
        swarm.pass_time(20)
        assert swarm.mesh_of("n0"), "somebody takes it in"
    assert swarm.charged == []


def test_a_full_mesh_takes_in_only_whom_this_node_dialled() -> None:
    shape = MeshSettings()
    bench = meshed(*MANY[: shape.degree_high])
    stranger, friend = MANY[-2:]
    bench.meet(stranger)
    assert sent(bench.say(stranger, graft=[TOPIC]), "prune") == [
        (stranger, (TOPIC, PRUNE_BACKOFF_S))
    ]
    bench.meet(friend, is_dialled=True)
    assert sent(bench.say(friend, graft=[TOPIC]), "prune") == []
    assert bench.members == {*MANY[: shape.degree_high], friend}
    member = MANY[0]
    assert sent(bench.say(member, graft=[TOPIC]), "prune") == [], "who is in says so again"


@pytest.mark.parametrize("first", ["honest", "strangers", "nobody"])
@pytest.mark.parametrize("num_strangers", [20, 60])
def test_silent_strangers_leave_no_node_without_an_honest_member(
    num_strangers: int, first: str
) -> None:
    """Each honest node has dialled four others, each stranger all of the honest ones."""
    honest = [PeerId(f"h{n}") for n in range(20)]
    strangers = [PeerId(f"s{n}") for n in range(num_strangers)]
    swarm = Swarm([*honest, *strangers], seed=5)
    for name in honest:
        swarm.benches[name].ranks = dict.fromkeys(honest, 1.0)  # for what each has brought
    own = [(name, honest[(n + step) % 20]) for n, name in enumerate(honest) for step in FAR]
    foreign = [(stranger, name) for stranger in strangers for name in honest]
    pairs = foreign + own if first == "strangers" else own + foreign
    if first == "nobody":
        random.Random(7).shuffle(pairs)
    for name, other in pairs:
        swarm.connect(name, other)
    alone = looked = 0
    for _ in range(120):
        swarm.pass_time(1)
        alone += sum(not swarm.mesh_of(name) & set(honest) for name in honest)
        looked += len(honest)
    assert alone <= looked / 100


FAR = (1, 3, 7, 12)


def test_of_equal_scores_those_stay_that_brought_most() -> None:
    shape = MeshSettings()
    for seed in range(10):
        bench = Bench(seed=seed)
        bench.join()
        for peer in MANY:
            bench.meet(peer, is_dialled=True)
            bench.say(peer, graft=[TOPIC])
        bench.ranks = {peer: 1.0 + number for number, peer in enumerate(MANY[:9])}
        bench.beat()
        assert len(bench.members) == shape.degree
        assert set(MANY[9 - shape.degree_score : 9]) <= bench.members


def test_of_the_last_members_that_a_node_dialled_none_is_pruned_and_missing_ones_are_grafted() -> (
    None
):
    shape = MeshSettings()
    bench = Bench()
    bench.join()
    friends, strangers = MANY[:4], MANY[4:]
    bench.meet(*strangers)
    bench.beat()
    bench.ranks = dict.fromkeys(strangers, 1.0)
    bench.meet(*friends, is_dialled=True)
    for _ in range(60):
        bench.beat()
        assert len(bench.members & set(friends)) >= shape.degree_out


def test_a_new_prune_excuses_a_graft_again() -> None:
    bench = meshed(A)
    for _ in range(2):
        bench.scores[A] = DISTRUSTED
        bench.beat()
        bench.scores[A] = 0.0
        assert charges(bench.say(A, graft=[TOPIC])) == []
        bench.now += PRUNE_BACKOFF_S + 1.0
        bench.say(A, graft=[TOPIC])
        assert bench.members == {A}


def test_equal_scores_do_not_fill_the_mesh() -> None:
    """Opportunistic grafting would add two random peers at each heartbeat, up to everybody."""
    shape = MeshSettings(degree=1, degree_low=1, degree_high=5)
    bench = Bench(GossipSettings(mesh=shape))
    bench.join()
    bench.meet(*MANY)
    bench.beat(100)
    assert len(bench.members) <= 2


@pytest.mark.parametrize("size", [4, 6, 12])
def test_halves_that_meet_again_become_one_mesh(size: int) -> None:
    """Five times over: in one of sixty swarms of four and four somebody has to wait longer."""
    linked = sum(_linked_again(size, seed) for seed in range(5))
    assert linked >= 0.95 * 5 * 2 * size


def _linked_again(size: int, seed: int) -> int:
    """Part two halves, let them meet, and return how many have one of the other in their mesh."""
    left, right = ([f"{side}{n}" for n in range(size)] for side in "lr")
    swarm = Swarm([*left, *right, "meeting"], seed=100 * seed)
    # As after a minute apart: each half full of its own, and one side with the bootstrap.
    swarm.connect_all(left, left)
    swarm.connect_all([*right, "meeting"], [*right, "meeting"])
    swarm.pass_time(60)
    swarm.connect_all(left, [*right, "meeting"])
    swarm.pass_time(1.5 * MIX_EVERY_S + 2)
    sides = ((left, right), (right, left))
    return sum(bool(swarm.mesh_of(name) & set(far)) for near, far in sides for name in near)


def test_mixing_keeps_meshes_at_their_size_and_offends_nobody() -> None:
    names, shape = [f"n{n}" for n in range(24)], MeshSettings()
    swarm = Swarm(names, seed=1)
    swarm.connect_all(names, names)
    swarm.pass_time(5)
    before = {name: swarm.mesh_of(name) for name in names}
    swarm.pass_time(300)
    sizes = {name: len(swarm.mesh_of(name)) for name in names}
    assert max(sizes.values()) <= shape.degree_high
    assert sum(sizes.values()) / len(sizes) < shape.degree + 1
    assert any(swarm.mesh_of(name) != before[name] for name in names)
    for _ in range(3):  # who has just been left is short of one until its next heartbeats
        swarm.pass_time(1)
        sizes = {name: max(size, len(swarm.mesh_of(name))) for name, size in sizes.items()}
    assert min(sizes.values()) >= shape.degree_low
    assert swarm.charged == []


# Subscriptions


def test_subscriptions_are_bounded() -> None:
    bench = Bench()
    odd = ["x" * 10_000, "bell\a", "gr\u00fc\u00dfe"]
    topics = [*odd, *(f"/t/{number}" for number in range(5000))]
    bench.say(A, subscriptions=[(topic, True) for topic in topics])
    assert list(bench.mesh.topics[A]) == topics[3:67]
    bench.say(A, subscriptions=[("/t/0", False), ("/never", False), ("/t/4000", True)])
    assert bench.mesh.topics[A][-1] == "/t/4000"
    assert len(bench.mesh.topics[A]) == 64
    bench.mesh.unreads(A)
    assert bench.mesh.subscribers == {}
    assert bench.mesh.topics == {}


# Messages


def test_copies_are_judged_once() -> None:
    bench = meshed(A, B)
    events = bench.say(A, messages=[said()] * 8) + bench.say(B, messages=[said()])
    assert len(of(Validate, events)) == 1
    assert bench.mesh.counts["duplicate"] == 8
    bench.mesh.judged(A, said(), verdict(Reason.TOO_OLD), bench.now)
    assert of(Validate, bench.say(B, messages=[said()])) == []
    bench.now += GossipLimits().seen_ttl_s
    assert len(of(Validate, bench.say(B, messages=[said()]))) == 1


def test_forgery_does_not_shut_out_the_real_message() -> None:
    bench = meshed(A, B)
    bad = forgery(said())
    events = bench.say(A, messages=[bad, said(), bad])
    (bad_one,) = of(JudgedMessage, events)
    assert bad_one == JudgedMessage(A, None, verdict(Reason.BAD_SIGNATURE))
    assert [one.message.data for one in of(Validate, events)] == [b""]
    assert len(of(Validate, bench.say(A, messages=[forgery(said(2)), said(2)]))) == 1


def test_message_in_my_name_is_dropped() -> None:
    bench = meshed(A, B)
    assert bench.bring(A, said(author=ME)) == []
    assert bench.mesh.counts["own_echo"] == 1


def test_a_message_of_another_topic_is_waste() -> None:
    settings = replace(GossipLimits().flood, waste_burst=10.0)
    bench = meshed(A, settings=GossipSettings(limits=GossipLimits(flood=settings)))
    events = bench.say(A, messages=[said(number, topic="/other") for number in range(12)])
    assert events == []
    pause = bench.mesh.pause(A, bench.now)
    assert pause is not None
    assert pause.is_to_blame


def test_own_messages_go_to_the_mesh_filled_up_with_subscribers() -> None:
    bench = Bench()
    bench.meet(*MANY)
    targets = bench.mesh.targets(TOPIC)
    assert len(set(targets)) == MeshSettings().degree
    assert targets != bench.mesh.targets(TOPIC), "drawn anew each time"
    bench.join()
    assert set(bench.mesh.targets(TOPIC)) == bench.members


def test_a_large_message_is_not_wanted_again() -> None:
    bench = meshed(A, B, C)
    bench.mesh.opened(B, 0.0, knows_idontwant=False)
    large = said(author=ME, data=bytes(MeshSettings().idontwant_bytes))
    large = large._replace(author=PeerId("other"))
    assert sent(bench.say(A, messages=[large]), "idontwant") == [(C, [large.id])]
    small = said(2)
    bench.say(B, idontwant=[[small.id]])
    assert forwarded(bench.bring(A, small._replace(author=A))) == [(C, small.id)]


# Offers


def test_who_has_written_sent_or_heard_of_a_message_is_not_offered_it() -> None:
    writer, sender, copier, told, other = MANY[:5]
    bench = meshed(*MANY[:5])
    bench.bring(sender, said(author=writer))
    bench.bring(copier, said(author=writer))
    bench.say(told, ihave=[(TOPIC, [said(author=writer).id])])
    offers = sent(bench.beat(5), "ihave")
    assert offers == [(other, (TOPIC, [said(author=writer).id]))], "and nobody twice"


def test_in_a_large_swarm_some_outside_the_mesh_are_offered_it() -> None:
    bench = Bench()
    bench.join()
    bench.meet(*MANY)
    bench.mesh.publish(said(author=ME), bench.now)
    offered = {peer for peer, _ in sent(bench.beat(), "ihave")}
    assert len(offered) == MeshSettings().degree
    assert not offered & bench.members


def test_a_congested_peer_is_offered_nothing() -> None:
    bench = meshed(A, B)
    bench.mesh.publish(said(author=ME), bench.now)
    assert [peer for peer, _ in sent(bench.beat(busy=[A]), "ihave")] == [B]


def test_what_is_offered_is_asked_of_one_peer_a_second_and_then_of_another() -> None:
    bench = meshed(A, B, C)
    offer = [(TOPIC, [b"x", b"y"])]
    assert sent(bench.say(A, ihave=offer), "iwant") == [(A, [b"x", b"y"])]
    assert sent(bench.say(B, ihave=offer), "iwant") == []
    assert sent(bench.beat(), "iwant") == [(B, [b"x", b"y"])]
    assert sent(bench.say(A, ihave=[("/other", [b"z"])]), "iwant") == []


def test_an_offer_that_is_not_kept_is_charged_once() -> None:
    bench = meshed(A)
    bench.say(A, ihave=[(TOPIC, [b"nothing"])])
    assert charges(bench.beat(30)) == [(A, Cause.BROKEN_PROMISE)]


def test_who_sends_what_we_have_no_time_for_has_broken_no_promise() -> None:
    bench = meshed(A)
    bench.say(A, ihave=[(TOPIC, [said().id])])
    bench.bring(A, said(), IN_VAIN)
    assert charges(bench.beat(30)) == []


def test_a_copy_that_comes_while_anothers_is_put_off_keeps_its_promise() -> None:
    bench = meshed(A, B)
    bench.say(B, ihave=[(TOPIC, [said().id])])
    bench.say(A, messages=[said()])
    bench.say(B, messages=[said()])
    bench.mesh.judged(A, said(), IN_VAIN, bench.now)
    assert charges(bench.beat(30)) == []


def test_asking_for_one_message_ten_thousand_times_yields_three() -> None:
    bench = meshed(A)
    bench.mesh.publish(said(author=ME), bench.now)
    given = []
    for _ in range(5):
        given += bench.say(A, iwant=[[said(author=ME).id] * 1000] * 2)
        bench.mesh.heartbeat(bench.now)
    assert forwarded(given) == [(A, said(author=ME).id)] * 3


def test_what_was_said_long_ago_is_neither_offered_nor_given() -> None:
    bench = meshed(A)
    bench.mesh.publish(said(author=ME), bench.now)
    bench.beat(5)
    assert forwarded(bench.say(A, iwant=[[said(author=ME).id]])) == []


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
    bench = meshed(A, B)
    answers = []
    for parts in HOSTILE:
        answers.append(bench.say(A, **parts))  # type: ignore[arg-type]
        bench.mesh.heartbeat(bench.now)
    assert len(sent(answers[0], "iwant")[0][1]) == 4096
    assert [back_off for _, (_, back_off) in sent(answers[4], "prune")] == [PRUNE_BACKOFF_S] * 64
    assert not bench.mesh._meshes._backoffs
    bench.beat(15)
    assert len(bench.mesh._wants) == 0
    assert bench.members == {A, B}


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
    bench = meshed(A)
    answers = [event for _ in range(6) for event in bench.say(A, **{kind: entries})]
    assert charges(answers) == [(A, Cause.CONTROL_SPAM)]
    assert of(SendRpc, bench.say(A, graft=["/unknown"])) == [], "nothing more of it is heeded"
    bench.beat()
    assert len(of(SendRpc, bench.say(A, graft=["/unknown"]))) == 1


# Pauses


def test_a_debt_of_almost_nothing_is_not_waited_for_without_end() -> None:
    flood = replace(GossipLimits().flood, pace_burst=1.0, pace_per_second=1e6)
    bench = meshed(A, settings=GossipSettings(limits=GossipLimits(flood=flood)))
    bench.say(A, messages=[said(number) for number in range(3)])
    pause = bench.mesh.pause(A, bench.now)
    assert pause is not None
    assert 0.01 <= pause.seconds <= 1.0
    assert not pause.is_to_blame
    assert bench.mesh.paused(A, pause, bench.now + pause.seconds) == []


def test_who_wastes_is_charged_by_the_second_after_a_grace() -> None:
    flood = replace(GossipLimits().flood, waste_burst=100.0, waste_per_second=10.0)
    bench = meshed(A, settings=GossipSettings(limits=GossipLimits(flood=flood)))
    bench.bring(A, said())
    bench.say(A, messages=[said()] * 1000)
    charged = []
    while (pause := bench.mesh.pause(A, bench.now)) is not None:
        bench.now += pause.seconds
        charged += charges(bench.mesh.paused(A, pause, bench.now))
    assert charged == [(A, Cause.FLOOD)] * 9


@pytest.mark.parametrize("own", [True, False])
def test_who_brings_dear_messages_waits_and_pays_if_they_are_its_own(own: bool) -> None:
    flood = replace(GossipLimits().flood, work_per_second=2.0, grace_s=0.2)
    bench = meshed(A, settings=GossipSettings(limits=GossipLimits(flood=flood)))
    dear, charged = replace(ACCEPT, work_s=0.1), []
    for number in range(60):
        while (pause := bench.mesh.pause(A, bench.now)) is not None:
            bench.now += pause.seconds
            charged += charges(bench.mesh.paused(A, pause, bench.now))
        assert 0.1 * number <= flood.work_burst + 2.0 * bench.now + 0.1
        bench.bring(A, said(number, author=A if own else PeerId(f"author {number}")), dear)
    assert set(charged) == ({(A, Cause.FLOOD)} if own else set())


# Whatever is said

PEERS = st.sampled_from([A, B, C])
IDS = st.sampled_from([said(number).id for number in range(4)])
MESSAGES = st.builds(said, st.integers(0, 3), author=st.sampled_from([ME, A, C]))
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
def test_whatever_is_said_what_is_sent_has_somebody_to_send_it_to(steps: list) -> None:
    bench, here, waiting, number = Bench(), set[PeerId](), list[Validate](), 0
    for what, peer, how in steps:
        events = []
        if what == "say":
            events = bench.say(peer, **how)
        elif what == "judge" and waiting:
            one = waiting.pop()
            events = bench.mesh.judged(one.peer, one.message, verdict(how), bench.now)
        elif what == "meet":
            here.add(peer)
            events = bench.mesh.opened(peer, bench.now)
        elif what == "lose":
            here.discard(peer)
            bench.mesh.closed(peer)
            bench.mesh.unreads(peer)
        elif what == "beat":
            events = bench.beat()
        elif what == "publish":
            number += 1
            events = [bench.mesh.publish(said(number, author=ME), bench.now)]
        else:
            events = (
                bench.join if what == "join" else lambda: bench.mesh.leave(TOPIC, bench.now)
            )()
        waiting += of(Validate, events)
        keys = [one.message.id for one in waiting]
        assert len(set(keys)) == len(keys), "nothing is judged twice at once"
        if what in ("beat", "join"):
            assert {send.peer for send in of(SendRpc, events)} <= here
        if what == "beat":
            assert bench.members <= here
        assert all(one.frame.signed != "forged" for one in of(Forward, events))
