"""Whether a difference is more than chance: where there is none, 5 % of tests say so at 5 %."""

from __future__ import annotations

import random
import statistics

import pytest

from shoal_lab.significance import ALPHA, holm, paired, spread, welch

WITHIN_A_SWARM = 0.7
"""Correlation of nodes' totals within a swarm that shares, as measured: 0.65 to 0.82."""
NODES = 8


def swarm_mean(rng: random.Random) -> float:
    """A seed's value: the mean of its nodes, which are strongly correlated."""
    shared = rng.gauss(0, WITHIN_A_SWARM**0.5)
    return statistics.fmean(
        shared + rng.gauss(0, (1 - WITHIN_A_SWARM) ** 0.5) for _ in range(NODES)
    )


def share_found(trials: int, seeds: int, effect: float = 0.0) -> tuple[float, float]:
    """Return the shares of experiments in which either test finds a difference."""
    rng = random.Random(seeds)
    found = [0, 0]
    for _ in range(trials):
        one = [swarm_mean(rng) + effect for _ in range(seeds)]
        other = [swarm_mean(rng) for _ in range(seeds)]
        for place, p in enumerate(
            (paired([a - b for a, b in zip(one, other, strict=True)]), welch(one, other))
        ):
            assert p is not None
            found[place] += p < ALPHA
    return found[0] / trials, found[1] / trials


@pytest.mark.parametrize(
    ("seeds", "trials"),
    [(5, 400), *(pytest.param(seeds, 10_000, marks=pytest.mark.slow) for seeds in (3, 7))],
)
def test_where_there_is_no_difference_one_in_twenty_is_found(seeds: int, trials: int) -> None:
    by_pairs, by_groups = share_found(trials, seeds)
    chance = 3 * (ALPHA * (1 - ALPHA) / trials) ** 0.5  # three standard deviations
    assert abs(by_pairs - ALPHA) < chance
    assert 0.3 * ALPHA < by_groups < ALPHA + chance, "Welch's is conservative with few"


def test_a_difference_that_is_there_is_found() -> None:
    by_pairs, by_groups = share_found(60, 7, effect=2.5)
    assert min(by_pairs, by_groups) > 0.95


def test_one_unit_has_no_interval_and_no_p() -> None:
    assert spread([3.0]).half is None
    assert paired([1.0]) is None
    assert welch([1.0], [2.0, 3.0]) is None
    assert welch([1.0, 1.0], [2.0, 2.0]) is None


def test_an_interval_is_students() -> None:
    found = spread([1.0, 2.0, 3.0])
    assert found.mean == 2.0
    assert found.half == pytest.approx(4.302653 / 3**0.5, rel=1e-5)


def test_equal_differences_are_tested_by_their_signs() -> None:
    assert paired([0.0, 0.0]) == 1.0
    assert paired([1.0, 1.0]) == 0.5
    assert paired([1.0] * 7) == pytest.approx(0.0156, abs=1e-4)


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1.0, 100.0])
def test_differences_that_rounding_alone_tells_apart_are_alike(scale: float) -> None:
    """0.3 - 0.15 and 0.45 - 0.3 are one number; between them is 6e-17, and no measure of chance."""
    assert paired([0.85 - 1.0, 0.7 - 0.85]) == 0.5
    assert paired([0.1 + 0.2 - 0.3, 0.0]) == 1.0
    assert welch([0.1 + 0.2, 0.3], [0.4, 0.4]) is None
    rng, tried = random.Random(int(scale * 1000)), 0
    for _ in range(1000):
        at, count = rng.uniform(-scale, scale), rng.randint(2, 9)
        noisy = [at + rng.uniform(-1, 1) * 1e-15 * max(1.0, scale) for _ in range(count)]
        assert paired(noisy) in (1.0, 2.0 ** (1 - count)), noisy
        assert welch(noisy, noisy[::-1]) is None
        tried += 1
    assert tried == 1000


def test_a_small_spread_that_is_real_is_measured() -> None:
    assert paired([0.01, 0.010001]) == pytest.approx(3.18e-5, rel=1e-2)


def test_holm_is_step_down_and_never_falls() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx(
        {"a": 0.03, "c": 0.06, "b": 0.06}
    )
