"""Whose gaps are chased: for any course of events, naming in vain buys no more than its share."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_p2p.fair.buckets import Rate
from shoal_p2p.fetch.gaps import Gap, GapLimits, GapTracker
from shoal_p2p.fetch.retry_budget import ChaseLimits, RetryBudget
from shoal_wire.types import PeerId

ANN = PeerId("ann")
LIMITS = ChaseLimits(
    per_publisher=Rate(burst=3, per_second=0.01), per_connection=Rate(burst=9, per_second=0.01)
)


def gap(publisher: PeerId, named_by: PeerId, *, proven: bool = False) -> Gap:
    return Gap(publisher=publisher, sequence=5, after=3, named_by=named_by, proven=proven, due=0.0)


def test_filled_gaps_cost_nothing_and_unknown_peers_cannot_spend_the_proven_budget() -> None:
    rights = RetryBudget(LIMITS)
    for _ in range(50):
        one = gap(ANN, PeerId("bob"), proven=rights.is_proven(ANN))
        assert rights.try_charge(one, 0.0)
        one.tries = 1
        rights.refund_all(one, 0.0)
    for number in range(20):
        rights.try_charge(gap(PeerId(f"name{number}"), PeerId("bob")), 0.0)
    assert not rights.has(PeerId("another"), PeerId("bob"), 0.0)
    assert rights.has(ANN, PeerId("bob"), 0.0)
    assert rights.turn(gap(ANN, ANN, proven=True), 0.0) < rights.turn(gap(PeerId("x"), ANN), 0.0)


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 3), st.booleans(), st.floats(0, 5)),
        max_size=300,
    )
)
@settings(max_examples=100)
def test_what_is_named_in_vain_is_bounded_by_publisher_and_by_connection(
    events: list[tuple[int, int, bool, float]],
) -> None:
    rights, now = RetryBudget(LIMITS), 0.0
    vain_of, vain_by = Counter[PeerId](), Counter[PeerId]()
    for publisher, connection, is_true, pause_s in events:
        now += pause_s
        who, by = PeerId(f"p{publisher}"), PeerId(f"c{connection}")
        one = gap(who, by, proven=rights.is_proven(who))
        if not rights.try_charge(one, now):
            assert vain_of[who] >= 2 or vain_by[by] >= 8
            continue
        one.tries = 1
        if is_true:
            rights.refund_all(one, now)
        else:
            vain_of[who] += 1
            vain_by[by] += 1
    for who in vain_of:
        assert vain_of[who] <= 3 + 0.01 * now + 1
    for by in vain_by:
        # Once for strangers, once for those that have been right.
        assert vain_by[by] <= 2 * (9 + 0.01 * now + 1)


def test_where_there_are_too_many_publishers_strangers_make_room_first() -> None:
    gaps = GapTracker(GapLimits(max_publishers=2))
    gaps.open(ANN, 5, after=3, now=0.0, proven=True)
    for number in range(10):
        gaps.open(PeerId(f"name{number}"), 5, after=3, now=0.0)
    assert len(gaps) == 2
    assert gaps.close(ANN, 5) is not None
