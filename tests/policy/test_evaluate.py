"""Held-out evaluation: fixed questions that training never draws, greedy, without side effects."""

from __future__ import annotations

import random

import pytest

from shoal_policy.evaluate import (
    CHEAP_EVAL_EVERY,
    EvaluationStopped,
    HeldOut,
    evaluate,
    evaluation_interval,
)
from shoal_policy.model.loading import Policy
from shoal_policy.tasks import TaskSource
from shoal_policy.tiny import Profile, assets_path
from shoal_settings.real_models import EVAL_EVERY
from shoal_settings.schema import Settings
from shoal_tasks.families import TRAIN_SEED_MIN
from tests.policy import training_cases as case
from tests.support import factories as make


def source() -> TaskSource:
    return TaskSource(make.real_worker(), make.SPECS)


def evaluated(policy: Policy, tasks: TaskSource) -> HeldOut:
    return evaluate(policy, tasks, round_number=7, per_family=4, sampling=case.SAMPLING)


def test_questions_are_the_same_each_time_and_never_drawn_in_training() -> None:
    tasks = source()
    questions = tasks.held_out(6)
    assert questions == tasks.held_out(6)
    assert len({question.text for question in questions}) > 1
    assert all(question.task.seed < TRAIN_SEED_MIN for question in questions)
    drawn = tasks.draw(random.Random(1), 20)
    assert all(question.task.seed >= TRAIN_SEED_MIN for question in drawn)
    assert {question.task.family for question in questions} == {s.name for s in make.SPECS}


def test_the_right_answers_are_counted_by_family() -> None:
    class Marked(TaskSource):
        """The first question of each family earns all, the second half of it."""

        def verify_own(self, groups):
            assert all(len(group.answers) == 1 for group in groups)
            return [[(1.0, 0.5, 0.0, 0.0)[index]] for index in range(len(groups))]

    found = evaluated(case.policy(), Marked(make.real_worker(), make.SPECS))
    assert found.round == 7
    assert found.pass_at_1 == 0.25
    assert found.reward == 0.375
    assert found.families == {spec.name: 0.25 for spec in make.SPECS}
    assert found.num_items == 4 * len(make.SPECS)
    assert found.to_json()["pass@1"] == 0.25


def test_it_hears_a_stop() -> None:
    with pytest.raises(EvaluationStopped):
        evaluate(
            case.policy(),
            source(),
            round_number=1,
            per_family=1,
            sampling=case.SAMPLING,
            should_stop=lambda: True,
        )


@pytest.mark.parametrize(
    ("model", "asked", "rounds"),
    [
        ("tiny", -1, CHEAP_EVAL_EVERY),
        ("tiny-sparse", -1, CHEAP_EVAL_EVERY),
        ("some/hub-model", -1, EVAL_EVERY),
        ("some/hub-model", 10, 10),
        ("tiny", 0, 0),
        (str(assets_path(Profile.DENSE)), -1, 0),  # a folder of little weight
    ],
)
def test_by_default_what_is_cheap_is_evaluated_more_often(
    model: str, asked: int, rounds: int
) -> None:
    assert evaluation_interval(Settings(model=model, eval_every=asked)) == rounds
