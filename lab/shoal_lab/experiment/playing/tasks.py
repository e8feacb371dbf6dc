"""Tasks for many nodes of one process: computed once for all, or of some families only.

Held out by meaning, and no question twice in a held-out set: stricter than a node is.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from shoal_base.bounded import BoundedDict
from shoal_lab.experiment.playing.meaning import has_wordings, meaning
from shoal_policy.rollouts import Question
from shoal_policy.tasks import TaskSource
from shoal_tasks.families import JUDGE_SEED_MIN, FamilySpec, coordinates
from shoal_tasks.limits import WorkerLimits
from shoal_tasks.split import Part, num_held_out_needed
from shoal_tasks.types import ScoreRequest, ScoreResult, TaskCoordinates
from shoal_tasks.worker.sync import TaskWorker
from shoal_wire.digests import question_digest
from shoal_wire.rules import is_held_out
from shoal_wire.types import Digest

_REMEMBERED = 1 << 17
_REPEATS = 4
"""Held-out questions looked at for each different one that is wanted."""
_SEEDS, _FRAME = 4096, 256
"""Seeds looked at for the held-out questions of a family that has wordings, and at once."""
_TRIES = 100
"""Draws in the place of one that is held out by its meaning: a family with no other gives it."""


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
        self._specs = {spec.name: spec for spec in families}
        self._kept: dict[tuple[str, int, int], list[tuple[TaskCoordinates, str]]] = {}

    def draw(
        self, rng: random.Random, count: int, *, families: Sequence[FamilySpec] = ()
    ) -> list[tuple[TaskCoordinates, str]]:
        """Draw as `TaskWorker.draw` does, by meaning too; the questions are remembered."""
        drawn = super().draw(rng, count, families=families) if count else []
        for place in range(count):
            for _ in range(_TRIES):
                if not self._is_kept(*drawn[place]):
                    break
                spec = self._specs[drawn[place][0].family]
                drawn[place] = super().draw(rng, 1, families=[spec])[0]
        for task, text in drawn:
            self._texts.put(task, text)
        return drawn

    def held_out(
        self, per_family: int, *, first_seed: int = 0, families: Sequence[FamilySpec] = ()
    ) -> list[tuple[TaskCoordinates, str]]:
        """Return held-out questions, no meaning twice: a small family gives fewer."""
        found: list[tuple[TaskCoordinates, str]] = []
        for spec in families or self._specs.values():
            key = (spec.name, per_family, first_seed)
            if key not in self._kept:
                self._kept[key] = self._different(spec, per_family, first_seed)
            found += self._kept[key]
        return found

    def _different(
        self, spec: FamilySpec, wanted: int, first_seed: int
    ) -> list[tuple[TaskCoordinates, str]]:
        if has_wordings(spec.generator):
            looked_at = self._kept_by_meaning(spec, wanted, first_seed)
        else:
            looked_at = super().held_out(_REPEATS * wanted, first_seed=first_seed, families=[spec])
        found: dict[str, tuple[TaskCoordinates, str]] = {}
        for task, text in looked_at:
            found.setdefault(meaning(spec.generator, text), (task, text))
        enough = len(found) >= num_held_out_needed(spec)
        return list(found.values())[:wanted] if enough else []

    def _kept_by_meaning(
        self, spec: FamilySpec, wanted: int, first_seed: int
    ) -> list[tuple[TaskCoordinates, str]]:
        """Find what is held out by its meaning; first the texts that no node's training has."""
        kept: list[tuple[TaskCoordinates, str]] = []
        others: list[tuple[TaskCoordinates, str]] = []
        last = min(first_seed + _SEEDS, JUDGE_SEED_MIN)
        for start in range(first_seed, last, _FRAME):
            tasks = [coordinates(spec, seed) for seed in range(start, min(start + _FRAME, last))]
            asked = zip(tasks, super().questions(tasks), strict=True)
            found = [one for one in asked if self._is_kept(*one)]
            for one, part in zip(found, super().parts([task for task, _ in found]), strict=True):
                if part is not Part.LEFT_OUT:
                    (kept if part is Part.HELD_OUT else others).append(one)
            if len({meaning(spec.generator, text) for _, text in kept}) >= wanted:
                break
        return kept + others

    def _is_kept(self, task: TaskCoordinates, text: str) -> bool:
        """Whether a question is held out by its meaning; those of one wording are by their text."""
        generator = self._specs[task.family].generator
        return has_wordings(generator) and is_held_out(question_digest(meaning(generator, text)))

    def parts(self, tasks: Sequence[TaskCoordinates]) -> list[Part]:
        """Return the parts as `TaskWorker.parts` does, by meaning too; they are remembered."""
        missing = [task for task in dict.fromkeys(tasks) if self._parts.get(task) is None]
        made = dict(zip(missing, super().parts(missing), strict=True)) if missing else {}
        texts = self.questions(missing)
        for task, text in zip(missing, texts, strict=True):
            if made[task] is Part.TRAINING and self._is_kept(task, text):
                made[task] = Part.HELD_OUT
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
