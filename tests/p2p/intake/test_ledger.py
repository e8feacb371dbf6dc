"""The ledger's memory: exact within its bounds, and never over them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_p2p.fair.buckets import Rate, TokenBucket
from shoal_p2p.intake.ledger import LedgerLimits, PublisherLedger
from shoal_wire.types import BatchId, PeerId
from shoal_wire.verdict import Reason

ANN, BOB = PeerId("ann"), PeerId("bob")


def batch(number: int) -> BatchId:
    return BatchId(number.to_bytes(32, "big"))


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 2)), max_size=120))
@settings(max_examples=100)
def test_a_number_is_new_once_and_the_lowest_are_forgotten_first(
    arrivals: list[tuple[int, int]],
) -> None:
    ledger = PublisherLedger(LedgerLimits(max_sequences=5, burst_groups=1e9))
    known, forgotten = dict[int, int](), 0
    for sequence, content in arrivals:
        expected = None
        if sequence in known:
            is_same = known[sequence] == content
            expected = Reason.DUPLICATE if is_same else Reason.EQUIVOCATION
        elif sequence <= forgotten:
            # It was forgotten, or may have been: nothing can tell it from a replay any more.
            expected = Reason.DUPLICATE
        assert ledger.check(ANN, sequence, batch(content), 1, 0.0) is expected
        if sequence not in known:
            ledger.record(ANN, sequence, batch(content), 1, 0.0)
            known[sequence] = content
        if len(known) > 5:
            forgotten = max(forgotten, min(known))
            del known[min(known)]
        found = {number for number in range(1, 31) if ledger.knows(ANN, number)}
        assert found == known.keys() | set(range(1, forgotten + 1))


def test_checking_and_remembering_cost_no_quota() -> None:
    ledger = PublisherLedger(LedgerLimits(burst_groups=2.0, groups_per_second=1.0))
    for sequence in range(1, 50):
        assert ledger.check(ANN, sequence, batch(sequence), 2, 0.0) is None
        ledger.remember(ANN, sequence, batch(sequence), 0.0)
    ledger.record(ANN, 50, batch(50), 2, 0.0)
    assert ledger.check(ANN, 51, batch(51), 1, 0.0) is Reason.OVER_QUOTA


def test_the_publisher_longest_silent_is_forgotten_first() -> None:
    ledger = PublisherLedger(LedgerLimits(max_publishers=2))
    ledger.record(ANN, 1, batch(1), 1, 0.0)
    ledger.record(BOB, 1, batch(1), 1, 1.0)
    ledger.record(ANN, 2, batch(2), 1, 2.0)
    ledger.record(PeerId("eve"), 1, batch(1), 1, 3.0)
    assert ledger.check(ANN, 1, batch(1), 1, 4.0) is Reason.DUPLICATE
    assert ledger.check(BOB, 1, batch(1), 1, 4.0) is None


def test_an_accusation_needs_two_different_batches_and_is_made_once() -> None:
    ledger = PublisherLedger()
    assert ledger.record_equivocation(ANN, 1, batch(1), 0.0) is None
    ledger.record(ANN, 1, batch(1), 1, 0.0)
    assert ledger.record_equivocation(ANN, 1, batch(1), 0.0) is None
    assert not ledger.is_equivocated(ANN, 1)
    pair = ledger.record_equivocation(ANN, 1, batch(2), 0.0)
    assert pair is not None
    assert (pair.first, pair.second) == (batch(1), batch(2))
    assert ledger.is_equivocated(ANN, 1)
    assert not ledger.is_equivocated(BOB, 1)
    assert ledger.record_equivocation(ANN, 1, batch(3), 0.0) is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["record", "remember", "record_equivocation", "mark_equivocated"]),
            st.integers(0, 6),
            st.integers(1, 30),
            st.integers(0, 3),
        ),
        max_size=200,
    )
)
@settings(max_examples=100)
def test_its_memory_is_bounded_after_every_operation(
    operations: list[tuple[str, int, int, int]],
) -> None:
    limits = LedgerLimits(max_publishers=4, max_sequences=5)
    ledger = PublisherLedger(limits)
    for at, (kind, peer, sequence, content) in enumerate(operations):
        publisher = PeerId(f"peer-{peer}")
        if kind == "record":
            ledger.record(publisher, sequence, batch(content), 1, at)
        elif kind == "remember":
            ledger.remember(publisher, sequence, batch(content), at)
        elif kind == "mark_equivocated":
            ledger.mark_equivocated(publisher, sequence, batch(content), at)
        else:
            ledger.record_equivocation(publisher, sequence, batch(content), at)
        entries = ledger._publishers
        assert len(entries) <= limits.max_publishers
        for entry in entries.values():
            assert len(entry.sequences) <= limits.max_sequences
            assert entry.equivocated <= set(entry.sequences)


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(1, 20)), max_size=60))
@settings(max_examples=100)
def test_a_publisher_gets_no_more_than_burst_and_rate(steps: list[tuple[float, int]]) -> None:
    limits = LedgerLimits(burst_groups=10.0, groups_per_second=2.0)
    ledger = PublisherLedger(limits)
    now, taken = 0.0, 0
    for sequence, (pause, groups) in enumerate(steps, start=1):
        now += pause
        if ledger.check(ANN, sequence, batch(sequence), groups, now) is None:
            ledger.record(ANN, sequence, batch(sequence), groups, now)
            taken += groups
        assert taken <= limits.burst_groups + now * limits.groups_per_second + 1e-6


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 40), st.floats(0, 4)), max_size=120))
@settings(max_examples=40)
def test_what_others_bring_of_a_publisher_is_not_its_doing(
    events: list[tuple[bool, int, float]],
) -> None:
    """Whatever is replayed in between: who paces itself as the outbox does keeps its quota."""
    rate = Rate(burst=50.0, per_second=9.0)
    ledger = PublisherLedger(LedgerLimits(groups_per_second=10.0, burst_groups=100.0))
    pace, now = TokenBucket(rate, 0.0), 0.0
    for sequence, (own, num_groups, pause_s) in enumerate(events):
        now += pause_s
        if own:
            now += pace.wait_s(0, now)
            pace.take(num_groups, now)
            assert ledger.charge_direct(ANN, num_groups, now)
        if ledger.check(ANN, sequence, batch(sequence), num_groups, now) is None:
            ledger.record(ANN, sequence, batch(sequence), num_groups, now)
    assert not ledger.charge_direct(ANN, 101, now), "it is a quota all the same"
