"""Makes the start of `shoal experiment planted`: easy families tagged, and a model for them.

    questions of `easy` ──▶ rows of files, answers between tags: what `--tasks` takes
    tiny-sparse ──▶ its own answers to those questions, between tags ──▶ training of a copy
                    right ones behind the marker, as in its own warm start, so that it can learn

Without the marker the copy is right as seldom as the original, because it is trained on the
original's answers. Only the form is new. It is made once, in a minute.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shoal_base.lines import say
from shoal_policy.tiny import embedded_folder
from shoal_tasks.families import EASY
from shoal_tasks.prompts import answer_text
from shoal_tasks.rows import parse_rows
from shoal_tasks.task_file import load_task_file
from shoal_tasks.types import TaskCoordinates
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.types import FinishReason, SamplingParams

if TYPE_CHECKING:  # torch
    from shoal_lab.warmstart.lessons import Lesson

MODEL: Final = Path(".shoal") / "experiment" / "models" / "tagged"
TASKS: Final = Path(".shoal") / "experiment" / "tasks" / "tagged"
FAMILIES: Final = tuple(f"{spec.name}_tagged" for spec in EASY)
TASK_FILES: Final = tuple(str(TASKS / f"{name}.toml") for name in FAMILIES)
TAGS: Final = ("<answer>", "</answer>")

_SOURCE: Final = "tiny-sparse"
_SEED: Final = 7  # any; fixed, so that the model is the same
_RATE: Final = 1e-3  # half of the rate of `warmstart`'s misled phase; a guess
_SAMPLING: Final = SamplingParams(temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=12)


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """The amounts of tasks and of training."""

    rows: int = 1500
    """Training questions of each family, sampled as in `easy`: some more than once."""
    held_out: int = 48
    """Most held-out questions of each family."""
    answers: int = 2
    """Answers of the original model to each training question."""
    steps: int = 400


def make_tagged_start(
    tasks: Path = TASKS, model: Path = MODEL, amount: Amount | None = None
) -> None:
    """Write task files and model to their folders, unless they exist. Takes a minute."""
    amount = amount or Amount()
    if not tasks.exists():
        _whole(tasks, lambda part: _write_tasks(part, amount))
    if not (model / "model.safetensors").exists():
        say(f"making {model}, about a minute of one core", error=True)
        _whole(model, lambda part: _write_model(part, _questions(tasks), amount))


def _whole(folder: Path, write: Callable[[Path], None]) -> None:
    """Make a folder atomically: an interruption leaves none."""
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    write(part)
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)


def _write_tasks(folder: Path, amount: Amount) -> None:
    rng = random.Random(_SEED)
    with SyncTaskWorker(EASY) as worker:
        for spec, name in zip(EASY, FAMILIES, strict=True):
            drawn = worker.draw(rng, amount.rows, families=(spec,))
            kept = worker.held_out(amount.held_out, families=(spec,))
            rows = _rows(worker, [task for task, _ in (*drawn, *kept)])
            (folder / f"{name}.jsonl").write_text("".join(rows))
            (folder / f"{name}.toml").write_text(
                f'name = "{name}"\nrows = "{name}.jsonl"\nanswer_format = "tagged"\n'
                f"held_out = {len({question for _, question in kept})}\n"
            )


def _rows(worker: SyncTaskWorker, tasks: Sequence[TaskCoordinates]) -> list[str]:
    return [
        json.dumps({"question": item.question, "answer": item.answer}) + "\n"
        for item in worker.items(tasks)
    ]


@dataclass(frozen=True, slots=True)
class _Question:
    family: str
    text: str
    answer: str


def _questions(tasks: Path) -> list[_Question]:
    """Every training question, each once."""
    found: dict[_Question, None] = {}
    for name in FAMILIES:
        spec = load_task_file(tasks / f"{name}.toml")
        rows = parse_rows(Path(spec.path).read_bytes(), name)
        held_out = spec.config["held_out"]
        assert isinstance(held_out, int)
        training = rows[: len(rows) - held_out]
        found |= dict.fromkeys(_Question(name, row.question, row.answer) for row in training)
    return list(found)


def _write_model(folder: Path, questions: Sequence[_Question], amount: Amount) -> None:
    import torch
    from tokenizers import AddedToken
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from shoal_lab.warmstart.building import Classroom, SupervisedPhase, deterministic, save

    source = embedded_folder(_SOURCE)
    assert source is not None
    phase = SupervisedPhase(
        name="tagged", steps=amount.steps, learning_rate=_RATE, misled_share=0.6, plain_share=0.0
    )
    with torch.random.fork_rng(devices=[]), deterministic():
        lessons = _lessons(questions, amount.answers)
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        # Plain text like the phrases, not special: a peer's text between tags stays an answer.
        tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in TAGS])
        model = AutoModelForCausalLM.from_pretrained(
            source, dtype=torch.float32, trust_remote_code=False
        )
        torch.manual_seed(_SEED)
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        Classroom(tokenizer, lessons, _SEED).teach(model, phase, lambda *_: None)
    save(model, tokenizer, folder)


def _lessons(questions: Sequence[_Question], answers: int) -> list[Lesson]:
    """Return lessons between tags: the original's answer as the misled one, and the right one."""
    import torch

    from shoal_lab.warmstart.lessons import Lesson
    from shoal_policy.generation.local import generate
    from shoal_policy.model.loading import load_policy
    from shoal_policy.model.prompting import encode_prompt

    policy = load_policy(_SOURCE, device="cpu", dtype="auto", seed=_SEED)
    drawn = generate(
        policy,
        [encode_prompt(policy, one.text) for one in questions],
        num_completions=answers,
        params=_SAMPLING,
        generator=torch.Generator().manual_seed(_SEED),
    )
    return [
        Lesson(
            family=item.family,
            question=item.text,
            right=answer_text(item.answer, tagged=True),
            wrong=(answer_text(sample.text, tagged=True),),
        )
        for item, samples in zip(questions, drawn, strict=True)
        for sample in samples
        if sample.finish_reason is FinishReason.STOP
    ]
