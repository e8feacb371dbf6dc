"""Tasks for many nodes of one process: computed once for all, or of some families only."""

from __future__ import annotations

import random
from collections.abc import Sequence

from policy.rollouts import Question
from policy.tasks import TaskSource
from shoal_base.bounded import BoundedDict
from shoal_tasks.families import FamilySpec
from shoal_tasks.limits import WorkerLimits
from shoal_tasks.split import Part
from shoal_tasks.types import ScoreRequest, ScoreResult, TaskCoordinates
from shoal_tasks.worker.sync import TaskWorker
from shoal_wire.digests import question_digest
from shoal_wire.types import Digest

_REMEMBERED = 1 << 17


class SharedWorker(TaskWorker):
    """One sandboxed worker for all nodes of a swarm in memory.

    A question follows from its coordinates and a score from question and text, so that eight
    nodes that each compute them compute the same; here the first one does.
    """

    def __init__(self, families: Sequence[FamilySpec], *, limits: WorkerLimits | None = None):
        super().__init__(families, limits=limits)
        self._texts: BoundedDict[TaskCoordinates, str] = BoundedDict(_REMEMBERED)
        self._parts: BoundedDict[TaskCoordinates, Part] = BoundedDict(_REMEMBERED)
        self._scores: BoundedDict[ScoreRequest, ScoreResult] = BoundedDict(_REMEMBERED)

    def draw(
        self, rng: random.Random, count: int, *, families: Sequence[FamilySpec] = ()
    ) -> list[tuple[TaskCoordinates, str]]:
        """As `TaskWorker.draw`; the questions are remembered."""
        drawn = super().draw(rng, count, families=families) if count else []
        for task, text in drawn:
            self._texts.put(task, text)
        return drawn

    def parts(self, tasks: Sequence[TaskCoordinates]) -> list[Part]:
        """As `TaskWorker.parts`, remembered."""
        missing = [task for task in dict.fromkeys(tasks) if self._parts.get(task) is None]
        made = dict(zip(missing, super().parts(missing), strict=True)) if missing else {}
        found = [made.get(task) or self._parts.get(task) for task in tasks]
        for task, part in made.items():
            self._parts.put(task, part)
        return [part for part in found if part is not None]

    def questions(self, tasks: Sequence[TaskCoordinates]) -> list[str]:
        """As `TaskWorker.questions`."""
        missing = [task for task in dict.fromkeys(tasks) if self._texts.get(task) is None]
        if missing:
            for task, text in zip(missing, super().questions(missing), strict=True):
                self._texts.put(task, text)
        return [self._texts.get(task) or "" for task in tasks]

    def question_digests(self, tasks: Sequence[TaskCoordinates]) -> list[Digest]:
        """As `TaskWorker.question_digests`, from remembered questions where there are any."""
        known = {task: text for task in tasks if (text := self._texts.get(task)) is not None}
        others = [task for task in dict.fromkeys(tasks) if task not in known]
        made = dict(zip(others, super().question_digests(others), strict=True)) if others else {}
        return [question_digest(known[task]) if task in known else made[task] for task in tasks]

    def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        """As `TaskWorker.score`; a text that has been scored for a task is not scored again."""
        missing = [one for one in dict.fromkeys(requests) if self._scores.get(one) is None]
        made = dict(zip(missing, super().score(missing), strict=True)) if missing else {}
        results = [made.get(one) or self._scores.get(one) for one in requests]
        for one, result in made.items():
            # Time ran out or the worker died: that need not happen again.
            if not (result.timed_out or result.crashed):
                self._scores.put(one, result)
        return [result for result in results if result is not None]


class SpecialistSource(TaskSource):
    """Draws its own questions from some of the swarm's families; verifies all of them."""

    def __init__(
        self, worker: TaskWorker, families: Sequence[FamilySpec], asked: Sequence[str]
    ) -> None:
        """Raises ValueError when the swarm has none of the families `asked`."""
        super().__init__(worker, families)
        self._asked = frozenset(asked)
        if not self._asked & {family.name for family in families}:
            raise ValueError(f"the swarm has no family of {', '.join(sorted(asked))}")

    def draw(self, rng: random.Random, count: int) -> list[Question]:
        """As `TaskSource.draw`, passing over what is not asked."""
        found: list[Question] = []
        while len(found) < count:
            drawn = super().draw(rng, 4 * (count - len(found)))
            found.extend(one for one in drawn if one.task.family in self._asked)
        return found[:count]
