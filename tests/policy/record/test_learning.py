"""Alarms about a training run, and when they are raised: made-up courses, healthy and not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_policy.record.learning import MIN_CUT_ROUNDS, MIN_ROUNDS, RULES, Check, TrainingHistory
from shoal_policy.record.rolling_window import KEPT_ROUNDS
from shoal_policy.record.wrong_answer import ZeroRewardAnswer, pick_example
from tests.policy.record.scenarios import TrainingScenario, found, rising, steady

ENOUGH = 360
"""Rounds within which a fault has long raised its alarm."""


@settings(max_examples=12, derandomize=True)
@given(
    first=st.floats(0.02, 0.9),
    rise=st.floats(0, 1),
    pace=st.integers(10, 600),
    alike=st.floats(0, 0.8),
    cut=st.floats(0, 0.7),
    drawn=st.sampled_from([0, 8, 32]),
    used=st.floats(0.06, 1),
    seed=st.integers(0, 1 << 16),
)
def test_a_healthy_run_raises_no_alarm(
    first: float,
    rise: float,
    pace: int,
    alike: float,
    cut: float,
    drawn: int,
    used: float,
    seed: int,
) -> None:
    own = rising(first, first + rise * (0.93 - first), pace)
    scenario = TrainingScenario(own=own, alike=alike, cut=cut, drawn=drawn, used=used)
    learning = TrainingHistory()
    assert found(learning, scenario.run(ENOUGH, seed)) == {}
    assert learning.view().state == "ok"


@pytest.mark.parametrize(
    ("check", "scenario", "by"),
    [
        (Check.NOTHING_EARNED, TrainingScenario(own=steady(0.0)), MIN_ROUNDS),
        (Check.ALL_CUT, TrainingScenario(own=steady(0.5), cut=0.98), MIN_CUT_ROUNDS),
        (Check.NO_SIGNAL, TrainingScenario(own=steady(1.0)), MIN_ROUNDS),
        (Check.NO_SIGNAL, TrainingScenario(own=steady(0.5), alike=1.0), MIN_ROUNDS),
        (
            Check.REWARD_FELL,
            TrainingScenario(own=lambda n: 0.8 if n < 100 else 0.3),
            100 + MIN_ROUNDS,
        ),
        (Check.OTHERS_PASSED_OVER, TrainingScenario(own=steady(0.5), used=0.0), MIN_ROUNDS),
    ],
)
def test_each_fault_raises_its_alarm_in_time_and_no_other(
    check: Check, scenario: TrainingScenario, by: int
) -> None:
    learning = TrainingHistory()
    seen = found(learning, scenario.run(by))
    assert set(seen) == {check}
    for one in learning.findings():
        assert one.remedy
        assert "\n" not in one.message + one.remedy


@settings(max_examples=12, derandomize=True)
@given(used=st.floats(0, 0.01), easy=st.floats(0.95, 1), seed=st.integers(0, 1 << 16))
def test_others_who_answer_all_right_or_share_one_network_raise_no_alarm(
    used: float, easy: float, seed: int
) -> None:
    """A default swarm of four on one machine, once it has learned."""
    scenario = TrainingScenario(own=rising(0.4, 0.85, 200), used=used, easy=easy)
    assert found(TrainingHistory(), scenario.run(ENOUGH, seed)) == {}


def test_a_course_that_earns_seldom_earns_something() -> None:
    assert found(TrainingHistory(), TrainingScenario(own=steady(0.02)).run(ENOUGH)) == {}


def test_it_is_over_when_the_course_is_well_again_and_not_at_the_first_sign() -> None:
    learning = TrainingHistory()
    found(learning, TrainingScenario(own=steady(0.0), cut=1.0, used=0.0).run(40))
    assert set(learning.active) == {
        *(Check.NOTHING_EARNED, Check.ALL_CUT, Check.OTHERS_PASSED_OVER)
    }
    assert learning.view().state == "bad"
    found(learning, TrainingScenario(own=steady(0.5)).run(2, start=40))
    assert Check.ALL_CUT in learning.active
    found(learning, TrainingScenario(own=steady(0.5)).run(MIN_ROUNDS, start=42))
    assert learning.active == {}
    assert learning.view().state == "ok"


@settings(max_examples=12, derandomize=True)
@given(share=st.floats(0, 1), used=st.floats(0, 0.1), seed=st.integers(0, 1 << 16))
def test_no_finding_comes_and_goes(share: float, used: float, seed: int) -> None:
    """Whatever the level: of a scenario that stays as it is, a finding begins at most twice."""
    learning = TrainingHistory()
    begun: list[str] = []
    before: set[Check] = set()
    for one in TrainingScenario(own=steady(share), used=used).run(ENOUGH, seed):
        learning.add(one)
        begun += set(learning.active) - before
        before = set(learning.active)
    assert all(begun.count(check) <= 2 for check in begun)


def test_what_is_remembered_is_bounded() -> None:
    learning = TrainingHistory()
    found(learning, TrainingScenario(own=steady(0.5)).run(2 * KEPT_ROUNDS))
    assert len(learning.rounds) == KEPT_ROUNDS


def test_a_generate_only_node_has_only_alarms_about_its_answers() -> None:
    generates = TrainingHistory(trains=False)
    seen = found(generates, TrainingScenario(own=steady(0.0), cut=1.0, used=0.0).run(ENOUGH))
    assert set(seen) == {Check.NOTHING_EARNED, Check.ALL_CUT}
    assert (
        found(TrainingHistory(trains=False), TrainingScenario(own=steady(1.0), used=0).run(ENOUGH))
        == {}
    )


def test_before_there_is_enough_it_says_so() -> None:
    learning = TrainingHistory()
    assert learning.view().state == "early"
    found(learning, TrainingScenario(own=steady(0.0)).run(MIN_ROUNDS - 1))
    assert learning.view().state == "early"
    assert "29 rounds" in learning.view().message


def test_counts_say_why_others_are_passed_over() -> None:
    learning = TrainingHistory()
    found(learning, TrainingScenario(own=steady(0.5), used=0.0, drawn=8).run(MIN_ROUNDS))
    (one,) = learning.findings()
    assert "of 240 verified in 30 rounds 0 were trained on; 240 earned nothing" in one.message
    assert "shoal debug rollouts" in one.remedy


def test_an_answer_is_shown_with_what_to_do_about_it() -> None:
    learning = TrainingHistory()
    found(learning, TrainingScenario(own=steady(0.0), used=1.0).run(MIN_ROUNDS))
    assert learning.needs_example
    wrong = pick_example(
        [ZeroRewardAnswer(question="2+2?", expected="4", answer="", cut=False, tagged=True)]
    )
    assert wrong is not None
    learning.set_example(wrong)
    assert not learning.needs_example
    (one,) = learning.findings()
    assert "2+2?" in one.example
    assert "instructions" in one.remedy
    found(learning, TrainingScenario(own=steady(0.0), used=1.0).run(MIN_ROUNDS, start=MIN_ROUNDS))
    assert learning.needs_example, "after as many rounds as are judged together, a newer one"


def test_every_finding_is_tried_here_and_explained() -> None:
    (mark,) = test_each_fault_raises_its_alarm_in_time_and_no_other.pytestmark  # type: ignore[attr-defined]
    assert {check for check, _, _ in mark.args[1]} == set(Check) == set(RULES)
    page = (Path(__file__).resolve().parents[3] / "docs" / "troubleshooting.md").read_text()
    assert all(f"| `{check}` |" in page for check in Check)
