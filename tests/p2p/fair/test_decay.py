"""Decay: halves, sums, and clocks that go back."""

from __future__ import annotations

import math

import pytest

from shoal_p2p.fair.buckets import HALF_LIFE_OF_TIME_CONSTANT, DecayingSum, remaining


@pytest.mark.parametrize("half_life_s", [0.5, 60.0, 900.0])
def test_an_amount_halves_every_half_life(half_life_s: float) -> None:
    for halvings in range(5):
        assert remaining(halvings * half_life_s, half_life_s) == pytest.approx(0.5**halvings)


def test_after_a_time_constant_one_in_e_is_left() -> None:
    assert remaining(10.0, 10.0 * HALF_LIFE_OF_TIME_CONSTANT) == pytest.approx(math.exp(-1.0))


def test_each_amount_of_a_sum_decays_from_its_own_time() -> None:
    total = DecayingSum(half_life_s=10.0, at=0.0)
    for at in (0.0, 3.0, 17.0):
        total.add(8.0, at)
    expected = sum(8.0 * 0.5 ** ((20.0 - at) / 10.0) for at in (0.0, 3.0, 17.0))
    assert total.now(20.0) == pytest.approx(expected)


def test_a_clock_that_goes_back_adds_nothing() -> None:
    total = DecayingSum(half_life_s=10.0, at=100.0)
    total.add(8.0, 100.0)
    assert total.now(50.0) == 8.0
    total.add(1.0, 50.0)
    assert total.now(100.0) == 9.0
