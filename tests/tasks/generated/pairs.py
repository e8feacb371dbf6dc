"""Pairs of a data file and a reward function, run by shoal's worker and by plain Python."""

from __future__ import annotations

import asyncio
import copy
import inspect
import math
import random
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest import mock

from shoal_tasks.errors import FamilyError, TaskError
from shoal_tasks.families import coordinates
from shoal_tasks.limits import WorkerLimits
from shoal_tasks.spec import FamilySpec
from shoal_tasks.task_file import load_task_file
from shoal_tasks.types import GroupRequest
from shoal_tasks.worker.sync import BlockingPipes, SyncTaskWorker
from shoal_tasks.worker.worker_session import WorkerSession
from shoal_wire.types import FinishReason
from tests.support.task_files import task_file
from tests.tasks.data_forms import Row, text_of, write_binary, write_json, write_table
from tests.tasks.generated.rewards import GeneratedReward, generate

LIMITS: Final = WorkerLimits(item_cpu_seconds=0.3, request_timeout_seconds=60.0)
AT_ONCE: Final = 100
"""Families per worker: an unexpected refusal costs the others a new start."""
_RESERVED: Final = ("prompts", "completions", "completion_ids", "trainer_state", "log_metric")
_NARROW: Final = [0.0, 0.4]
"""A range that some functions exceed."""
_UNIT: Final = [0.0, 1.0]
_BOUNDS: Final = (*([_UNIT] * 3), *([[-1.0, 2.0]] * 2), *([[-0.5, 1.5]] * 2), _NARROW)
_TOLERANCE: Final = 1e-9


@dataclass(frozen=True)
class Pair:
    """A data file and a function, as a family."""

    name: str
    spec: FamilySpec
    rows: list[Row]
    reward: GeneratedReward
    bounds: list[float]
    data_form: str

    @property
    def may_be_refused(self) -> bool:
        """True if its worker may be refused: a shared worker would have to start again."""
        return bool(self.reward.refused) or self.bounds == _NARROW

    def __str__(self) -> str:
        return f"{self.name} ({self.reward.name}; {self.data_form}; {self.bounds})"


@dataclass(frozen=True)
class Outcome:
    """The result of one pair."""

    kind: str
    """`equal`, `refused`, or `DIFFERENT`."""
    what: str


def make_pair(seed: int, folder: Path, *, is_sound: bool | None = None) -> Pair | Outcome:
    """Write the files of one pair; return the difference if the data are refused."""
    rng = random.Random(seed)
    name = f"p{seed:05}"
    home = folder / name
    home.mkdir(parents=True)
    write = rng.choice([write_json, write_json, write_table, write_binary])
    rows = _rows(rng, write is write_table, is_typed=write is write_binary)
    written = write(rng, home, rows)
    reward = generate(rng, is_sound=is_sound)
    (home / "reward.py").write_text(reward.source)
    bounds = rng.choice(_BOUNDS)
    keys = {"rows": written.path.name, "reward": "reward.py", "reward_range": bounds}
    path = task_file(home, name, **keys, held_out=0)
    try:
        spec = load_task_file(path)
    except FamilyError as error:
        return Outcome("DIFFERENT", f"{name} ({written.form}): {error}")
    return Pair(name, spec, written.rows, reward, bounds, written.form)


def _rows(rng: random.Random, is_text: bool, *, is_typed: bool) -> list[Row]:
    """Return rows with questions that may repeat, an answer, and columns of any type."""
    count = rng.randint(3, 8)
    questions = [f"{text_of(rng)} {n}" for n in range(count)]
    if rng.random() < 0.3:
        questions[-1] = questions[0].upper() if rng.random() < 0.5 else questions[0]
    answers: list[Callable[[], Any]] = [
        lambda: str(rng.randint(-20, 2000)),
        lambda: f"{rng.randint(1, 9)}.{rng.randint(1, 9)}",
        lambda: text_of(rng).strip(),
        lambda: rf"\frac{{{rng.randint(1, 9)}}}{{{rng.randint(1, 9)}}}",
    ]
    if not is_text:
        answers += [lambda: rng.randint(-20, 2000), lambda: rng.choice([0.5, 1e-7, 3.0, -2.25])]
    if not is_text and not is_typed:
        answers.append(lambda: rng.choice([None, [1], {"a": 1}, "7", 7, True]))
    answer = rng.choice(answers)
    others: dict[str, Callable[[], Any]] = {
        "level": lambda: rng.randint(0, 5),
        "tags": lambda: [text_of(rng) for _ in range(rng.randint(0, 3))],
        "info": lambda: {"style": "rule", "truth": text_of(rng), "depth": rng.randint(0, 3)},
        "note": lambda: rng.choice([None, text_of(rng)]),
        "flag": lambda: rng.random() < 0.5,
        "Column two": lambda: text_of(rng),
        "a.b": lambda: text_of(rng),
        **{name: lambda: text_of(rng) for name in _RESERVED if rng.random() < 0.1},
    }
    chosen = rng.sample(list(others), rng.randint(0, 4))
    make = {name: (lambda: text_of(rng)) if is_text else others[name] for name in chosen}
    return [
        {"question": one, "answer": answer(), **{name: value() for name, value in make.items()}}
        for one in questions
    ]


def plain_reward(pair: Pair) -> Callable[[Row, Sequence[str]], list[float]]:
    """Return the function's rewards for a group in plain Python, called as TRL does, mapped to 0
    to 1.
    """
    module = types.ModuleType(f"plain_{pair.name}")
    with mock.patch.dict(sys.modules, {module.__name__: module}):
        exec(compile(pair.reward.source, "reward.py", "exec", dont_inherit=True), vars(module))
    function = module.reward
    low, high = pair.bounds

    def values(row: Row, texts: Sequence[str]) -> list[Any]:
        found = function(**_given(function, pair.reward, row, texts))
        return list(asyncio.run(found) if inspect.iscoroutine(found) else found)

    def shares(row: Row, texts: Sequence[str]) -> list[float]:
        groups = [[text] for text in texts] if pair.reward.is_alone else [texts]
        found = [value for group in groups for value in values(row, group)]
        numbers = [0.0 if one is None or math.isnan(one) else float(one) for one in found]
        return [(min(max(one, low), high) - low) / (high - low) for one in numbers]

    return shares


def _given(
    function: Callable[..., Any], reward: GeneratedReward, row: Row, texts: Sequence[str]
) -> dict[str, Any]:
    replied: list[Any] = list(texts)
    if reward.takes_messages:
        replied = [[{"role": "assistant", "content": text}] for text in texts]
    requested: Any = row["question"]
    if reward.has_prompt_messages:
        requested = [{"role": "user", "content": requested}]
    given: dict[str, Any] = {
        name: [copy.deepcopy(value) for _ in texts] for name, value in row.items()
    }
    given |= {
        "prompts": [requested] * len(texts),
        "completions": replied,
        "completion_ids": [list(text.encode()) for text in texts],
        "trainer_state": None,
        "log_extra": lambda *_: None,
        "log_metric": lambda *_: None,
    }
    parameters = inspect.signature(function).parameters.values()
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
        return given
    return {one.name: given[one.name] for one in parameters}


def completions_of(rng: random.Random, row: Row) -> list[str]:
    """Return a group of completions of a row, right and wrong ones."""
    a = str(row["answer"])
    texts = [
        *(
            a,
            f" {a}\n",
            f"<answer>{a}</answer>",
            rf"\boxed{{{a}}}",
            f"${a}$",
            f"The answer is {a}.",
        ),
        *("", "1", "0", "1 + 1", f"{a} + 0", f"({a}) * 1", "[1, 2]", "no idea", "Ω 日本\u2028x"),
        *("x" * 3000, row["question"], "<a>1</a>", "2024", '"7"', f"<think>{a}</think>no"),
    ]
    chosen = rng.sample(texts, rng.randint(2, 6))
    return chosen + chosen[:1] if rng.random() < 0.3 else chosen


class Together(SyncTaskWorker):
    """A client with one worker for all families: one process per file would take most of the
    time of these tests.
    """

    def __init__(self, families: Sequence[FamilySpec], *, limits: WorkerLimits) -> None:
        super().__init__(families, limits=limits)
        self._first = WorkerSession(families, limits, BlockingPipes())
        self._sessions = dict.fromkeys(self._sessions, self._first)


def compared(pairs: Sequence[Pair]) -> Iterator[Outcome]:
    """Score each pair by a real worker, and yield the comparison with plain Python."""
    sound = [pair for pair in pairs if not pair.may_be_refused]
    for pair in pairs:
        if pair.may_be_refused:
            yield from _scored([pair])
    while sound:
        batch, sound = sound[:AT_ONCE], sound[AT_ONCE:]
        yield from _scored(batch)


def _scored(batch: Sequence[Pair]) -> Iterator[Outcome]:
    left = list(batch)
    while left:
        try:
            with Together([pair.spec for pair in left], limits=LIMITS) as worker:
                # The worker may refuse a family later, by a check of its scores.
                found = [_outcome(pair, worker) for pair in left]
        except TaskError as error:
            guilty = [pair for pair in left if pair.name in str(error)] or left
            yield _refusal(guilty[0], str(error))
            left.remove(guilty[0])
            continue
        yield from found
        return


def _refusal(pair: Pair, error: str) -> Outcome:
    pattern = pair.reward.refused
    if not pattern and pair.bounds == _NARROW:
        pattern = r"outside reward_range \[0, 0.4\]: write reward_range = "
    is_line = "\n" not in error and len(error) < 400
    is_expected = bool(pattern) and re.search(pattern, error) is not None and is_line
    return Outcome("refused" if is_expected else "DIFFERENT", f"{pair}: {error}")


def _outcome(pair: Pair, worker: SyncTaskWorker) -> Outcome:
    rng = random.Random(pair.name)
    place = coordinates(pair.spec, rng.randrange(1 << 16))
    (question,) = worker.questions([place])
    rows = [row for row in pair.rows if row["question"] == question]
    texts = completions_of(rng, rows[0])
    answers = tuple((text, FinishReason.STOP) for text in texts)
    (results,) = worker.score_groups([GroupRequest(task=place, answers=answers)])
    errors = {result.error or "timed out" for result in results if result.error or result.timed_out}
    if errors:
        return _refusal(pair, "; ".join(sorted(errors)))
    if pair.reward.refused:
        return Outcome("DIFFERENT", f"{pair}: scored, though it must be refused")
    found = [result.reward for result in results]
    shares = plain_reward(pair)
    wanted = [shares(row, texts) for row in rows]
    if any(_equal(found, one) for one in wanted):
        return Outcome("equal", str(pair))
    return Outcome("DIFFERENT", f"{pair}: {texts}: {found}, plain Python {wanted}")


def _equal(found: Sequence[float], wanted: Sequence[float]) -> bool:
    return len(found) == len(wanted) and all(
        abs(one - other) <= _TOLERANCE for one, other in zip(found, wanted, strict=True)
    )


def count(outcomes: Mapping[str, int]) -> str:
    """Return the numbers of outcomes in one line."""
    return ", ".join(f"{number} {kind}" for kind, number in sorted(outcomes.items()))
