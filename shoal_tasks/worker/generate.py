"""Generates tasks from coordinates, by reasoning_gym or from rows. For the worker process only.

Item i of stream s is generated from seed s + i alone, without the earlier items. Each family keeps
one data set and reseeds it, because building one may load a word list.
"""

from __future__ import annotations

import decimal
import importlib
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from shoal_tasks.errors import FamilyError
from shoal_tasks.families import TRAIN_SEED_MIN
from shoal_tasks.questions import SplitRows, question_key
from shoal_tasks.rows import TaskRow, check_file, parse_rows
from shoal_tasks.sandbox.audit import AuditGuard
from shoal_tasks.scorers.logic import is_informative, strongest_conclusion
from shoal_tasks.scorers.safe_scorers import safe_score
from shoal_tasks.spec import FamilySpec
from shoal_tasks.split import choose_split
from shoal_tasks.types import Split
from shoal_tasks.unit_tests.runner import TestRunner
from shoal_tasks.worker.code_reward import CodeReward, example_completion
from shoal_tasks.worker.equality import check_answers, check_repeated, equality
from shoal_tasks.worker.frames import Message
from shoal_tasks.worker.item_limit import ItemLimit
from shoal_tasks.worker.plotting_stub import stub_plotting
from shoal_tasks.worker.python_reward import GroupRewards, PythonReward
from shoal_wire.limits import MAX_INDEX


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedItem:
    """One item as its generator made it, with its scoring function."""

    entry: dict[str, Any]
    score_answer: Callable[[str, Any], float]
    part: Split
    """Permitted use of the question."""

    @property
    def question(self) -> str:
        return str(self.entry["question"])

    @property
    def answer(self) -> str | None:
        answer = self.entry["answer"]
        return None if answer is None else str(answer)

    def row(self) -> Message:
        """Return the fields of a `TaskItem`, as the client reads them."""
        answer = self.answer
        example = answer or self.entry["metadata"].get("example_answer")
        shown = None if example is None else str(example)
        return {"question": self.question, "answer": answer, "example": shown, "part": self.part}


class TaskStream:
    """The items of one family with a generator."""

    def __init__(self, spec: FamilySpec) -> None:
        """Build the data set. Raises whatever reasoning_gym raises on a bad configuration."""
        self.spec = spec
        create = _library().create_dataset
        self._dataset = create(spec.generator, **dict(spec.config), seed=0, size=MAX_INDEX)

    def item(self, seed: int, index: int) -> GeneratedItem:
        """Return item ``index`` of stream ``seed``, which is the same on every machine.

        Raises what the generator raises: some seeds give an impossible task, such as a division by
        zero.
        """
        self._dataset.seed = seed
        self._dataset.config.seed = seed
        # decimal_arithmetic changes the thread's decimal precision and does not restore it: without
        # its own context an item would depend on the items before it.
        with decimal.localcontext(decimal.Context(prec=28)):
            entry = self._dataset[index]
        if self.spec.generator == "propositional_logic":
            entry["metadata"]["example_answer"] = strongest_conclusion(entry["metadata"])
        return GeneratedItem(
            entry=entry, score_answer=self._dataset.score_answer, part=self._part(entry)
        )

    def _part(self, entry: dict[str, Any]) -> Split:
        if self.spec.generator == "propositional_logic" and not is_informative(entry["metadata"]):
            return Split.UNUSED
        return choose_split(self.spec, str(entry["question"]), entry["answer"])


class RowTasks:
    """The items of one family of rows, with the same interface as `TaskStream`."""

    def __init__(
        self,
        spec: FamilySpec,
        data: bytes,
        sources: Sequence[bytes],
        limit: ItemLimit,
        guard: AuditGuard,
        runner: TestRunner | None = None,
    ) -> None:
        """Parse and check the rows.

        `sources` are the reward's Python files, empty without one. `runner` executes unit tests;
        None without them.

        Raises:
            FamilyError: a file differs from the one the family names, a reference answer is
            rejected
                by the family's verifier, or a reward cannot be used.
        """
        check_file(spec, data, spec.path, spec.config["sha256"])
        rows = parse_rows(data, spec.path)
        config = cast(dict[str, Any], spec.config)
        keys = [question_key(row.question, config["split"]) for row in rows]
        if len(set(keys)) != config["rows"]:
            raise FamilyError(
                f"family {spec.name!r}: {spec.path} has {len(set(keys))} different questions"
            )
        self.spec = spec
        self._split = SplitRows.of(keys, rows, config["held_out"])
        self._reward = PythonReward(spec, sources, rows, limit, guard) if sources else None
        self.notes = self._reward.notes if self._reward else []
        """Lines for the family's author."""
        self._tests = None if runner is None else CodeReward(spec, rows, runner)
        if not sources and runner is None:
            check_answers(spec, rows)
            check_repeated(spec, (*self._split.training, *self._split.held_out))

    def item(self, seed: int, index: int) -> GeneratedItem:
        """Return a row. Held-out seeds select only held-out questions.

        Consecutive numbers go through all questions before one repeats. A question with several
        rows is as frequent as the others, and each repetition takes the next of its rows.
        """
        row, is_held_out = self._row(seed, index)
        part = Split.HELD_OUT if is_held_out else Split.TRAINING
        entry: dict[str, Any] = {
            "question": row.question,
            "answer": row.answer or None,
            "metadata": {},
        }
        if (tests := self._tests) is not None:
            entry["metadata"]["example_answer"] = example_completion(row)
            return GeneratedItem(
                entry=entry, score_answer=lambda text, _entry: tests.score(row, text), part=part
            )
        reward = self._reward
        if reward is None:
            return GeneratedItem(entry=entry, score_answer=equality(self.spec), part=part)
        # For a judge; other functions score whole groups.
        return GeneratedItem(
            entry=entry,
            score_answer=lambda text, _entry: reward.score(row, [text]).shares[0],
            part=part,
        )

    def score(self, seed: int, index: int, texts: Sequence[str]) -> GroupRewards:
        """Return the rewards of one group's completions by the family's functions.

        Raises `UserCodeError`.
        """
        assert self._reward is not None
        return self._reward.score(self._row(seed, index)[0], texts)

    def _row(self, seed: int, index: int) -> tuple[TaskRow, bool]:
        """Return the row of these coordinates, and whether its question is held out."""
        is_held_out = seed < TRAIN_SEED_MIN and bool(self._split.held_out)
        questions = self._split.held_out if is_held_out else self._split.training
        lap, place = divmod(seed + index, len(questions))
        rows = questions[place]
        return rows[lap % len(rows)], is_held_out


def preload(generators: Iterable[str]) -> None:
    """Load everything that the generators may read from disk, before the sandbox closes it.

    Runs each generator once with its default configuration (never with a received one) and keeps
    the library's data files in memory. Afterwards no generator opens a file.
    """
    wanted = set(generators)
    if not wanted:
        return  # reasoning_gym takes most of a worker's start, and these families do not use it
    create_dataset = _library().create_dataset
    _keep_data_files()
    for name in sorted(wanted):
        dataset = create_dataset(name, seed=1, size=4)
        for index in range(4):
            entry = dataset[index]
            safe_score(name, entry["answer"] or "P", entry, dataset.score_answer)


def _library() -> Any:
    with stub_plotting():
        return importlib.import_module("reasoning_gym.factory")


def _keep_data_files() -> None:
    folder = Path(str(importlib.import_module("reasoning_gym.data").__file__)).parent
    texts = {
        path.name: path.read_text(encoding="utf-8")
        for path in folder.iterdir()
        if path.suffix in {".txt", ".csv"}
    }

    def read_data_file(filename: str) -> str:
        return texts[filename]

    for module in list(sys.modules.values()):
        if getattr(module, "read_data_file", None) is not None:
            module.read_data_file = read_data_file  # type: ignore[attr-defined]
