"""Held-out evaluation: fixed questions that training never draws, greedy, without side effects."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from shoal_policy.evaluate import (
    CHEAP_EVAL_EVERY,
    EvaluationStopped,
    HeldOut,
    evaluate,
    evaluation_interval,
    example_of,
)
from shoal_policy.model.loading import Policy
from shoal_policy.rollouts import Answer, OwnGroup
from shoal_policy.tasks import TaskSource
from shoal_policy.tiny import Profile, assets_path
from shoal_settings.real_models import EVAL_EVERY
from shoal_settings.schema import Settings
from shoal_tasks.families import TRAIN_SEED_MIN
from shoal_tasks.task_file import load_task_file
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.types import FinishReason
from tests.policy import training_cases as case
from tests.support import factories as make
from tests.support.task_files import task_file


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


def answer_of(text: str) -> Answer:
    return Answer(ids=(1,), text=text, finish_reason=FinishReason.STOP, logprobs=(0.0,))


def test_one_question_is_followed_and_none_is_chosen_for_a_good_answer() -> None:
    groups = [
        OwnGroup(question=question, answers=(answer_of(f"{n}"),))
        for n, question in enumerate(source().held_out(3))
    ]
    answered = list(zip(groups, [1.0, 0.5, *[0.0] * (len(groups) - 2)], strict=True))
    first = example_of(answered, None)
    assert first == {"question": groups[1].question.text, "answer": "1", "reward": 0.5}
    later = example_of([(group, 1.0) for group in groups], first["question"])
    assert later == {**first, "reward": 1.0}, "the same question, right or not"
    assert example_of([(group, 1.0) for group in groups], None) is None
    game = replace(groups[0], question=replace(groups[0].question, max_turns=3))
    assert example_of([(game, 0.0)], None) is None


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


def test_rewards_outside_their_range_are_counted_once(tmp_path: Path) -> None:
    (tmp_path / "reward.py").write_text(
        "def reward(completions):\n    return [2 * ('!' in text) for text in completions]\n"
    )
    rows = [{"question": f"{n} + 1?", "answer": str(n + 1)} for n in range(9)]
    spec = load_task_file(task_file(tmp_path, "sums", rows, reward="reward.py"))
    with SyncTaskWorker([spec]) as worker:
        tasks = TaskSource(worker, [spec])
        (question,) = tasks.draw(random.Random(1), 1)
        answers = tuple(
            Answer(ids=(1,), text=text, finish_reason=FinishReason.STOP, logprobs=())
            for text in ("!", "", "1!")
        )
        assert tasks.verify_own([OwnGroup(question=question, answers=answers)]) == [[1, 0, 1]]
    assert [tasks.take_num_out_of_range() for _ in range(2)] == [2, 0]


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
    ("model", "requested", "rounds"),
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
    model: str, requested: int, rounds: int
) -> None:
    assert evaluation_interval(Settings(model=model, eval_every=requested)) == rounds
