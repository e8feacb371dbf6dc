"""IHAVE and IWANT: ids to advertise, peers to ask, and broken promises."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shoal_p2p.gossip.ihave import IHaveTracker, IWantTracker


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
def test_no_id_is_advertised_twice_and_the_bound_holds(
    steps: list[tuple[str, Any, Any]], max_ids: int
) -> None:
    """With thirteen ids, a bound of thirteen forgets none, so the result is exact."""
    known = set[tuple[str, bytes]]()
    book: Any = IHaveTracker(max_ids=max_ids)
    for what, one, other in steps:
        if what == "holds":
            book.add_holder(one, other)
            known.add((one, other))
        elif what == "offer":
            news = book.filter_unseen(one, other)
            missed = [k for k in other if (one, k) not in known]
            assert set(missed) <= set(news), "each id unknown to the peer is advertised"
            assert len(set(news)) == len(news)
            assert max_ids == 5 or news == missed
            known |= {(one, k) for k in news}
        else:
            book.retain(one, other)
            known = {(p, k) for p, k in known if p in one and k in other}
        assert all(len(known) <= max_ids for known in book._held.values())


@dataclass
class Messages:
    """The messages that a node has seen or is validating."""

    seen: set[bytes] = field(default_factory=set)
    validating: set[bytes] = field(default_factory=set)

    def is_known(self, key: bytes, _now: float = 0.0) -> bool:
        return key in self.seen or key in self.validating

    def is_validating(self, key: bytes) -> bool:
        return key in self.validating


def book(max_ids: int = 100, seed: int = 0) -> Any:
    return IWantTracker(max_ids=max_ids, rng=random.Random(seed))


def test_a_message_dropped_under_load_is_requested_from_another_peer_that_advertised_it() -> None:
    iwant, here = book(), Messages(validating={b"1", b"2", b"3"})
    assert iwant.on_ihave("a", [b"1", b"2", b"3"], here, 0.0) == []
    assert iwant.pending_iwant(here, 0.0) == {}
    here.validating, here.seen = {b"3"}, {b"2"}
    assert iwant.pending_iwant(here, 0.0) == {"a": [b"1"]}
    here.validating = set()
    assert iwant.pending_iwant(here, 0.0) == {"a": [b"3"]}
    assert iwant.pending_iwant(here, 0.0) == {}


def test_a_false_advertisement_does_not_block_a_later_one() -> None:
    """Each id is advertised once."""
    iwant, here = book(), Messages()
    iwant.on_iwant_sent("liar", iwant.on_ihave("liar", [b"1", b"2"], here, 0.0), 0.0)
    assert iwant.on_ihave("honest", [b"1", b"2"], here, 0.5) == []
    assert iwant.pending_iwant(here, 0.9) == {}
    here.seen = {b"2"}
    assert iwant.pending_iwant(here, 1.0) == {"honest": [b"1"]}
    assert iwant.pending_iwant(here, 2.0) == {}


def test_many_false_advertisements_do_not_block_a_later_one() -> None:
    requested = set[str]()
    for seed in range(200):
        iwant, here = book(seed=seed), Messages()
        for number in range(8):
            if keys := iwant.on_ihave(f"liar {number}", [b"1"], here, 0.0):
                iwant.on_iwant_sent(f"liar {number}", keys, 0.0)
        iwant.on_ihave("honest", [b"1"], here, 0.5)
        assert len(iwant) <= 3 + len(iwant._alternatives[b"1"]) <= 3 + 4
        for second in (1.0, 2.0, 3.0):
            requested.update(iwant.pending_iwant(here, second))
        assert iwant.pending_iwant(here, 9.0) == {}
        assert not iwant._alternatives
    assert "honest" in requested


def test_a_repeated_iwant_makes_no_promise() -> None:
    iwant, here = book(), Messages()
    iwant.on_iwant_sent("liar", iwant.on_ihave("liar", [b"1"], here, 0.0), 0.0)
    iwant.on_ihave("honest", [b"1"], here, 0.5)
    for keys in iwant.pending_iwant(here, 1.0).values():
        iwant.mark_requested(keys, 1.0)
    assert iwant.broken_promises(["liar", "honest"], here, 30.0) == ["liar"]


def test_requests_are_bounded() -> None:
    iwant, here = book(max_ids=10), Messages()
    for number in range(100):
        keys = [b"%d/%d" % (number, one) for one in range(10)]
        iwant.on_iwant_sent(f"{number}", iwant.on_ihave(f"{number}", keys, here, 0.0), 0.0)
    assert len(iwant) <= 16 * 10 + 100
    iwant.expire(0.5)
    assert len(iwant) > 100
    iwant.expire(1.0)
    assert len(iwant) == 100


def test_sending_keeps_the_promise_whatever_the_verdict() -> None:
    iwant, here = book(), Messages()
    for peer in "ab":
        iwant.on_iwant_sent(peer, [b"1"], 0.0)
    iwant.on_message("a", b"1")
    assert iwant.broken_promises("ab", here, 9.9) == []
    assert iwant.broken_promises("ab", here, 10.0) == ["b"]
    assert iwant.broken_promises("ab", here, 20.0) == [], "it is charged once"


def test_another_copy_or_a_closed_connection_voids_the_promise() -> None:
    iwant, here = book(), Messages()
    iwant.on_iwant_sent("a", [b"1"], 0.0)
    iwant.on_iwant_sent("b", [b"2"], 0.0)
    here.seen = {b"1"}
    assert iwant.broken_promises("a", here, 10.0) == []


def test_promises_do_not_count_while_reading_is_paused() -> None:
    iwant, here = book(), Messages()
    iwant.on_iwant_sent("a", [b"1"], 0.0)
    iwant.on_read_paused("a", 0.4, 9.5)
    iwant.on_read_paused("a", 0.4, 9.9)
    assert iwant.broken_promises("a", here, 10.0) == [], "the message may be in the unread data"
    iwant.on_iwant_sent("a", [b"1"], 10.0)
    assert iwant.broken_promises("a", here, 20.0) == [], "no promise is made during a pause"
    iwant.on_iwant_sent("a", [b"1"], 20.0)
    iwant.on_read_paused("a", 0.4, 29.0)
    assert iwant.broken_promises("a", here, 30.0) == ["a"], "a short pause does not count"


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
def test_only_peers_that_ignored_an_iwant_are_charged(
    steps: list[tuple[str, str, bytes, float]],
) -> None:
    iwant, here, now = book(max_ids=2), Messages(), 0.0
    owed: dict[str, set[bytes]] = {}
    for what, peer, key, wait in steps:
        now += wait
        if what == "offer":
            requested = iwant.on_ihave(peer, [key], here, now)
            assert not any(here.is_known(k) for k in requested)
            if requested:
                iwant.on_iwant_sent(peer, requested, now)
                owed.setdefault(peer, set()).update(requested)
        elif what == "send":
            iwant.on_message(peer, key)
            owed.get(peer, set()).discard(key)
        elif what == "judge" and not here.is_known(key):
            here.validating.add(key)
        elif what == "drop":
            here.validating.discard(key)
        elif what == "accept":
            here.validating.discard(key)
            here.seen.add(key)
        else:
            for keys in iwant.pending_iwant(here, now).values():
                assert not any(here.is_known(k) for k in keys)
                iwant.mark_requested(keys, now)
            for other in iwant.broken_promises("abc", here, now):
                assert owed.get(other), f"{other} owes nothing"
            iwant.expire(now)
        assert len(iwant._alternatives) <= 2
