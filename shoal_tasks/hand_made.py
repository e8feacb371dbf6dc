"""Rollout groups without a trainer: a person's or script's completions, from rows of JSON.

    {"family": …, "seed": …, "index": …, "completions": ["…", …]}     a task that peers regenerate
    {"question": …, "answer": …, "completions": […]}                  if the swarm allows such

Every row is checked before any is published; an error names its line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shoal_tasks.errors import GenerationError
from shoal_tasks.families import TRAIN_SEED_MIN
from shoal_tasks.spec import FamilySpec
from shoal_tasks.types import Split, TaskCoordinates
from shoal_tasks.wire_tasks import make_task
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.digests import question_digest
from shoal_wire.limits import MAX_INDEX, MAX_INLINE_TASK_BYTES, MAX_SEED
from shoal_wire.manifest import SwarmRules
from shoal_wire.rules import check_completion, is_held_out
from shoal_wire.types import Completion, Digest, FinishReason, InlineTask, RolloutGroup, Task

_INLINE_FAMILY = "inline"
_INLINE_VERIFIER = "exact"
_INLINE_VERSION = "1"


class RowError(Exception):
    """A row that cannot be published; one line that names the row's line."""


@dataclass(frozen=True, slots=True)
class _Parsed:
    line: int
    completions: tuple[Completion, ...]
    task: Task | TaskCoordinates
    """Coordinates still lack the question's digest; an inline task is complete."""


def read_groups(
    lines: Iterable[str],
    *,
    families: Sequence[FamilySpec],
    rules: SwarmRules,
    worker: SyncTaskWorker,
) -> list[RolloutGroup]:
    """Return one group for each non-empty line, in order.

    Raises:
        RowError: peers would not accept a row.
        TaskError: the task worker failed.
    """
    known = {spec.name: spec for spec in families}
    rows = [
        _parse(number, line, known, rules)
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    try:
        made = iter(
            worker.questions_and_splits(
                [row.task for row in rows if isinstance(row.task, TaskCoordinates)]
            )
        )
    except GenerationError as error:
        line = next(row.line for row in rows if row.task == error.task)
        raise RowError(f"line {line}: these coordinates have no question ({error})") from None
    return [RolloutGroup(task=_task(row, known, made), completions=row.completions) for row in rows]


def completion_of(text: str, finish_reason: FinishReason = FinishReason.STOP) -> Completion:
    """Return a completion without token counts from a model: words and an end count as tokens."""
    return Completion(text=text, num_tokens=len(text.split()) + 1, finish_reason=finish_reason)


def _parse(line: int, text: str, known: Mapping[str, FamilySpec], rules: SwarmRules) -> _Parsed:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        raise RowError(f"line {line} is not JSON") from None
    if not isinstance(row, dict):
        raise RowError(f"line {line} is not a JSON object")
    completions = _completions(line, row, rules)
    if "family" in row:
        return _Parsed(line, completions, _coordinates(line, row, known))
    return _Parsed(line, completions, _inline(line, row, rules))


def _completions(line: int, row: Mapping[str, Any], rules: SwarmRules) -> tuple[Completion, ...]:
    given = row.get("completions")
    if not isinstance(given, list):
        raise RowError(f"line {line} has no list of completions")
    if not rules.min_completions <= len(given) <= rules.max_completions:
        raise RowError(
            f"line {line} has {len(given)} completions: this swarm accepts "
            f"{rules.min_completions} to {rules.max_completions} for a question"
        )
    found = tuple(_completion(line, item) for item in given)
    for completion in found:
        fault = check_completion(completion, rules)
        if fault is not None:
            raise RowError(f"line {line}: peers would refuse a completion: {fault}")
    return found


def _completion(line: int, item: Any) -> Completion:
    if isinstance(item, str):
        return completion_of(item)
    if isinstance(item, dict) and isinstance(item.get("text"), str):
        try:
            return completion_of(item["text"], FinishReason(item.get("finish_reason", "stop")))
        except ValueError:
            raise RowError(f"line {line}: finish_reason must be stop or length") from None
    raise RowError(f"line {line}: a completion must be a text or an object with a text")


def _coordinates(
    line: int, row: Mapping[str, Any], known: Mapping[str, FamilySpec]
) -> TaskCoordinates:
    spec = known.get(row["family"]) if isinstance(row["family"], str) else None
    if spec is None:
        raise RowError(
            f"line {line}: family {row['family']!r} is not in this swarm; it has {', '.join(known)}"
        )
    seed, index = row.get("seed"), row.get("index", 0)
    for name, value, limit in (("seed", seed, MAX_SEED), ("index", index, MAX_INDEX)):
        if type(value) is not int or not 0 <= value < limit:
            raise RowError(f"line {line}: {name} must be a whole number below {limit}")
    if row["seed"] < TRAIN_SEED_MIN:
        raise RowError(
            f"line {line}: seed {row['seed']} is reserved for evaluation; "
            f"use seeds from {TRAIN_SEED_MIN} on"
        )
    return TaskCoordinates(
        family=spec.name, config_digest=spec.digest, seed=int(row["seed"]), index=index
    )


def _inline(line: int, row: Mapping[str, Any], rules: SwarmRules) -> Task:
    question, answer = row.get("question"), row.get("answer")
    if not isinstance(question, str) or not isinstance(answer, str):
        raise RowError(f"line {line} needs family and seed, or question and answer")
    if not rules.allow_inline_tasks:
        raise RowError(f"line {line}: this swarm accepts no inline questions; use family and seed")
    for text in (question, answer):
        if "\0" in text or len(text.encode(errors="replace")) > MAX_INLINE_TASK_BYTES:
            raise RowError(
                f"line {line}: a text is over {MAX_INLINE_TASK_BYTES} bytes or has a NUL"
            )
    return Task(
        family=_INLINE_FAMILY,
        config_digest=Digest(bytes(16)),
        seed=0,
        index=0,
        verifier=_INLINE_VERIFIER,
        verifier_version=_INLINE_VERSION,
        question_digest=Digest(question_digest(question)),
        inline=InlineTask(question=question, answer=answer),
    )


def _task(row: _Parsed, known: Mapping[str, FamilySpec], made: Iterator[tuple[str, Split]]) -> Task:
    """Return a row's task. Raises RowError if it is not for training."""
    if isinstance(row.task, Task):
        task = row.task
        part = Split.HELD_OUT if is_held_out(task.question_digest) else Split.TRAINING
    else:
        question, part = next(made)
        task = make_task(row.task, question, known[row.task.family])
    if part is Split.HELD_OUT:
        raise RowError(
            f"line {row.line}: the eighth of all questions that this one belongs to, by its "
            "text, is reserved for evaluation; publish another, or reword it"
        )
    if part is Split.UNUSED:
        raise RowError(f"line {row.line}: this question is not used for training; publish another")
    if part is Split.UNAVAILABLE:
        raise RowError(
            f"line {row.line}: the OpenEnv server of its family is unavailable; try again later"
        )
    return task
