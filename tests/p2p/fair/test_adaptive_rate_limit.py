"""The rate limit keeps as much free as the greediest network uses."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_p2p.fair.buckets import AdaptiveRateLimit, Rate

RATE = Rate(burst=40, per_second=10)
networks = st.sampled_from(["a", "b", "c", "d"])


@given(st.lists(st.tuples(networks, st.floats(0, 60), st.floats(0, 9)), max_size=20), networks)
def test_after_the_wait_it_may_take_and_not_before(
    taken: list[tuple[str, float, float]], asker: str
) -> None:
    rate, now = AdaptiveRateLimit(RATE, 0.0), 0.0
    for network, amount, pause_s in taken:
        rate.take(network, amount, now)
        now += pause_s
    wait_s = rate.wait_s(asker, now)
    assert rate.wait_s(asker, now + wait_s) == pytest.approx(0.0, abs=1e-9)
    assert rate.wait_s(asker, now + wait_s / 2) == pytest.approx(wait_s / 2, abs=1e-9)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 30), st.floats(0, 0.2)), min_size=1, max_size=300))
def test_who_has_taken_nothing_never_waits_for_networks_that_keep_to_it(
    asks: list[tuple[int, float]],
) -> None:
    rate, now = AdaptiveRateLimit(RATE, 0.0), 0.0
    for network, pause_s in asks:
        now += pause_s
        # A little at a time: what is taken at once may be an overdraft.
        while rate.wait_s(str(network), now) == 0.0:
            rate.take(str(network), 0.01, now)
        assert rate.wait_s("a newcomer", now) == 0.0


def test_one_alone_has_half_of_the_burst_and_of_the_rate() -> None:
    rate, taken = AdaptiveRateLimit(RATE, 0.0), 0
    for step in range(1000):
        while rate.wait_s("alone", step / 10) == 0.0:
            rate.take("alone", 1, step / 10)
            taken += 1
    assert taken == pytest.approx((RATE.burst + RATE.per_second * 100) / 2, rel=0.02)
