"""Group advantages: against the textbook formula, and never NaN whatever the rewards."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_policy.choice.advantage import group_advantages, has_signal

rewards = st.lists(st.floats(min_value=-1e6, max_value=1e6), min_size=2, max_size=16)


def test_unscaled_keeps_the_rewards_unit() -> None:
    assert group_advantages([0.0, 2.0], "none") == [-1.0, 1.0]


@pytest.mark.parametrize("equal", [[], [1.0], [0.3] * 7, [0.1 + 0.2, 0.1 + 0.2]])
def test_no_signal_gives_zeros(equal: list[float]) -> None:
    assert not has_signal(equal)
    assert group_advantages(equal) == [0.0] * len(equal)


@given(rewards)
def test_agrees_with_the_formula(values: list[float]) -> None:
    got = group_advantages(values)
    if not has_signal(values):
        assert got == [0.0] * len(values)
        return
    mean, std = statistics.fmean(values), statistics.stdev(values)
    expected = [(value - mean) / (std + 1e-4) for value in values]
    assert got == pytest.approx(expected, rel=1e-6, abs=1e-6)


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=16))
def test_always_finite(values: list[float]) -> None:
    for scale in ("group", "none"):
        got = group_advantages(values, scale)
        assert len(got) == len(values)
        assert all(map(math.isfinite, got))
