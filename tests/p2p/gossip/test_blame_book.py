"""The book of who wasted what: for any course of events, only who could have known it pays."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_p2p.gossip.duplicate_tracker import (
    COPY,
    JUDGED,
    OVER_QUOTA,
    SECOND_MESSAGE,
    DuplicateTracker,
    Waste,
)
from shoal_p2p.gossip.interface import OVERLOAD
from shoal_wire.types import PeerId
from shoal_wire.verdict import ACCEPT, Outcome, Reason, verdict


def book() -> DuplicateTracker:
    return DuplicateTracker(ttl_s=120.0, max_ids=1000)


def judged(of: DuplicateTracker, reason: Reason, *, key: bytes = b"k", by: str = "f") -> Waste:
    return of.judged(
        verdict(reason), key=key, content=lambda: b"batch", author=PeerId("a"), forwarder=PeerId(by)
    )


SIGNERS_ALONE = {
    *(Reason.EQUIVOCATION, Reason.NOT_CANONICAL),  # it may have seen but one half, or any encoding
    Reason.WEAK_KEY,  # another version may accept any key
    *(Reason.FAR_FUTURE, Reason.UNFETCHABLE),  # our clock, or bad luck
    Reason.RESERVED_TASK,  # another version may accept any seed
}
"""Rejects that who forwards a message could not have foreseen."""


def test_a_forwarder_wastes_only_what_it_could_have_checked() -> None:
    for reason in sorted(set(Reason) - {Reason.VALID, Reason.DUPLICATE}):
        could_check = verdict(reason).outcome is Outcome.REJECT and reason not in SIGNERS_ALONE
        assert judged(book(), reason) == Waste(of_forwarder=JUDGED if could_check else 0.0)
        own = judged(book(), reason, by="a")
        assert own.of_forwarder in (0.0, COPY, JUDGED, OVER_QUOTA)
        if could_check or reason is Reason.OVER_QUOTA:
            assert own.of_forwarder >= JUDGED, reason


def test_our_own_trouble_and_what_is_useful_is_nobodys_waste() -> None:
    for reason in Reason:
        waste = judged(book(), reason, by="a")
        own_trouble = reason in OVERLOAD or reason is Reason.LEFT_TOPIC
        first_time = reason in (Reason.VALID, Reason.DUPLICATE)
        assert (waste.of_forwarder == 0) == (own_trouble or first_time), reason


def test_a_batch_in_a_second_message_is_its_authors_doing_once() -> None:
    of = book()
    assert judged(of, Reason.VALID, key=b"1", by="f") == Waste()
    assert judged(of, Reason.DUPLICATE, key=b"1", by="g") == Waste(), "a replay, long afterwards"
    assert judged(of, Reason.DUPLICATE, key=b"2", by="g") == Waste(of_author=SECOND_MESSAGE)
    assert judged(of, Reason.DUPLICATE, key=b"2", by="h") == Waste(), "paid for already"
    assert judged(of, Reason.DUPLICATE, key=b"2", by="h") == Waste(of_forwarder=JUDGED)


def test_it_is_bounded_and_forgets_by_age() -> None:
    of = book()
    for number in range(3000):
        of.copied(b"%d" % number, PeerId("f"), 0.0)
    assert len(of) == 1000
    assert of.copied(b"2999", PeerId("f"), 119.0) == COPY
    assert of.copied(b"2999", PeerId("f"), 121.0) == 0.0
    assert len(of) == 1


def test_what_was_seen_is_forgotten_by_age_and_by_number() -> None:
    of = DuplicateTracker(ttl_s=10, max_ids=3)
    of.copied(b"a", PeerId("f"), 0.0)
    assert not of.has_seen(b"a", 0.0), "it is being judged"
    of.see(b"a", 1.0)
    assert of.has_seen(b"a", 10.0)
    assert not of.has_seen(b"a", 11.0)
    for key in (b"b", b"c", b"d", b"e"):
        of.see(key, 11.0)
        assert len(of) <= 3
    assert not of.has_seen(b"b", 11.0)
    assert of.has_seen(b"e", 11.0)


@given(
    st.lists(st.tuples(st.sampled_from("ABCDE"), st.integers(0, 6), st.floats(0, 30)), max_size=200)
)
@settings(max_examples=150)
def test_who_never_repeats_itself_never_pays(events: list[tuple[str, int, float]]) -> None:
    """Any peers, any messages, any times: a peer pays for its second copy and not before."""
    of, sent, now = book(), Counter[tuple[str, int]](), 0.0
    for peer, number, pause_s in events:
        now += pause_s
        sent[peer, number] += 1
        paid = of.copied(b"%d" % number, PeerId(peer), now)
        assert paid == 0.0 or sent[peer, number] > 1


@given(
    st.lists(
        st.tuples(st.sampled_from("ABCD"), st.sampled_from("PQ"), st.integers(1, 3)), max_size=60
    )
)
@settings(max_examples=150)
def test_whoever_plays_with_an_authors_messages_the_honest_author_is_not_blamed(
    events: list[tuple[str, str, int]],
) -> None:
    """P says each batch in one message, Q in as many as it likes; others pass on what they like."""
    of, passed = book(), Counter[tuple[str, str, int]]()
    for forwarder, author, number in events:
        passed[forwarder, author, number] += 1
        key = f"{author}{number if author == 'Q' else 1}".encode()
        waste = of.judged(
            ACCEPT if not passed else verdict(Reason.DUPLICATE),
            key=key,
            content=lambda author=author: author.encode(),
            author=PeerId(author),
            forwarder=PeerId(forwarder),
        )
        assert author == "Q" or waste.of_author == 0.0
        assert (
            waste.of_forwarder == 0.0
            or sum(
                n
                for (who, of_whom, _), n in passed.items()
                if (who, of_whom) == (forwarder, author)
            )
            > 1
        )
