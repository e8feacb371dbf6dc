"""How late messages are, whatever the clocks of their authors say."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_p2p.gossip.delivery_lag import DeliveryLag, sent_s_of
from shoal_wire.types import PeerId
from shoal_wire.verdict import ACCEPT, Reason, Verdict, verdict
from tests.p2p.gossip.bench import A, Bench, said

AUTHORS = [PeerId(f"author {number}") for number in range(9)]
CLOCKS = st.lists(st.floats(-1e6, 1e6), min_size=9, max_size=9)


def heard(
    lateness: DeliveryLag,
    clocks: list[float],
    late: list[float],
    now: float,
    *,
    delay_s: float = 0.1,
) -> None:
    """Each author sends a message that arrives at `now`, so much later than its way takes."""
    for author, clock, late_s in zip(AUTHORS, clocks, late, strict=True):
        lateness.arrived(author, now - delay_s - late_s + clock, now)


@given(CLOCKS, st.lists(st.floats(0, 30), min_size=9, max_size=9))
@settings(max_examples=80)
def test_clocks_that_are_wrong_by_any_amount_change_nothing(
    clocks: list[float], late: list[float]
) -> None:
    lateness = DeliveryLag()
    heard(lateness, clocks, [0.0] * 9, 100.0)
    assert lateness.late_s(100.0) == 0
    heard(lateness, clocks, late, 110.0)
    found = lateness.late_s(110.0)
    fresh = sorted(one for one in late if one < 19)
    if len(fresh) == len(late):
        assert found is not None
        assert math.isclose(found, fresh[4], abs_tol=0.02)


@given(
    CLOCKS,
    st.lists(st.floats(0, 25) | st.floats(-1e9, 1e9), min_size=4, max_size=4),
    st.lists(st.booleans(), min_size=4, max_size=4),
)
@settings(max_examples=200)
def test_less_than_half_of_the_authors_can_make_nobody_late(
    clocks: list[float], claims: list[float], waiting: list[bool]
) -> None:
    """Neither by what they say of a message that was judged nor of one that waits."""
    lateness = DeliveryLag()
    for now in (100.0, 101.0):
        heard(lateness, clocks, [0.0] * 9, now)
    for liar, clock, late_s, waits in zip(AUTHORS, clocks, claims, waiting, strict=False):
        sent_s = 102.0 - 0.1 - late_s + clock
        if waits:
            lateness.waits(liar, sent_s)
        else:
            lateness.arrived(liar, sent_s, 102.0)
    found = lateness.late_s(102.0)
    assert found is not None and found < 0.1


@given(CLOCKS, st.lists(st.floats(0, 19), min_size=9, max_size=9), st.integers(0, 8))
def test_what_waits_for_its_verdict_is_late_already(
    clocks: list[float], ages: list[float], num_strangers: int
) -> None:
    lateness = DeliveryLag()
    heard(lateness, clocks, [0.0] * 9, 100.0)
    sent = [120.0 - age - 0.1 + clock for age, clock in zip(ages, clocks, strict=True)]
    for author, sent_s in zip(AUTHORS, sent, strict=True):
        lateness.waits(author, sent_s)
    for number in range(num_strangers):
        lateness.waits(PeerId(f"stranger {number}"), 0.0)
    found = lateness.late_s(120.0)
    assert found is not None and math.isclose(found, sorted(ages)[4], abs_tol=0.05)
    for author, sent_s in zip(AUTHORS, sent, strict=True):
        lateness.judged(author, sent_s)
    assert lateness.late_s(120.0) == 0.0


def test_a_message_that_was_dropped_is_late_and_a_strangers_does_not_count() -> None:
    lateness = DeliveryLag()
    heard(lateness, [0.0] * 9, [0.0] * 9, 100.0)
    for number in range(90):
        lateness.dropped(PeerId(f"stranger {number}"), 100.0, 101.0)
    assert lateness.late_s(101.0) == 0
    for author in AUTHORS:
        lateness.dropped(author, 100.5, 101.0)
    found = lateness.late_s(101.0)
    assert found is not None and found > 2


def test_what_was_sent_before_or_long_ago_says_nothing_and_so_do_two_authors() -> None:
    lateness = DeliveryLag()
    heard(lateness, [0.0] * 9, [0.0] * 9, 100.0)
    heard(lateness, [0.0] * 9, [5.0] * 9, 110.0)
    found = lateness.late_s(110.0)
    assert found is not None and found > 4
    assert lateness.late_s(110.0, sent_since=106.0) is None
    assert lateness.late_s(140.0) is None
    two = DeliveryLag()
    for now, sent_s in ((100.0, 100.0), (110.0, 104.0)):
        for author in AUTHORS[:2]:
            two.arrived(author, sent_s, now)
    assert two.late_s(110.0) is None


def test_a_number_is_a_clock_where_it_could_be_one() -> None:
    assert sent_s_of(1_790_000_000_500_000_000) == 1_790_000_000.5
    assert sent_s_of(7) is None
    assert sent_s_of((1 << 64) - 1) is None


@pytest.mark.parametrize("judged", [ACCEPT, verdict(Reason.TOO_OLD)])
def test_a_mesh_is_behind_while_verdicts_are_awaited_and_not_when_they_came(
    judged: Verdict,
) -> None:
    bench = Bench()
    bench.join()
    bench.meet(A)
    for author in AUTHORS[:5]:
        bench.bring(A, said(1, author=author)._replace(sent_s=bench.now))
    bench.now += 5.0
    asked = [said(2, author=author)._replace(sent_s=bench.now) for author in AUTHORS[:5]]
    bench.say(A, messages=asked)
    bench.now += 3.0
    late_s = bench.mesh.late_s(bench.now, bench.now - 4.0)
    assert late_s is not None and math.isclose(late_s, 3.0, abs_tol=0.02)
    for message in asked:
        bench.mesh.judged(A, message, judged, bench.now)
    bench.now += 5.0
    for author in AUTHORS[:5]:
        bench.bring(A, said(3, author=author)._replace(sent_s=bench.now))
    late_s = bench.mesh.late_s(bench.now, bench.now - 20.0)
    assert late_s is not None and late_s < 0.1
