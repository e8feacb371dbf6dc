"""The questions of both clients as plans, with the cache of digests that they share. Sans-IO."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, TypeVar

from shoal_tasks.errors import GenerationError, WorkerUnavailable
from shoal_tasks.families import FamilySpec, draw_coordinates
from shoal_tasks.types import ScoreRequest, ScoreResult, TaskCoordinates, TaskItem
from shoal_tasks.worker.cache import LruCache
from shoal_tasks.worker.operations import (
    TOO_SLOW,
    Families,
    generate_operation,
    parse_digest,
    parse_item,
    parse_question,
    score_operation,
)
from shoal_tasks.worker.plan import Plan, run_plan
from shoal_wire.types import Digest

R = TypeVar("R")

_MAX_DRAWS: Final = 100


class TaskPlans:
    """What one client asks its worker. All raise `UnknownFamily` for a family not given here."""

    def __init__(self, families: Sequence[FamilySpec], *, digest_cache_size: int) -> None:
        """Raises ValueError without families or when two have one name."""
        checked = Families(families)
        self.specs = checked.specs
        self._question = generate_operation(checked, ["question"], parse_question)
        self._item = generate_operation(checked, ["question", "answer", "metadata"], parse_item)
        self._digest = generate_operation(checked, ["digest"], parse_digest, too_slow=TOO_SLOW)
        self._score = score_operation(checked)
        self._digests: LruCache[TaskCoordinates, Digest] = LruCache(digest_cache_size)

    def draw(self, rng: random.Random, count: int) -> Plan[tuple[TaskCoordinates, str]]:
        """Draw fresh training tasks with their questions, by `draw_coordinates`.

        A draw that its generator cannot make is drawn again. Raises `GenerationError` when one
        never succeeds.
        """
        drawn: list[tuple[TaskCoordinates, str]] = []
        for _ in range(_MAX_DRAWS):
            missing = count - len(drawn)
            tasks = [draw_coordinates(rng, self.specs) for _ in range(missing)]
            made = yield from run_plan(self._question, tasks)
            drawn += [
                (task, text) for task, text in zip(tasks, made, strict=True) if text is not None
            ]
            if len(drawn) == count:
                return drawn
        raise GenerationError("the families' generators fail on nearly every seed")

    def questions(self, tasks: Sequence[TaskCoordinates]) -> Plan[str]:
        """The tasks' questions. Raises `GenerationError` where a generator fails on one."""
        return _require_all(tasks, (yield from run_plan(self._question, tasks)))

    def items(self, tasks: Sequence[TaskCoordinates]) -> Plan[TaskItem]:
        """Questions, answers and metadata. Raises `GenerationError` as `questions` does."""
        return _require_all(tasks, (yield from run_plan(self._item, tasks)))

    def question_digests(self, tasks: Sequence[TaskCoordinates]) -> Plan[Digest]:
        """16-byte digests of the questions, cached; empty where the generator fails on a task.

        Raises `WorkerUnavailable` on a task that is only too slow here: that says nothing about
        whoever sent it.
        """
        # The cache may lose entries while the worker is asked, so what it holds is taken before.
        known = {task: self._digests.get(task) for task in tasks}
        missing = [task for task, digest in known.items() if digest is None]
        made = yield from run_plan(self._digest, missing)
        if TOO_SLOW in made:
            raise WorkerUnavailable("a task takes too long to make")
        for task, digest in zip(missing, made, strict=True):
            known[task] = digest or Digest(b"")
            self._digests.put(task, digest or Digest(b""))
        return [known[task] or Digest(b"") for task in tasks]

    def score(self, requests: Sequence[ScoreRequest]) -> Plan[ScoreResult]:
        """Rewards, in order: one result a request, whatever happens to the worker meanwhile."""
        return run_plan(self._score, requests)


def _require_all(tasks: Sequence[TaskCoordinates], results: Sequence[R | None]) -> list[R]:
    """The results where all exist; raises `GenerationError` naming the first that does not."""
    complete: list[R] = []
    for task, result in zip(tasks, results, strict=True):
        if result is None:
            raise GenerationError(f"{task.family}: no item {task.index} of stream {task.seed}")
        complete.append(result)
    return complete
