"""What is offered to whom, who is asked for what was offered, and who has broken a promise."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shoal_p2p.gossip.offers import IHaveTracker, IWantTracker


def key(number: int) -> bytes:
    return number.to_bytes(4, "big")


PEERS = st.sampled_from("abc")
OFFERED = st.integers(0, 12).map(key)
OFFERS = st.one_of(
    st.tuples(st.just("holds"), PEERS, OFFERED),
    st.tuples(st.just("offer"), PEERS, st.lists(OFFERED, unique=True, max_size=6)),
    st.tuples(st.just("beat"), st.sets(PEERS), st.sets(OFFERED)),
)


@given(st.lists(OFFERS, max_size=40), st.sampled_from([5, 13]))
def test_over_any_course_nothing_is_offered_twice_and_the_bound_holds(
    steps: list[tuple[str, Any, Any]], max_ids: int
) -> None:
    """Of thirteen ids a bound of thirteen forgets none: then it is exactly what is news."""
    heard = set[tuple[str, bytes]]()
    book: Any = IHaveTracker(max_ids=max_ids)
    for what, one, other in steps:
        if what == "holds":
            book.note_holder(one, other)
            heard.add((one, other))
        elif what == "offer":
            news = book.news(one, other)
            missed = [k for k in other if (one, k) not in heard]
            assert set(missed) <= set(news), "who has not heard of it is told"
            assert len(set(news)) == len(news)
            assert max_ids == 5 or news == missed
            heard |= {(one, k) for k in news}
        else:
            book.keep_only(one, other)
            heard = {(p, k) for p, k in heard if p in one and k in other}
        assert all(len(known) <= max_ids for known in book._knows.values())


@dataclass
class Messages:
    """The messages that a node has seen and is judging."""

    seen: set[bytes] = field(default_factory=set)
    judging: set[bytes] = field(default_factory=set)

    def knows(self, key: bytes, _now: float = 0.0) -> bool:
        return key in self.seen or key in self.judging

    def judges(self, key: bytes) -> bool:
        return key in self.judging


def book(max_ids: int = 100, seed: int = 0) -> Any:
    return IWantTracker(max_ids=max_ids, rng=random.Random(seed))


def test_what_is_dropped_in_our_own_trouble_is_asked_of_who_offered_it_meanwhile() -> None:
    wants, here = book(), Messages(judging={b"1", b"2", b"3"})
    assert wants.offered("a", [b"1", b"2", b"3"], here, 0.0) == []
    assert wants.pending_iwant(here, 0.0) == {}
    here.judging, here.seen = {b"3"}, {b"2"}
    assert wants.pending_iwant(here, 0.0) == {"a": [b"1"]}
    here.judging = set()
    assert wants.pending_iwant(here, 0.0) == {"a": [b"3"]}
    assert wants.pending_iwant(here, 0.0) == {}


def test_who_offers_first_and_has_nothing_keeps_nobody_from_what_another_offered() -> None:
    """An offer is made once."""
    wants, here = book(), Messages()
    wants.asked("liar", wants.offered("liar", [b"1", b"2"], here, 0.0), 0.0)
    assert wants.offered("honest", [b"1", b"2"], here, 0.5) == []
    assert wants.pending_iwant(here, 0.9) == {}
    here.seen = {b"2"}
    assert wants.pending_iwant(here, 1.0) == {"honest": [b"1"]}
    assert wants.pending_iwant(here, 2.0) == {}


def test_of_many_who_offer_first_some_later_one_is_asked_while_its_offer_holds() -> None:
    asked = set[str]()
    for seed in range(200):
        wants, here = book(seed=seed), Messages()
        for number in range(8):
            if keys := wants.offered(f"liar {number}", [b"1"], here, 0.0):
                wants.asked(f"liar {number}", keys, 0.0)
        wants.offered("honest", [b"1"], here, 0.5)
        assert len(wants) <= 3 + len(wants._others[b"1"]) <= 3 + 4
        for second in (1.0, 2.0, 3.0):
            asked.update(wants.pending_iwant(here, second))
        assert wants.pending_iwant(here, 9.0) == {}
        assert not wants._others
    assert "honest" in asked


def test_who_is_asked_late_has_promised_nothing() -> None:
    wants, here = book(), Messages()
    wants.asked("liar", wants.offered("liar", [b"1"], here, 0.0), 0.0)
    wants.offered("honest", [b"1"], here, 0.5)
    for keys in wants.pending_iwant(here, 1.0).values():
        wants.asked_late(keys, 1.0)
    assert wants.broken(["liar", "honest"], here, 30.0) == ["liar"]


def test_questions_are_remembered_within_their_bound() -> None:
    wants, here = book(max_ids=10), Messages()
    for number in range(100):
        keys = [b"%d/%d" % (number, one) for one in range(10)]
        wants.asked(f"{number}", wants.offered(f"{number}", keys, here, 0.0), 0.0)
    assert len(wants) <= 16 * 10 + 100
    wants.forget(0.5)
    assert len(wants) > 100
    wants.forget(1.0)
    assert len(wants) == 100


def test_who_sends_has_kept_its_promise_whatever_becomes_of_the_message() -> None:
    wants, here = book(), Messages()
    for peer in "ab":
        wants.asked(peer, [b"1"], 0.0)
    wants.came("a", b"1")
    assert wants.broken("ab", here, 9.9) == []
    assert wants.broken("ab", here, 10.0) == ["b"]
    assert wants.broken("ab", here, 20.0) == [], "it is charged once"


def test_a_message_from_elsewhere_or_a_connection_that_ended_releases_from_the_promise() -> None:
    wants, here = book(), Messages()
    wants.asked("a", [b"1"], 0.0)
    wants.asked("b", [b"2"], 0.0)
    here.seen = {b"1"}
    assert wants.broken("a", here, 10.0) == []


def test_who_is_not_read_has_promised_nothing_until_it_is_read_again() -> None:
    wants, here = book(), Messages()
    wants.asked("a", [b"1"], 0.0)
    wants.on_read_paused("a", 0.4, 9.5)
    wants.on_read_paused("a", 0.4, 9.9)
    assert wants.broken("a", here, 10.0) == [], "what it promised may stand in what is not read"
    wants.asked("a", [b"1"], 10.0)
    assert wants.broken("a", here, 20.0) == [], "nor does it promise anything meanwhile"
    wants.asked("a", [b"1"], 20.0)
    wants.on_read_paused("a", 0.4, 29.0)
    assert wants.broken("a", here, 30.0) == ["a"], "a short wait is none"


KEYS = st.sampled_from([b"1", b"2", b"3", b"4"])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["offer", "send", "judge", "drop", "accept", "beat"]),
        st.sampled_from("abc"),
        KEYS,
        st.floats(0.0, 3.0),
    ),
    max_size=60,
)


@given(STEPS)
def test_over_any_course_only_who_was_asked_and_never_sent_is_charged(
    steps: list[tuple[str, str, bytes, float]],
) -> None:
    wants, here, now = book(max_ids=2), Messages(), 0.0
    owed: dict[str, set[bytes]] = {}
    for what, peer, key, wait in steps:
        now += wait
        if what == "offer":
            asked = wants.offered(peer, [key], here, now)
            assert not any(here.knows(k) for k in asked)
            if asked:
                wants.asked(peer, asked, now)
                owed.setdefault(peer, set()).update(asked)
        elif what == "send":
            wants.came(peer, key)
            owed.get(peer, set()).discard(key)
        elif what == "judge" and not here.knows(key):
            here.judging.add(key)
        elif what == "drop":
            here.judging.discard(key)
        elif what == "accept":
            here.judging.discard(key)
            here.seen.add(key)
        else:
            for keys in wants.pending_iwant(here, now).values():
                assert not any(here.knows(k) for k in keys)
                wants.asked_late(keys, now)
            for other in wants.broken("abc", here, now):
                assert owed.get(other), f"{other} owes nothing"
            wants.forget(now)
        assert len(wants._others) <= 2
