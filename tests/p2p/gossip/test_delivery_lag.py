"""Delivery lag, independent of the authors' clocks."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_p2p.gossip.delivery_lag import DeliveryLag, sent_s_from_seqno
from shoal_wire.types import PeerId
from shoal_wire.verdict import ACCEPT, Reason, Verdict, verdict
from tests.p2p.gossip.mesh_fixture import A, MeshFixture, a_message

AUTHORS = [PeerId(f"author {number}") for number in range(9)]
CLOCKS = st.lists(st.floats(-1e6, 1e6), min_size=9, max_size=9)


def deliver(
    lag: DeliveryLag,
    clocks: list[float],
    lags_s: list[float],
    now: float,
    *,
    delay_s: float = 0.1,
) -> None:
    """Let each author send a message that arrives at `now` with its given lag."""
    for author, clock, lag_s in zip(AUTHORS, clocks, lags_s, strict=True):
        lag.on_valid(author, now - delay_s - lag_s + clock, now)


@given(CLOCKS, st.lists(st.floats(0, 30), min_size=9, max_size=9))
@settings(max_examples=80)
def test_clock_errors_do_not_change_the_lag(clocks: list[float], lags_s: list[float]) -> None:
    lag = DeliveryLag()
    deliver(lag, clocks, [0.0] * 9, 100.0)
    assert lag.lag_s(100.0) == 0
    deliver(lag, clocks, lags_s, 110.0)
    found = lag.lag_s(110.0)
    fresh = sorted(one for one in lags_s if one < 19)
    if len(fresh) == len(lags_s):
        assert found is not None
        assert math.isclose(found, fresh[4], abs_tol=0.02)


@given(
    CLOCKS,
    st.lists(st.floats(0, 25) | st.floats(-1e9, 1e9), min_size=4, max_size=4),
    st.lists(st.booleans(), min_size=4, max_size=4),
)
@settings(max_examples=200)
def test_a_minority_of_authors_cannot_change_the_lag(
    clocks: list[float], claims: list[float], waiting: list[bool]
) -> None:
    """Neither by validated messages nor by pending ones."""
    lag = DeliveryLag()
    for now in (100.0, 101.0):
        deliver(lag, clocks, [0.0] * 9, now)
    for liar, clock, lag_s, waits in zip(AUTHORS, clocks, claims, waiting, strict=False):
        sent_s = 102.0 - 0.1 - lag_s + clock
        if waits:
            lag.on_pending(liar, sent_s)
        else:
            lag.on_valid(liar, sent_s, 102.0)
    found = lag.lag_s(102.0)
    assert found is not None and found < 0.1


@given(CLOCKS, st.lists(st.floats(0, 19), min_size=9, max_size=9), st.integers(0, 8))
def test_messages_that_wait_for_a_verdict_count(
    clocks: list[float], ages: list[float], num_strangers: int
) -> None:
    lag = DeliveryLag()
    deliver(lag, clocks, [0.0] * 9, 100.0)
    sent = [120.0 - age - 0.1 + clock for age, clock in zip(ages, clocks, strict=True)]
    for author, sent_s in zip(AUTHORS, sent, strict=True):
        lag.on_pending(author, sent_s)
    for number in range(num_strangers):
        lag.on_pending(PeerId(f"stranger {number}"), 0.0)
    found = lag.lag_s(120.0)
    assert found is not None and math.isclose(found, sorted(ages)[4], abs_tol=0.05)
    for author, sent_s in zip(AUTHORS, sent, strict=True):
        lag.on_judged(author, sent_s)
    assert lag.lag_s(120.0) == 0.0


def test_dropped_messages_count_except_those_of_unknown_authors() -> None:
    lag = DeliveryLag()
    deliver(lag, [0.0] * 9, [0.0] * 9, 100.0)
    for number in range(90):
        lag.on_dropped(PeerId(f"stranger {number}"), 100.0, 101.0)
    assert lag.lag_s(101.0) == 0
    for author in AUTHORS:
        lag.on_dropped(author, 100.5, 101.0)
    found = lag.lag_s(101.0)
    assert found is not None and found > 2


def test_old_messages_and_too_few_authors_give_no_lag() -> None:
    lag = DeliveryLag()
    deliver(lag, [0.0] * 9, [0.0] * 9, 100.0)
    deliver(lag, [0.0] * 9, [5.0] * 9, 110.0)
    found = lag.lag_s(110.0)
    assert found is not None and found > 4
    assert lag.lag_s(110.0, sent_since=106.0) is None
    assert lag.lag_s(140.0) is None
    two = DeliveryLag()
    for now, sent_s in ((100.0, 100.0), (110.0, 104.0)):
        for author in AUTHORS[:2]:
            two.on_valid(author, sent_s, now)
    assert two.lag_s(110.0) is None


def test_a_sequence_number_is_a_clock_if_it_is_plausible() -> None:
    assert sent_s_from_seqno(1_790_000_000_500_000_000) == 1_790_000_000.5
    assert sent_s_from_seqno(7) is None
    assert sent_s_from_seqno((1 << 64) - 1) is None


@pytest.mark.parametrize("judged", [ACCEPT, verdict(Reason.TOO_OLD)])
def test_the_mesh_lags_only_while_verdicts_are_pending(
    judged: Verdict,
) -> None:
    node = MeshFixture()
    node.join()
    node.connect(A)
    for author in AUTHORS[:5]:
        node.deliver(A, a_message(1, author=author)._replace(sent_s=node.now))
    node.now += 5.0
    pending = [a_message(2, author=author)._replace(sent_s=node.now) for author in AUTHORS[:5]]
    node.receive(A, messages=pending)
    node.now += 3.0
    lag_s = node.mesh.lag_s(node.now, node.now - 4.0)
    assert lag_s is not None and math.isclose(lag_s, 3.0, abs_tol=0.02)
    for message in pending:
        node.mesh.on_verdict(A, message, judged, node.now)
    node.now += 5.0
    for author in AUTHORS[:5]:
        node.deliver(A, a_message(3, author=author)._replace(sent_s=node.now))
    lag_s = node.mesh.lag_s(node.now, node.now - 20.0)
    assert lag_s is not None and lag_s < 0.1
