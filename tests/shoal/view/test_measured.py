"""How sure a mean is, and whether a run learns: by simulated runs whose truth is known."""

from __future__ import annotations

import math
import random

import pytest

from shoal.view.measured import ci95_halfwidth, is_it_learning, within_of_share

SEED = 20261124
RUNS = 400


def test_a_share_of_48_questions_is_sure_to_14_points() -> None:
    assert within_of_share(0.5, 48) == pytest.approx(0.136, abs=0.001)
    assert within_of_share(0.0, 48) == pytest.approx(0.053, abs=0.001)
    assert within_of_share(0.5, 0) is None


@pytest.mark.parametrize("truth", [0.05, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("num", [8, 48, 200])
def test_the_interval_of_a_share_holds_the_truth_nineteen_times_of_twenty(
    truth: float, num: int
) -> None:
    dice, inside = random.Random(SEED), 0
    for _ in range(RUNS):
        share = sum(dice.random() < truth for _ in range(num)) / num
        middle = (share * num + 2) / (num + 4)
        inside += abs(middle - truth) <= (within_of_share(share, num) or 0.0)
    assert inside >= 0.92 * RUNS, inside


def test_the_interval_of_a_mean_is_that_of_its_rounds() -> None:
    assert ci95_halfwidth([0.5]) is None
    assert ci95_halfwidth([0.25, 0.75] * 10) == pytest.approx(
        1.96 * 0.2565 / math.sqrt(20), abs=1e-3
    )


def run_of(dice: random.Random, first: float, last: float) -> str:
    def rounds(mean: float) -> list[float]:
        return [min(1.0, max(0.0, dice.gauss(mean, 0.2))) for _ in range(20)]

    return is_it_learning(rounds(first), rounds(last), 100).partition(":")[0]


def test_runs_are_judged_by_their_rewards() -> None:
    dice = random.Random(SEED)
    level = [run_of(dice, 0.5, 0.5) for _ in range(RUNS)]
    rising = [run_of(dice, 0.3, 0.7) for _ in range(RUNS)]
    falling = [run_of(dice, 0.7, 0.3) for _ in range(RUNS)]
    assert level.count("Not clear") >= 0.92 * RUNS
    assert rising.count("Yes") >= 0.99 * RUNS
    assert falling.count("No") >= 0.99 * RUNS


def test_held_out_questions_decide_where_rewards_do_not() -> None:
    level = [0.4, 0.6] * 10
    found = is_it_learning(level, level, 90, held_out=[0.1, 0.45], num_held_out=56)
    assert found.startswith("Yes: 0.10 of held-out questions were right at the start, 0.45")
    assert (
        is_it_learning(level, level, 90, held_out=[0.4, 0.45], num_held_out=56)[:9] == "Not clear"
    )
    assert is_it_learning(level, level, 39) == ""
