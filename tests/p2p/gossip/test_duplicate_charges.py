"""Waste is charged only to a peer that could have known of it, for any sequence of events."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_p2p.gossip.duplicate_tracker import (
    COPY_UNITS,
    JUDGED_UNITS,
    OVER_QUOTA_UNITS,
    SECOND_MESSAGE_UNITS,
    DuplicateTracker,
    Waste,
)
from shoal_p2p.gossip.interface import OVERLOAD
from shoal_wire.types import PeerId
from shoal_wire.verdict import ACCEPT, Outcome, Reason, verdict


def book() -> DuplicateTracker:
    return DuplicateTracker(ttl_s=120.0, max_ids=1000)


def judged(of: DuplicateTracker, reason: Reason, *, key: bytes = b"k", by: str = "f") -> Waste:
    return of.on_judged(
        verdict(reason), key=key, content=lambda: b"batch", author=PeerId("a"), forwarder=PeerId(by)
    )


SIGNERS_ALONE = {
    *(Reason.EQUIVOCATION, Reason.NOT_CANONICAL),  # it may have seen only one half, or any encoding
    Reason.WEAK_KEY,  # another version may accept any key
    *(Reason.FAR_FUTURE, Reason.UNFETCHABLE),  # our clock, or bad luck
    Reason.RESERVED_TASK,  # another version may accept any seed
}
"""Rejections that a forwarder could not have foreseen."""


def test_a_forwarder_wastes_only_what_it_could_have_checked() -> None:
    for reason in sorted(set(Reason) - {Reason.VALID, Reason.DUPLICATE}):
        could_check = verdict(reason).outcome is Outcome.REJECT and reason not in SIGNERS_ALONE
        assert judged(book(), reason) == Waste(forwarder_units=JUDGED_UNITS if could_check else 0.0)
        own = judged(book(), reason, by="a")
        assert own.forwarder_units in (0.0, COPY_UNITS, JUDGED_UNITS, OVER_QUOTA_UNITS)
        if could_check or reason is Reason.OVER_QUOTA:
            assert own.forwarder_units >= JUDGED_UNITS, reason


def test_overload_and_useful_messages_are_not_waste() -> None:
    for reason in Reason:
        waste = judged(book(), reason, by="a")
        own_trouble = reason in OVERLOAD or reason is Reason.LEFT_TOPIC
        first_time = reason in (Reason.VALID, Reason.DUPLICATE)
        assert (waste.forwarder_units == 0) == (own_trouble or first_time), reason


def test_a_batch_in_a_second_message_is_charged_to_its_author_once() -> None:
    of = book()
    assert judged(of, Reason.VALID, key=b"1", by="f") == Waste()
    assert judged(of, Reason.DUPLICATE, key=b"1", by="g") == Waste(), "a replay, long afterwards"
    assert judged(of, Reason.DUPLICATE, key=b"2", by="g") == Waste(
        author_units=SECOND_MESSAGE_UNITS
    )
    assert judged(of, Reason.DUPLICATE, key=b"2", by="h") == Waste(), "charged already"
    assert judged(of, Reason.DUPLICATE, key=b"2", by="h") == Waste(forwarder_units=JUDGED_UNITS)


def test_the_tracker_is_bounded_and_expires() -> None:
    of = book()
    for number in range(3000):
        of.on_copy(b"%d" % number, PeerId("f"), 0.0)
    assert len(of) == 1000
    assert of.on_copy(b"2999", PeerId("f"), 119.0) == COPY_UNITS
    assert of.on_copy(b"2999", PeerId("f"), 121.0) == 0.0
    assert len(of) == 1


def test_seen_ids_expire_by_age_and_number() -> None:
    of = DuplicateTracker(ttl_s=10, max_ids=3)
    of.on_copy(b"a", PeerId("f"), 0.0)
    assert not of.has_seen(b"a", 0.0), "it is being judged"
    of.mark_seen(b"a", 1.0)
    assert of.has_seen(b"a", 10.0)
    assert not of.has_seen(b"a", 11.0)
    for key in (b"b", b"c", b"d", b"e"):
        of.mark_seen(key, 11.0)
        assert len(of) <= 3
    assert not of.has_seen(b"b", 11.0)
    assert of.has_seen(b"e", 11.0)


@given(
    st.lists(st.tuples(st.sampled_from("ABCDE"), st.integers(0, 6), st.floats(0, 30)), max_size=200)
)
@settings(max_examples=150)
def test_only_repetition_is_charged(events: list[tuple[str, int, float]]) -> None:
    """Any peers, messages and times: a peer is charged from its second copy on, and not before."""
    of, sent, now = book(), Counter[tuple[str, int]](), 0.0
    for peer, number, pause_s in events:
        now += pause_s
        sent[peer, number] += 1
        paid = of.on_copy(b"%d" % number, PeerId(peer), now)
        assert paid == 0.0 or sent[peer, number] > 1


@given(
    st.lists(
        st.tuples(st.sampled_from("ABCD"), st.sampled_from("PQ"), st.integers(1, 3)), max_size=60
    )
)
@settings(max_examples=150)
def test_no_forwarder_can_make_an_honest_author_pay(
    events: list[tuple[str, str, int]],
) -> None:
    """P signs each batch in one message, Q in any number; forwarders forward anything."""
    of, passed = book(), Counter[tuple[str, str, int]]()
    for forwarder, author, number in events:
        passed[forwarder, author, number] += 1
        key = f"{author}{number if author == 'Q' else 1}".encode()
        waste = of.on_judged(
            ACCEPT if not passed else verdict(Reason.DUPLICATE),
            key=key,
            content=lambda author=author: author.encode(),
            author=PeerId(author),
            forwarder=PeerId(forwarder),
        )
        assert author == "Q" or waste.author_units == 0.0
        assert (
            waste.forwarder_units == 0.0
            or sum(
                n for (by, signer, _), n in passed.items() if (by, signer) == (forwarder, author)
            )
            > 1
        )
