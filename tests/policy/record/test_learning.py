"""What is said of a training, and when: made-up courses, healthy and not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_policy.record.learning import CUT_ROUNDS, ROUNDS, RULES, Check, TrainingHistory
from shoal_policy.record.rolling_window import KEPT_ROUNDS
from shoal_policy.record.wrong_answer import ZeroRewardAnswer, commonest
from tests.policy.record.courses import Course, found, rising, steady

ENOUGH = 360
"""Rounds in which what is wrong has long been said."""


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
def test_of_a_healthy_course_nothing_is_said(
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
    course = Course(own=own, alike=alike, cut=cut, drawn=drawn, used=used)
    learning = TrainingHistory()
    assert found(learning, course.play(ENOUGH, seed)) == {}
    assert learning.view().state == "ok"


@pytest.mark.parametrize(
    ("check", "course", "by"),
    [
        (Check.NOTHING_EARNED, Course(own=steady(0.0)), ROUNDS),
        (Check.ALL_CUT, Course(own=steady(0.5), cut=0.98), CUT_ROUNDS),
        (Check.NO_SIGNAL, Course(own=steady(1.0)), ROUNDS),
        (Check.NO_SIGNAL, Course(own=steady(0.5), alike=1.0), ROUNDS),
        (Check.REWARD_FELL, Course(own=lambda n: 0.8 if n < 100 else 0.3), 100 + ROUNDS),
        (Check.OTHERS_PASSED_OVER, Course(own=steady(0.5), used=0.0), ROUNDS),
    ],
)
def test_what_is_wrong_is_said_in_time_and_nothing_else_is(
    check: Check, course: Course, by: int
) -> None:
    learning = TrainingHistory()
    seen = found(learning, course.play(by))
    assert set(seen) == {check}
    for one in learning.findings():
        assert one.remedy
        assert "\n" not in one.message + one.remedy


def test_a_course_that_earns_seldom_earns_something() -> None:
    assert found(TrainingHistory(), Course(own=steady(0.02)).play(ENOUGH)) == {}


def test_it_is_over_when_the_course_is_well_again_and_not_at_the_first_sign() -> None:
    learning = TrainingHistory()
    found(learning, Course(own=steady(0.0), cut=1.0, used=0.0).play(40))
    assert set(learning.standing) == {
        *(Check.NOTHING_EARNED, Check.ALL_CUT, Check.OTHERS_PASSED_OVER)
    }
    assert learning.view().state == "bad"
    found(learning, Course(own=steady(0.5)).play(2, start=40))
    assert Check.ALL_CUT in learning.standing
    found(learning, Course(own=steady(0.5)).play(ROUNDS, start=42))
    assert learning.standing == {}
    assert learning.view().state == "ok"


@settings(max_examples=12, derandomize=True)
@given(share=st.floats(0, 1), used=st.floats(0, 0.1), seed=st.integers(0, 1 << 16))
def test_no_finding_comes_and_goes(share: float, used: float, seed: int) -> None:
    """Whatever the level: of a course that stays as it is, a finding begins at most twice."""
    learning = TrainingHistory()
    begun: list[str] = []
    before: set[Check] = set()
    for one in Course(own=steady(share), used=used).play(ENOUGH, seed):
        learning.after(one)
        begun += set(learning.standing) - before
        before = set(learning.standing)
    assert all(begun.count(check) <= 2 for check in begun)


def test_what_is_remembered_is_bounded() -> None:
    learning = TrainingHistory()
    found(learning, Course(own=steady(0.5)).play(2 * KEPT_ROUNDS))
    assert len(learning.rounds) == KEPT_ROUNDS


def test_a_node_that_only_generates_is_told_of_its_answers_alone() -> None:
    generates = TrainingHistory(trains=False)
    seen = found(generates, Course(own=steady(0.0), cut=1.0, used=0.0).play(ENOUGH))
    assert set(seen) == {Check.NOTHING_EARNED, Check.ALL_CUT}
    assert found(TrainingHistory(trains=False), Course(own=steady(1.0), used=0).play(ENOUGH)) == {}


def test_before_there_is_enough_it_says_so() -> None:
    learning = TrainingHistory()
    assert learning.view().state == "early"
    found(learning, Course(own=steady(0.0)).play(ROUNDS - 1))
    assert learning.view().state == "early"
    assert "29 rounds" in learning.view().message


def test_counts_say_why_others_are_passed_over() -> None:
    learning = TrainingHistory()
    found(learning, Course(own=steady(0.5), used=0.0, drawn=8).play(ROUNDS))
    (one,) = learning.findings()
    assert "of 240 looked at in 30 rounds 0 were trained on; 240 earned nothing" in one.message
    assert "shoal debug rollouts" in one.remedy


def test_an_answer_is_shown_with_what_to_do_about_it() -> None:
    learning = TrainingHistory()
    found(learning, Course(own=steady(0.0), used=1.0).play(ROUNDS))
    assert learning.wants_example
    wrong = commonest(
        [ZeroRewardAnswer(question="2+2?", expected="4", answer="", cut=False, tagged=True)]
    )
    assert wrong is not None
    learning.show(wrong)
    assert not learning.wants_example
    (one,) = learning.findings()
    assert "2+2?" in one.example
    assert "instructions" in one.remedy
    found(learning, Course(own=steady(0.0), used=1.0).play(ROUNDS, start=ROUNDS))
    assert learning.wants_example, "after as many rounds as are judged together, a newer one"


def test_every_finding_is_tried_here_and_explained() -> None:
    (mark,) = test_what_is_wrong_is_said_in_time_and_nothing_else_is.pytestmark  # type: ignore[attr-defined]
    assert {check for check, _, _ in mark.args[1]} == set(Check) == set(RULES)
    page = (Path(__file__).resolve().parents[3] / "docs" / "troubleshooting.md").read_text()
    assert all(f"| `{check}` |" in page for check in Check)
