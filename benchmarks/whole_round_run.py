"""One run of one candidate of `whole_round`, in this process.

`python -m benchmarks.whole_round_run CANDIDATE CASE FOLDER`: ``ours``, ``trl_default`` or ``trl_N``
with N rows a micro-batch and no gradient checkpointing; the case as JSON; a folder that holds
what `write_random` writes. Prints a `Found` as its last line.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.update_cases import COMPLETIONS, EPSILON
from benchmarks.whole_round_cases import SEED, Case, RoundCounter, lot
from shoal_policy import sapo
from shoal_policy.__main__ import main
from shoal_policy.choice.advantage import has_signal
from shoal_policy.model.loading import load_policy
from shoal_policy.model.prompting import prompt_ids
from shoal_policy.rollouts import OwnGroup, Question
from shoal_policy.round.config import Round, round_config
from shoal_policy.tasks import TaskSource
from shoal_policy.trainer import Trainer
from shoal_settings.schema import Settings
from shoal_tasks.data_files import read_file
from shoal_tasks.families import PRESETS
from shoal_tasks.sandbox.audit import AuditGuard
from shoal_tasks.spec import FamilySpec
from shoal_tasks.task_file import load_task_file
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.types import FinishReason

DEFAULT_MICRO_BATCH = 8


def model_of(case: Case, folder: Path) -> str:
    """The case's model, as `--model` names it."""
    return str(folder / "model") if case.vocabulary else "tiny"


def flags_of(case: Case, folder: Path, data_dir: str) -> list[str]:
    """`shoal trainer`'s flags: no evaluation, and no checkpoint in a round that counts."""
    settings: dict[str, object] = {
        "data-dir": data_dir,
        "model": model_of(case, folder),
        "tasks": case.preset,
        "rounds": case.skipped + case.rounds,
        "seed": SEED,
        "local": case.questions,
        "external": 0,
        "completions": COMPLETIONS,
        "max-new-tokens": case.max_new_tokens,
        "learning-rate": case.learning_rate,
        "epsilon-low": EPSILON,
        "epsilon-high": EPSILON,
        "minibatches": 1,
        "shots": 0,
        "eval-every": 0,
        "checkpoint-seconds": 86_400,
        "device": "cpu",
        "log": "none",
    }
    if case.vocabulary:
        settings["tasks"] = f"{case.preset},{folder / 'words.toml'}"
    named = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
    return ["--alone", *named]


def run_ours(case: Case, folder: Path, counter: RoundCounter) -> None:
    """Run the real `shoal trainer --alone`. Raises RuntimeError when it fails."""
    finish, verify = Trainer._finish_round, TaskSource.verify_own

    def counting(trainer: Trainer, outcome: sapo.RoundOutcome) -> None:
        finish(trainer, outcome)
        counter.end_of_round(
            questions=[group.question.text for group in outcome.own],
            lengths=[answer.num_tokens for group in outcome.own for answer in group.answers],
            with_signal=outcome.record.groups_with_signal,
        )

    def by_lot(tasks: TaskSource, groups: Sequence[OwnGroup]) -> list[list[float]]:
        verify(tasks, groups)
        return [[lot(answer.text) for answer in group.answers] for group in groups]

    Trainer._finish_round = counting  # type: ignore[method-assign, assignment]
    if case.vocabulary:
        TaskSource.verify_own = by_lot  # type: ignore[method-assign, assignment]
    with tempfile.TemporaryDirectory(prefix="shoal-") as data_dir:
        if code := main(flags_of(case, folder, data_dir)):
            raise RuntimeError(f"{case.name}: our trainer ended with {code}")


def run_trl(case: Case, folder: Path, counter: RoundCounter, *, rows: int, keep: bool) -> None:
    """Run TRL's `train()`: `rows` a micro-batch; `keep` activations (no checkpointing)."""
    # By name: neither tells a type checker what it exports.
    datasets, trl = importlib.import_module("datasets"), importlib.import_module("trl")
    callbacks = importlib.import_module("transformers").TrainerCallback
    families = families_of(case, folder)
    policy = load_policy(model_of(case, folder), device="cpu", seed=SEED)
    questions = drawn(case, families)
    scoring = Scoring(case, questions, families, policy.eos_ids)

    class EndOfRound(callbacks):  # type: ignore[misc,valid-type]
        def on_step_end(self, *_given: Any, **_named: Any) -> None:
            counter.end_of_round(**scoring.taken())

    with tempfile.TemporaryDirectory(prefix="shoal-") as output_dir:
        trainer = trl.GRPOTrainer(
            model=policy.model,
            processing_class=policy.tokenizer,
            reward_funcs=scoring.rewards,
            args=trl.GRPOConfig(
                output_dir=output_dir,
                per_device_train_batch_size=rows,
                gradient_accumulation_steps=case.rows // rows,
                gradient_checkpointing=not keep,
                **trl_settings(case),
            ),
            train_dataset=datasets.Dataset.from_list(
                [
                    {"prompt": prompt_text(policy, question), "number": number}
                    for number, question in enumerate(questions)
                ]
            ),
            callbacks=[EndOfRound()],
        )
        trainer.train()


def trl_settings(case: Case) -> dict[str, Any]:
    """Return TRL's arguments for a candidate: our settings, and nothing outside the round."""
    return {
        "max_steps": case.skipped + case.rounds,
        "num_generations": COMPLETIONS,
        "max_completion_length": case.max_new_tokens,
        "learning_rate": case.learning_rate,
        "lr_scheduler_type": "constant",
        "epsilon": EPSILON,
        "loss_type": "grpo",
        "beta": 0.0,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "weight_decay": 0.0,
        "max_grad_norm": 1.0,
        "disable_dropout": True,
        "seed": SEED,
        "shuffle_dataset": False,
        "use_cpu": True,
        "bf16": False,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": False,
        "disable_tqdm": True,
        "report_to": [],
        "logging_strategy": "no",
        "save_strategy": "no",
        "eval_strategy": "no",
    }


def families_of(case: Case, folder: Path) -> tuple[FamilySpec, ...]:
    """What `flags_of` names."""
    if case.vocabulary:
        return (load_task_file(folder / "words.toml"),)
    return PRESETS[case.preset]


def drawn(case: Case, families: Sequence[FamilySpec]) -> list[Question]:
    """The questions that our trainer draws, round by round, made before TRL's first round."""
    config = round_config(Settings(), SEED)
    with SyncTaskWorker(families) as worker:
        tasks = TaskSource(worker, families)
        rounds = [
            Round(number=number + 1, policy_version=0, config=config)
            for number in range(case.skipped + case.rounds)
        ]
        return [one for this in rounds for one in tasks.draw(this.rng("tasks"), case.questions)]


def prompt_text(policy: Any, question: Question) -> str:
    """A question's prompt as text. Raises RuntimeError if TRL would tokenize it differently."""
    ids = prompt_ids(policy, question)
    text = str(policy.tokenizer.decode(ids, skip_special_tokens=False))
    if list(policy.tokenizer(text=[text])["input_ids"][0]) != ids:
        raise RuntimeError(f"as text this prompt is other tokens: {text!r}")
    return text


class Scoring:
    """TRL's reward function, by the task worker's own scorers in this process."""

    def __init__(
        self,
        case: Case,
        questions: Sequence[Question],
        families: Sequence[FamilySpec],
        eos_ids: frozenset[int],
    ) -> None:
        """Make the reference answers: a data set has them in addition to its prompts."""
        # Imported here: it loads the library of tasks, which our trainer's process does not have.
        from shoal_tasks.worker.generate import RowTasks, TaskStream
        from shoal_tasks.worker.item_limit import ItemLimit
        from shoal_tasks.worker.scoring import score

        self._score = score
        self._case, self._questions, self._eos_ids = case, questions, eos_ids
        self._specs = {family.name: family for family in families}
        streams = {
            family.name: RowTasks(
                family, read_file(Path(family.path)), (), ItemLimit(60.0), AuditGuard()
            )
            if family.path
            else TaskStream(family)
            for family in families
        }
        places = [question.coordinates for question in questions]
        self._items = [streams[at.family].item(at.seed, at.index) for at in places]
        self._taken: dict[str, Any] = {}

    def rewards(
        self,
        *,
        completions: Sequence[str],
        completion_ids: Sequence[Sequence[int]],
        number: Sequence[int],
        **_named: Any,
    ) -> list[float]:
        """Return each answer's reward. Raises RuntimeError when called twice in a step."""
        if self._taken:
            raise RuntimeError("TRL has generated twice in one step")
        found = [
            self._reward(at, text, ids)
            for at, text, ids in zip(number, completions, completion_ids, strict=True)
        ]
        groups = [found[at : at + COMPLETIONS] for at in range(0, len(found), COMPLETIONS)]
        self._taken = {
            "questions": [self._questions[at].text for at in number[::COMPLETIONS]],
            "lengths": [len(ids) for ids in completion_ids],
            "with_signal": sum(map(has_signal, groups)),
        }
        return found

    def taken(self) -> dict[str, Any]:
        """Return the step's figures, for `RoundCounter.end_of_round`."""
        taken, self._taken = self._taken, {}
        return taken

    def _reward(self, at: int, text: str, ids: Sequence[int]) -> float:
        ended = bool(ids) and ids[-1] in self._eos_ids
        finish = FinishReason.STOP if ended else FinishReason.LENGTH
        spec = self._specs[self._questions[at].task.family]
        reward = self._score(spec, self._items[at], text, finish)
        return lot(text) if self._case.vocabulary else reward


def run(candidate: str, case: Case, folder: Path) -> RoundCounter:
    """Run a candidate to its end."""
    counter = RoundCounter(case)
    match candidate.partition("_"):
        case ("ours", _, _):
            run_ours(case, folder, counter)
        case ("trl", _, "default"):
            run_trl(case, folder, counter, rows=DEFAULT_MICRO_BATCH, keep=False)
        case ("trl", _, rows):
            run_trl(case, folder, counter, rows=int(rows), keep=True)
        case _:
            raise ValueError(candidate)
    return counter


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(run(sys.argv[1], Case(**json.loads(sys.argv[2])), Path(sys.argv[3])).found().to_json())
