"""Worked examples before questions: which are taken, and what is kept of it."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal_policy import few_shot
from shoal_policy.few_shot import CHOICE_FILE, add_few_shot, build_few_shot
from shoal_policy.model.loading import Policy
from shoal_policy.model.packed import can_pack
from shoal_policy.model.prompting import prompt_ids
from shoal_policy.tasks import TaskSource
from shoal_policy.trainer import Trainer
from shoal_tasks.families import example_coordinates
from shoal_tasks.rows import worked_answers_path
from shoal_tasks.spec import FamilySpec
from shoal_tasks.task_file import load_task_file
from shoal_tasks.types import ScoreRequest
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.digests import question_digest
from shoal_wire.rules import is_held_out
from shoal_wire.types import FinishReason
from tests.policy import tiny_models
from tests.policy import training_cases as case
from tests.policy.model.test_prompting import TEMPLATE
from tests.policy.tiny_models import refused
from tests.support import factories as make
from tests.support.task_files import task_file

SPECS = tuple(one for one in make.SPECS if one.generator in ("gcd", "count_bits", "spell_backward"))
HELPED = {"gcd_easy", "count_bits_easy"}
"""Families that the steered verifier gives signal to, where they are shown examples."""


@pytest.fixture(autouse=True)
def few_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_shot, "_NUM_TRIALS", 2)


class Steered(TaskSource):
    """Real questions. The first answers to trials are without examples: they earn nothing."""

    def __init__(self) -> None:
        super().__init__(make.real_worker(), SPECS)
        self.calls = 0

    def verify_own(self, groups: Sequence[Any]) -> list[list[float]]:
        self.calls += 1
        helped = self.calls % 2 == 0
        return [
            [
                float(helped and index % 2 and group.question.task.family in HELPED)
                for index, _ in enumerate(group.answers)
            ]
            for group in groups
        ]


def chat_policy(positions: int = 2048) -> Policy:
    return tiny_models.policy(positions=positions, template=TEMPLATE)


def chosen(
    folder: Path | None, *, tasks: TaskSource | None = None, begun: bool = False, **changes: Any
) -> dict[str, int]:
    """How many examples each family gets."""
    settings = case.settings(folder or Path("unused"), "chat", **{"max_new_tokens": 1, **changes})
    context = case.surroundings(tasks=tasks or Steered())
    made = add_few_shot(chat_policy(), settings, context, cache_dir=folder, has_begun=begun)
    return {name: shown.count for name, shown in made.few_shot.families.items()}


def test_auto_takes_what_gives_signal_says_so_and_tries_it_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    tasks = Steered()
    assert chosen(tmp_path, tasks=tasks) == dict.fromkeys(HELPED, 4)
    for spec in SPECS:
        [line] = [text for text in caplog.messages if text.startswith(f"{spec.name}: ")]
        assert ("4 worked examples: signal in 2 of 2" in line) == (spec.name in HELPED)
    assert tasks.calls == 2
    assert chosen(tmp_path, tasks=tasks) == dict.fromkeys(HELPED, 4)
    assert tasks.calls == 2, "a restart tries nothing again"


def test_results_for_other_sampling_or_damaged_ones_are_tried_again(tmp_path: Path) -> None:
    tasks = Steered()
    chosen(tmp_path, tasks=tasks)
    chosen(tmp_path, tasks=tasks, temperature=0.5)
    assert tasks.calls == 4
    chosen(tmp_path, tasks=tasks, temperature=0.5, prompt="plain")
    assert tasks.calls == 6
    for damaged in ("{", "[]", '{"key": 1, "families": []}', "\0"):
        (tmp_path / CHOICE_FILE).write_text(damaged)
        before = tasks.calls
        assert chosen(tmp_path, tasks=tasks) == dict.fromkeys(HELPED, 4)
        assert tasks.calls == before + 2


def test_a_number_is_taken_as_it_is_and_nothing_is_tried(tmp_path: Path) -> None:
    tasks = Steered()
    assert chosen(tmp_path, tasks=tasks, shots="2") == {spec.name: 2 for spec in SPECS}
    assert chosen(tmp_path, tasks=tasks, shots="0") == {}
    assert tasks.calls == 0 and not (tmp_path / CHOICE_FILE).exists()


def test_a_run_that_began_without_examples_continues_without(tmp_path: Path) -> None:
    assert chosen(tmp_path, begun=True) == {}
    chosen(tmp_path)
    assert chosen(tmp_path, begun=True) == dict.fromkeys(HELPED, 4)


def test_an_embedded_model_has_no_form_for_them() -> None:
    context = case.surroundings(tasks=Steered())
    tiny = tiny_models.policy()
    for requested in ("auto", "0"):
        settings = case.settings(Path("unused"), "tiny", shots=requested)
        assert add_few_shot(tiny, settings, context, cache_dir=None) is tiny
    with refused("does not support worked examples"):
        add_few_shot(
            tiny, case.settings(Path("unused"), "tiny", shots="1"), context, cache_dir=None
        )


def test_a_stop_ends_the_trials(tmp_path: Path) -> None:
    settings = case.settings(tmp_path, "chat")
    context = case.surroundings(tasks=Steered(), should_stop=lambda: True)
    made = add_few_shot(chat_policy(), settings, context, cache_dir=tmp_path)
    assert not made.few_shot.families and not (tmp_path / CHOICE_FILE).exists()


def shown_policy(count: int = 4) -> tuple[Policy, TaskSource]:
    tasks = Steered()
    settings = case.settings(Path("unused"), "chat", shots=str(count))
    policy = add_few_shot(chat_policy(), settings, case.surroundings(tasks=tasks), cache_dir=None)
    return policy, tasks


def test_a_question_is_never_shown_with_its_own_answer() -> None:
    policy, tasks = shown_policy()
    for family, shown in policy.few_shot.families.items():
        assert len(shown.examples) > shown.count
        for one in shown.examples:
            before = policy.few_shot.of(family, one.question)
            assert len(before) == shown.count
            assert one.question not in [other.question for other in before]
    drawn = tasks.held_out(150)
    own = [q.text in [e.question for e in policy.few_shot.of(q.task.family, q.text)] for q in drawn]
    assert not any(own)


def test_every_prompt_of_a_family_begins_with_what_is_computed_once() -> None:
    policy, tasks = shown_policy()
    assert can_pack(policy.model, policy.device, 1000)
    for question in tasks.held_out(40):
        shown = policy.few_shot.families[question.task.family]
        prompt = prompt_ids(policy, question)
        if question.text not in [one.question for one in shown.examples[: shown.count]]:
            assert policy.few_shot.num_shared(prompt) == len(shown.prefix) > 100


def test_examples_that_leave_no_room_are_fewer_or_none() -> None:
    tasks, settings = Steered(), case.settings(Path("unused"), "chat", shots="4")
    context = case.surroundings(tasks=tasks)
    counts = {
        positions: {
            shown.count
            for shown in add_few_shot(
                chat_policy(positions), settings, context, cache_dir=None
            ).few_shot.families.values()
        }
        for positions in (128, 512, 2048)
    }
    assert counts[2048] == {4} and max(counts[512]) < 4 and len(counts[128]) <= 1
    policy = add_few_shot(chat_policy(400), settings, context, cache_dir=None)
    for question in tasks.held_out(20):
        assert len(prompt_ids(policy, question)) < 400


@pytest.mark.parametrize("spec", make.SPECS, ids=lambda spec: spec.name)
def test_examples_earn_the_whole_reward(spec: FamilySpec) -> None:
    worker = make.real_worker()
    tasks = TaskSource(worker, [spec])
    questions = {item: task for task, item in _examples(spec)}
    shown = tasks.examples(6)[spec.name]
    assert len(shown) == 6
    assert len({one.answer for one in shown[:4]}) >= 3
    assert not any(is_held_out(question_digest(one.question)) for one in shown)
    assert not any(is_held_out(question_digest(one.text)) for one in tasks.trials(spec.name, 4))
    for one in shown:
        request = ScoreRequest(
            task=questions[one.question], text=one.answer, finish_reason=FinishReason.STOP
        )
        assert worker.score([request])[0].reward == 1


def _examples(spec: FamilySpec) -> list[tuple[Any, str]]:
    found = example_coordinates(spec, 192)
    texts = make.real_worker().questions(found)
    return list(zip(found, texts, strict=True))


def test_few_shot_prompts_show_training_rows_and_never_their_own_question(tmp_path: Path) -> None:
    rows = [{"question": f"{n} + 1?", "answer": str(n + 1)} for n in range(9)]
    spec = load_task_file(task_file(tmp_path, "sums", rows, held_out=2))
    with SyncTaskWorker([spec]) as worker:
        tasks = TaskSource(worker, [spec])
        policy = replace(chat_policy(), few_shot=build_few_shot(chat_policy(), tasks, 4))
        held_out = {one.text for one in tasks.held_out(2)}
        drawn = tasks.draw(random.Random(1), 100)
        tried = tasks.trials(spec.name, 4)
    shown = {one.text: policy.few_shot.of(spec.name, one.text) for one in drawn}
    assert len(shown) == 7 and not held_out & set(shown)
    for question, examples in shown.items():
        assert len(examples) == 4 and question not in [one.question for one in examples]
        assert not held_out & {one.question for one in examples}
        assert all(one.answer == f"<answer>{int(one.question[0]) + 1}</answer>" for one in examples)
    assert [one.text for one in tried] == [f"{n} + 1?" for n in (6, 5, 4, 3)]


def test_rows_show_the_working_before_their_answer(tmp_path: Path) -> None:
    rows = [
        {"question": f"{n} + 1?", "answer": f"One more than {n}.\n#### {n + 1}"} for n in range(9)
    ]
    spec = load_task_file(task_file(tmp_path, "sums", rows, held_out=2, answer_after="####"))
    with SyncTaskWorker([spec]) as worker:
        tasks = TaskSource(worker, [spec])
        whole = tasks.examples(4)["sums"]
        worked_answers_path(Path(spec.path)).write_text("{")
        bare = tasks.examples(4)["sums"]
    for number, (one, other) in enumerate(zip(whole, bare, strict=True)):
        assert other.answer == f"<answer>{number + 1}</answer>"
        assert one.answer == f"One more than {number}.\n{other.answer}"


class RecordedTrials(case.SteeredTasks):
    """Every second answer is right, but for the trials without examples."""

    def __init__(self, *, tries: bool) -> None:
        super().__init__()
        self._bare = tries

    def verify_own(self, groups: Sequence[Any]) -> list[list[float]]:
        bare, self._bare = self._bare, False
        return (
            [[0.0] * len(group.answers) for group in groups] if bare else super().verify_own(groups)
        )


def test_a_choice_that_cannot_be_kept_is_one_line(tmp_path: Path) -> None:
    with refused("cannot write ", "shots.json: No such file"):
        chosen(tmp_path / "nowhere")


def trainer(data_dir: Path, model: str, rounds: int, *, tries: bool = True) -> Trainer:
    tasks = RecordedTrials(tries=tries)
    return case.trainer(data_dir, model, tasks=tasks, rounds=rounds, max_new_tokens=2)


@pytest.mark.slow
def test_a_run_with_examples_resumes_exactly(tmp_path: Path) -> None:
    chat = tiny_models.tokenizer(template=TEMPLATE)
    model = tiny_models.save(tmp_path / "chat", tiny_models.model("qwen2", positions=2048), chat)
    whole = trainer(tmp_path / "whole", model, 2)
    assert len(whole.training_run.policy.few_shot.families) == len(make.SPECS)
    whole.run()
    trainer(tmp_path / "parts", model, 1).run()
    resumed = trainer(tmp_path / "parts", model, 2, tries=False)
    assert resumed.training_run.policy.few_shot == whole.training_run.policy.few_shot
    resumed.run()
    assert case.same_weights(
        case.weights(whole.training_run.policy), case.weights(resumed.training_run.policy)
    )
