"""Tasks for many nodes of one process: computed once for all, or of some families only.

Questions are held out by meaning and occur once in a held-out set: stricter than a node is.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from shoal_base.bounded import BoundedDict
from shoal_lab.experiment.run.meaning import has_wordings, meaning
from shoal_policy.rollouts import Question
from shoal_policy.tasks import TaskSource
from shoal_tasks.families import JUDGE_SEED_MIN, coordinates
from shoal_tasks.limits import WorkerLimits
from shoal_tasks.spec import FamilySpec
from shoal_tasks.split import num_held_out_needed
from shoal_tasks.types import (
    GroupRequest,
    ScoreRequest,
    ScoreResult,
    Split,
    TaskCoordinates,
    TaskItem,
)
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.digests import question_digest
from shoal_wire.rules import is_held_out
from shoal_wire.types import Digest

_REMEMBERED = 1 << 17  # questions and scores of the longest experiment; a guess
_REPEATS = 4
"""Held-out questions examined for each different one that is requested."""
_SEEDS, _FRAME = 4096, 256
"""Seeds examined for the held-out questions of a family with several wordings, and per request."""
_TRIES = 100
"""Attempts to replace a question that is held out by its meaning; then it is used anyway."""


@dataclass(slots=True)
class RequestCost:
    """CPU seconds of one kind of request. Changes in place.

    A request for n items takes a worker a + b·n seconds: a for the exchange. Both are fitted by
    least squares to the computed requests, because the swarm's one worker computes smaller requests
    than a node's own worker would.
    """

    charged: float = 0.0
    calls: int = 0
    things: int = 0
    seconds: float = 0.0
    squares: int = 0
    """Sum of n² over the calls."""
    products: float = 0.0
    """Sum of n × seconds over the calls."""

    def add(self, count: int, missing: int, there: float, here: float = 0.0) -> None:
        """Count a request for `asked` items; `missing` of them had to be computed.

        That took `there` seconds in the worker, and `here` seconds in the caller, which are charged
        already. A request whose items were cached, all or in part, is charged like one for all of
        them, minus the seconds spent.
        """
        spent = there + here
        if missing:
            self.calls += 1
            self.things += missing
            self.seconds += spent
            self.squares += missing**2
            self.products += missing * spent
        self.charged += there
        if count > missing and self.calls:
            exchange, each = self._fitted()
            self.charged += each * (count - missing) + (0.0 if missing else exchange)

    def _fitted(self) -> tuple[float, float]:
        """Return the seconds of an exchange and of one thing in it, neither below 0."""
        spread = self.squares - self.things**2 / self.calls
        mean = self.seconds / self.things
        if not spread:
            return 0.0, mean
        each = (self.products - self.things * self.seconds / self.calls) / spread
        each = min(max(each, 0.0), mean)
        return (self.seconds - each * self.things) / self.calls, each


class SharedWorker(SyncTaskWorker):
    """Shares one sandboxed worker among all nodes of a swarm in memory.

    A question follows from its coordinates and a score from question and text, so all nodes compute
    the same values; here the first one computes them for all.
    """

    def __init__(self, families: Sequence[FamilySpec], *, limits: WorkerLimits | None = None):
        super().__init__(families, limits=limits)
        self._texts: BoundedDict[TaskCoordinates, str] = BoundedDict(_REMEMBERED)
        self._splits: BoundedDict[TaskCoordinates, tuple[str, Split]] = BoundedDict(_REMEMBERED)
        self._scores: BoundedDict[ScoreRequest, ScoreResult] = BoundedDict(_REMEMBERED)
        self._specs = {spec.name: spec for spec in families}
        self._kept: dict[tuple[str, int, int], list[tuple[TaskCoordinates, str]]] = {}
        self._costs = {kind: RequestCost() for kind in ("draw", "question", "asked", "score")}

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of the workers if every node had its own: a cached result is charged like a
        computed one, including its exchange. Each item is charged once per node that would request
        it from its own worker.
        """
        return sum(cost.charged for cost in self._costs.values())

    @contextmanager
    def _charging(self, kind: str, *, asked: int, missing: int) -> Iterator[None]:
        """Charge for `asked` requests; `missing` of them are computed."""
        there, here = self._worker_s(), time.process_time()
        yield
        spent = self._worker_s() - there
        self._costs[kind].add(asked, missing, spent, time.process_time() - here)

    def _worker_s(self) -> float:
        """Return the CPU seconds of the worker process; 0 if the system does not report them."""
        pid = self._first.pipes.pid
        if pid is None or not sys.platform.startswith("linux"):
            return 0.0
        # Linux names the clock of another process's CPU time so: clock_getcpuclockid(3).
        return time.clock_gettime((~pid << 3) | 2)

    def draw(
        self, rng: random.Random, count: int, *, families: Sequence[FamilySpec] = ()
    ) -> list[tuple[TaskCoordinates, str]]:
        """Sample as `SyncTaskWorker.draw` does, also by meaning; the questions are cached."""
        with self._charging("draw", asked=count, missing=count):
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
        """Return held-out questions with different meanings; a small family gives fewer."""
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
        if spec.is_environment:
            # Games differ by their seeds, though they may begin alike.
            return super().held_out(wanted, first_seed=first_seed, families=[spec])
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
        """Find the meanings that are held out, beginning with texts that no node trains on."""
        kept: list[tuple[TaskCoordinates, str]] = []
        others: list[tuple[TaskCoordinates, str]] = []
        last = min(first_seed + _SEEDS, JUDGE_SEED_MIN)
        for start in range(first_seed, last, _FRAME):
            tasks = [coordinates(spec, seed) for seed in range(start, min(start + _FRAME, last))]
            drawn = zip(tasks, super().questions(tasks), strict=True)
            found = [one for one in drawn if self._is_kept(*one)]
            by_text = super().questions_and_splits([task for task, _ in found])
            for one, (_, part) in zip(found, by_text, strict=True):
                if part is not Split.UNUSED:
                    (kept if part is Split.HELD_OUT else others).append(one)
            if len({meaning(spec.generator, text) for _, text in kept}) >= wanted:
                break
        return kept + others

    def _is_kept(self, task: TaskCoordinates, text: str) -> bool:
        """Return whether a question of several wordings is held out, by its meaning."""
        generator = self._specs[task.family].generator
        return has_wordings(generator) and is_held_out(question_digest(meaning(generator, text)))

    def questions_and_splits(self, tasks: Sequence[TaskCoordinates]) -> list[tuple[str, Split]]:
        """Call the worker, also by meaning; results are cached."""
        different = list(dict.fromkeys(tasks))
        missing = [task for task in different if self._splits.get(task) is None]
        with self._charging("asked", asked=len(different), missing=len(missing)):
            made = (
                dict(zip(missing, super().questions_and_splits(missing), strict=True))
                if missing
                else {}
            )
        for task, (text, part) in made.items():
            is_kept = part is Split.TRAINING and self._is_kept(task, text)
            made[task] = (text, Split.HELD_OUT if is_kept else part)
        found = [made.get(task) or self._splits.get(task) for task in tasks]
        for task, one in made.items():
            self._splits.put(task, one)
        return [one for one in found if one is not None]

    def questions(self, tasks: Sequence[TaskCoordinates]) -> list[str]:
        """Make questions; see `SyncTaskWorker.questions`."""
        missing = [task for task in dict.fromkeys(tasks) if self._texts.get(task) is None]
        with self._charging("question", asked=len(tasks), missing=len(missing)):
            made = super().questions(missing) if missing else []
        for task, text in zip(missing, made, strict=True):
            self._texts.put(task, text)
        return [self._texts.get(task) or "" for task in tasks]

    def question_digests(self, tasks: Sequence[TaskCoordinates]) -> list[Digest]:
        """Return digests as `SyncTaskWorker.question_digests`, from cached questions if
        possible."""
        known = {task: text for task in tasks if (text := self._texts.get(task)) is not None}
        others = [task for task in dict.fromkeys(tasks) if task not in known]
        with self._charging("question", asked=len(tasks), missing=len(others)):
            digests = super().question_digests(others) if others else []
        made = dict(zip(others, digests, strict=True))
        return [question_digest(known[task]) if task in known else made[task] for task in tasks]

    def items(self, tasks: Sequence[TaskCoordinates]) -> list[TaskItem]:
        """Do what `SyncTaskWorker.items` does; the answers are not cached."""
        with self._charging("question", asked=len(tasks), missing=len(tasks)):
            return super().items(tasks)

    def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        """Score as `SyncTaskWorker.score`; a text scored for a task is not scored again."""
        different = dict.fromkeys(requests)
        missing = [one for one in different if self._scores.get(one) is None]
        with self._charging("score", asked=len(different), missing=len(missing)):
            made = dict(zip(missing, super().score(missing), strict=True)) if missing else {}
        results = [made.get(one) or self._scores.get(one) for one in requests]
        for one, result in made.items():
            # Time ran out or the worker died: that need not happen again.
            if not (result.timed_out or result.crashed):
                self._scores.put(one, result)
        return [result for result in results if result is not None]

    def score_groups(self, groups: Sequence[GroupRequest]) -> list[list[ScoreResult]]:
        """Score as `SyncTaskWorker.score_groups`, by `score`: no family of the experiments compares
        the completions of a group.
        """
        results = iter(
            self.score(
                [
                    ScoreRequest(task=group.task, text=text, finish_reason=finish_reason)
                    for group in groups
                    for text, finish_reason in group.answers
                ]
            )
        )
        return [[next(results) for _ in group.answers] for group in groups]


class SpecialistSource(TaskSource):
    """Samples local questions from some of the swarm's families; verifies all families."""

    def __init__(
        self, worker: SyncTaskWorker, families: Sequence[FamilySpec], asked: Sequence[str]
    ) -> None:
        """Raises ValueError when the swarm has none of the families `asked`."""
        super().__init__(worker, families)
        self._splits = frozenset(asked)
        if not self._splits & {family.name for family in families}:
            raise ValueError(f"the swarm has no family of {', '.join(sorted(asked))}")

    def draw(self, rng: random.Random, count: int) -> list[Question]:
        """Sample as `TaskSource.draw`, without the families that are not asked."""
        found: list[Question] = []
        while len(found) < count:
            drawn = super().draw(rng, 4 * (count - len(found)))
            found.extend(one for one in drawn if one.task.family in self._splits)
        return found[:count]
