"""Quotas: full at the start, refilled at a rate, overdrawn only where the caller says so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_p2p.fair.buckets import KeyedBuckets, Rate, TokenBucket


def test_a_bucket_refills_to_its_burst_and_no_further() -> None:
    bucket = TokenBucket(Rate(burst=10, per_second=2), now=0.0)
    assert bucket.try_take(10, 0.0)
    assert not bucket.try_take(1, 0.4)
    assert bucket.wait_s(1, 0.4) == pytest.approx(0.1)
    assert bucket.try_take(1, 0.5)
    assert bucket.available(1000.0) == 10
    bucket.take(30, 1000.0)
    assert bucket.available(1000.0) == -20
    assert bucket.wait_s(1, 1000.0) == 10.5
    # More than a burst never comes together: wait for a full bucket.
    assert bucket.wait_s(99, 1000.0) == 15


def test_keys_have_buckets_of_their_own_and_the_oldest_is_forgotten() -> None:
    buckets: KeyedBuckets[str] = KeyedBuckets(Rate(burst=1, per_second=0.01), max_keys=2)
    for key in ("a", "b"):
        assert buckets.get(key, 0.0).try_take(1, 0.0)
    assert not buckets.get("a", 0.0).try_take(1, 0.0)
    assert buckets.get("c", 0.0).try_take(1, 0.0)
    assert not buckets.get("a", 0.0).try_take(1, 0.0)
    assert buckets.get("b", 0.0).try_take(1, 0.0)


def test_a_clock_that_goes_back_earns_nothing() -> None:
    bucket = TokenBucket(Rate(burst=10, per_second=1), now=100.0)
    bucket.take(10, 100.0)
    bucket.take(0, 50.0)
    assert bucket.available(100.0) == 0


@given(
    st.lists(
        st.tuples(st.sampled_from(["take", "try_take", "debit"]), st.floats(0, 50), st.floats(0, 9))
    )
)
def test_never_more_than_a_burst_and_owed_never_more_than_one(
    calls: list[tuple[str, float, float]],
) -> None:
    bucket, now = TokenBucket(Rate(burst=10, per_second=2), now=0.0), 0.0
    for name, amount, pause_s in calls:
        now += pause_s
        before = bucket.available(now)
        getattr(bucket, name)(amount, now)
        after = bucket.available(now)
        assert after <= 10
        if name == "debit":
            assert after == max(-10, before - amount)
        elif name == "take":
            assert after == before - amount
        else:
            assert after == (before - amount if amount <= before else before)
        # After the wait it is there, and not before; never more than a burst is waited for.
        wait_s, wanted = bucket.wait_s(amount, now), min(amount, 10)
        assert (wait_s == 0.0) == (after >= wanted)
        assert bucket.available(now + wait_s) == pytest.approx(max(wanted, after))
