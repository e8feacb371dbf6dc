"""How sure a mean is, and whether a run learns: by simulated runs whose truth is known."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.view.measured import ci95_halfwidth, is_it_learning, is_reward_rising
from shoal_ipc.answers.held_out import (
    MIN_ITEMS,
    Evaluation,
    evaluation,
    held_out_words,
    interval_of_share,
)

SEED = 20261124
RUNS = 400


def halfwidth(share: float, num: int) -> float:
    return evaluation(1, share, num).halfwidth


def test_a_share_of_48_questions_is_sure_to_14_points() -> None:
    assert halfwidth(0.5, 48) == pytest.approx(0.136, abs=0.001)
    assert halfwidth(0.0, 48) == pytest.approx(0.053, abs=0.001)
    assert interval_of_share(0.5, 0) is None


@pytest.mark.parametrize("truth", [0.05, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("num", [8, 48, 200])
def test_the_interval_of_a_share_holds_the_truth_nineteen_times_of_twenty(
    truth: float, num: int
) -> None:
    dice, inside = random.Random(SEED), 0
    for _ in range(RUNS):
        share = sum(dice.random() < truth for _ in range(num)) / num
        low, high = interval_of_share(share, num) or (0.0, 0.0)
        inside += low <= truth <= high
    assert inside >= 0.92 * RUNS, inside


def test_the_interval_of_a_mean_is_that_of_its_rounds() -> None:
    assert ci95_halfwidth([0.5]) is None
    assert ci95_halfwidth([0.25, 0.75] * 10) == pytest.approx(
        1.96 * 0.2565 / math.sqrt(20), abs=1e-3
    )


def run_of(dice: random.Random, first: float, last: float) -> str:
    def rounds(mean: float) -> list[float]:
        return [min(1.0, max(0.0, dice.gauss(mean, 0.2))) for _ in range(20)]

    return is_reward_rising(rounds(first), rounds(last), 100).partition(":")[0]


def test_without_evaluations_runs_are_judged_by_their_rewards() -> None:
    dice = random.Random(SEED)
    level = [run_of(dice, 0.5, 0.5) for _ in range(RUNS)]
    rising = [run_of(dice, 0.3, 0.7) for _ in range(RUNS)]
    falling = [run_of(dice, 0.7, 0.3) for _ in range(RUNS)]
    assert level.count("Not clear") >= 0.92 * RUNS
    assert rising.count("Yes") >= 0.99 * RUNS
    assert falling.count("No") >= 0.99 * RUNS
    assert is_reward_rising([0.4, 0.6] * 10, [0.4, 0.6] * 10, 39) == ""


def evaluated_of(dice: random.Random, first: float, last: float, num: int) -> str:
    """The answer for a policy that knows a question with these chances, at first and at last."""
    difficulty = [dice.random() for _ in range(num)]
    shares = [sum(one < chance for one in difficulty) / num for chance in (first, last)]
    latest = evaluation(50, shares[1], num)
    return is_it_learning(evaluation(0, shares[0], num), latest).partition(":")[0]


@pytest.mark.parametrize("num", [24, 48, 192])
def test_held_out_questions_decide_from_the_second_evaluation_on(num: int) -> None:
    dice = random.Random(SEED)
    rising = [evaluated_of(dice, 0.10, 0.56, num) for _ in range(RUNS)]
    falling = [evaluated_of(dice, 0.56, 0.10, num) for _ in range(RUNS)]
    level = [evaluated_of(dice, 0.4, 0.4, num) for _ in range(RUNS)]
    assert rising.count("Yes") >= 0.9 * RUNS
    assert falling.count("No") >= 0.9 * RUNS
    assert set(level) == {"Not clear"}


@pytest.mark.parametrize("num", [24, 48, 192])
def test_other_answers_that_are_no_better_are_not_called_learning(num: int) -> None:
    """Each evaluation of an unchanged skill is drawn by itself: the worst case of the interval."""
    dice, verdicts = random.Random(SEED), []
    for _ in range(RUNS):
        first, last = (sum(dice.random() < 0.4 for _ in range(num)) / num for _ in range(2))
        verdicts.append(is_it_learning(evaluation(0, first, num), evaluation(25, last, num))[:9])
    assert verdicts.count("Not clear") >= 0.92 * RUNS


def test_the_sentence_names_both_shares_and_the_questions() -> None:
    found = is_it_learning(evaluation(0, 0.104, 192), evaluation(50, 0.5625, 192))
    assert (
        found == "Yes: right answers rose from 0.10 to 0.56 of 192 held-out questions, in 50 rounds"
    )
    assert is_it_learning(None, evaluation(0, 0.5, 192)) == ""
    assert is_it_learning(evaluation(0, 0.5, 192), evaluation(0, 0.5, 192)) == ""
    assert is_it_learning(Evaluation(round=0), Evaluation(round=9, pass_at_1=0.9)) == ""


@given(st.integers(0, 400), st.integers(0, 400), st.integers(1, 400), st.integers(0, 9))
def test_an_evaluation_in_words_has_its_count_and_its_start(
    first: int, last: int, num: int, rounds: int
) -> None:
    """No share of a few questions has decimals, and a first evaluation has no start."""
    first, last = min(first, num), min(last, num)
    words = held_out_words(evaluation(0, first / num, num), evaluation(rounds, last / num, num))
    assert f"of {num}" in words
    assert ("start" in words) == (rounds > 0)
    assert ("." in words) == (num >= MIN_ITEMS)
    if num < MIN_ITEMS:
        assert words.startswith(f"{last} of {num}")
