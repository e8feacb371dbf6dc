"""The requests of both clients, with the cache of question digests that they share. Sans-IO."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from shoal_base.bounded import BoundedDict
from shoal_tasks.errors import GenerationError, ServerUnavailable, WorkerUnavailable
from shoal_tasks.families import (
    JUDGE_SEED_MIN,
    coordinates,
    draw_coordinates,
    judge_coordinates,
    training_coordinates,
)
from shoal_tasks.limits import MAX_ITEMS_PER_FRAME, TIMED_OUT_ERROR
from shoal_tasks.spec import FamilySpec
from shoal_tasks.split import num_held_out_needed
from shoal_tasks.types import (
    GroupRequest,
    Play,
    PlayRequest,
    ScoreRequest,
    ScoreResult,
    Split,
    TaskCoordinates,
    TaskItem,
)
from shoal_tasks.worker.batching import Operation, Send, run_batched
from shoal_tasks.worker.operations import (
    ConfiguredFamilies,
    group_operation,
    item_operation,
    play_chars,
    play_operation,
    score_operation,
)
from shoal_wire.digests import question_digest
from shoal_wire.limits import MAX_COMPLETION_BYTES
from shoal_wire.types import Digest

R = TypeVar("R")
T = TypeVar("T")

_MAX_DRAWS: Final = 100
_TRIES: Final = 8
"""Candidates in one frame after the first one was not for training: some are rare."""

_SEEDS: Final = 64 * MAX_ITEMS_PER_FRAME
_SEEDS_EACH: Final = 2 * MAX_ITEMS_PER_FRAME
"""Seeds searched for a family's held-out questions: at most `_SEEDS`, or `_SEEDS_EACH` per wanted
question. About an eighth of all questions is held out."""
_SEEDS_WITHOUT_NEWS: Final = 8 * MAX_ITEMS_PER_FRAME
"""Seeds without a new question after which a family counts as exhausted."""


class TaskRequests:
    """One client's requests to its workers. All raise `UnknownFamily` for an unknown family."""

    def __init__(self, families: Sequence[FamilySpec], send: Send) -> None:
        """Raise ValueError if there are no families, or two with the same name."""
        self._send = send
        checked = ConfiguredFamilies(families)
        self.specs, self._by_name = checked.specs, checked.by_name
        self._is_evaluated: dict[str, bool] = {}
        self._item = item_operation(checked)
        self._score = score_operation(checked)
        self._score_group = group_operation(checked)
        self._play = play_operation(checked)
        self._digests: BoundedDict[TaskCoordinates, Digest] = BoundedDict(
            1 << 16
        )  # some 15 MiB; a guess

    async def draw(
        self, rng: random.Random, count: int, *, families: Sequence[FamilySpec] = ()
    ) -> list[tuple[TaskCoordinates, str]]:
        """Sample new training tasks with their questions, by `draw_coordinates`.

        `families` restricts the choice. A task that cannot be generated, or is not for training, is
        replaced by another of the same family. A family with an unavailable server is skipped.

        Raises:
            GenerationError: a generator fails on nearly every seed, or a family has no question for
                training.
            ServerUnavailable: no family is left.
        """
        left = families or self.specs
        while True:
            try:
                return await self._draw(rng, count, left)
            except ServerUnavailable as away:
                left = [spec for spec in left if spec.worker_key != away.worker_key]
                if not left:
                    raise

    async def _draw(
        self, rng: random.Random, count: int, families: Sequence[FamilySpec]
    ) -> list[tuple[TaskCoordinates, str]]:
        tasks = [draw_coordinates(rng, families) for _ in range(count)]
        drawn: list[tuple[TaskCoordinates, str] | None] = [None] * count
        candidates = [[task] for task in tasks]
        not_trained: set[str] = set()
        for _ in range(_MAX_DRAWS):
            missing = [place for place in range(count) if drawn[place] is None]
            requested = [task for place in missing for task in candidates[place]]
            made = iter(await run_batched(self._send, self._item, requested))
            for place in missing:
                for task, item in zip(candidates[place], made, strict=False):
                    if isinstance(item, TaskItem):
                        if item.part is Split.TRAINING:
                            drawn[place] = drawn[place] or (task, item.question)
                        else:
                            not_trained.add(task.family)
            if None not in drawn:
                break
            for place in missing:
                spec = self._by_name[tasks[place].family]
                candidates[place] = [training_coordinates(rng, spec) for _ in range(_TRIES)]
        for task, found in zip(tasks, drawn, strict=True):
            if found is None and task.family in not_trained:
                why = f"{task.family} has no question to train on: all generated ones are held out"
                raise GenerationError(why, task)
        return _require_all(tasks, drawn)

    async def held_out(
        self, per_family: int, *, first_seed: int = 0, families: Sequence[FamilySpec] = ()
    ) -> list[tuple[TaskCoordinates, str]]:
        """Return the evaluation's tasks: the first `per_family` held-out ones of each family.

        Families with too few different ones (`num_held_out_needed`) or an unavailable server have
        none.
        """
        found: list[tuple[TaskCoordinates, str]] = []
        for spec in families or self.specs:
            with contextlib.suppress(ServerUnavailable):
                found += await self._held_out_of(spec, per_family, first_seed)
        return found

    async def _held_out_of(
        self, spec: FamilySpec, wanted: int, first_seed: int
    ) -> list[tuple[TaskCoordinates, str]]:
        needed = num_held_out_needed(spec)
        last_seed = min(first_seed + max(_SEEDS, _SEEDS_EACH * wanted), JUDGE_SEED_MIN)
        found: list[tuple[TaskCoordinates, str]] = []
        different: set[str] = set()
        known: set[int] = set()
        last_news = first_seed
        for start in range(first_seed, last_seed, MAX_ITEMS_PER_FRAME):
            seeds = range(start, min(start + MAX_ITEMS_PER_FRAME, last_seed))
            tasks = [coordinates(spec, seed) for seed in seeds]
            made = await run_batched(self._send, self._item, tasks)
            for task, item in zip(tasks, made, strict=True):
                if not isinstance(item, TaskItem):
                    continue
                if hash(item.question) not in known:
                    known.add(hash(item.question))
                    last_news = task.seed
                if item.part is Split.HELD_OUT:
                    found.append((task, item.question))
                    different.add(item.question)
            if len(different) >= needed and len(found) >= wanted:
                return found[:wanted]
            if len(different) < needed and start - last_news > _SEEDS_WITHOUT_NEWS:
                break
        return found[:wanted] if len(different) >= needed else []

    async def evaluated(self) -> list[FamilySpec]:
        """Return the families with enough held-out questions. Known results are cached."""
        for spec in self.specs:
            if spec.name not in self._is_evaluated:
                with contextlib.suppress(ServerUnavailable):
                    found = await self._held_out_of(spec, num_held_out_needed(spec), 0)
                    self._is_evaluated[spec.name] = bool(found)
        return [spec for spec in self.specs if self._is_evaluated.get(spec.name)]

    async def draw_for_judge(self, rng: random.Random) -> tuple[TaskCoordinates, str]:
        """Sample one held-out task with its question, from the seeds reserved for judges.

        Raises `GenerationError` if no family has enough held-out questions.
        """
        # The judges of a local family may disagree, so a record by one of them would mean little.
        families = [spec for spec in await self.evaluated() if not spec.is_local]
        if not families:
            raise GenerationError(
                "no family of this swarm has enough held-out questions for a judge"
            )
        spec = self._by_name[judge_coordinates(rng, families).family]
        for _ in range(_MAX_DRAWS):
            tasks = [judge_coordinates(rng, [spec]) for _ in range(_TRIES)]
            made = await run_batched(self._send, self._item, tasks)
            for task, item in zip(tasks, made, strict=True):
                if isinstance(item, TaskItem) and item.part is Split.HELD_OUT:
                    return task, item.question
        raise GenerationError(f"{spec.name}: no held-out question among a judge's seeds")

    async def questions_and_splits(
        self, tasks: Sequence[TaskCoordinates]
    ) -> list[tuple[str, Split]]:
        """Return each task's question, and what it may be used for.

        Tasks on an unavailable server have an empty question and `Split.UNAVAILABLE`. Raises
        `GenerationError` as `items` does.
        """
        nothing = TaskItem(question="", answer=None, example=None, part=Split.UNAVAILABLE)
        made = await self._run_distinct(self._item, tasks, lambda _task, _away: nothing)
        return [(item.question, item.part) for item in _require_all(tasks, made)]

    async def items(self, tasks: Sequence[TaskCoordinates]) -> list[TaskItem]:
        """Return the tasks. Raises `GenerationError` if a generator fails on one."""
        made = await run_batched(self._send, self._item, tasks)
        return _require_all(tasks, made)

    async def questions(self, tasks: Sequence[TaskCoordinates]) -> list[str]:
        """Return the tasks' questions. Raises as `items`."""
        return [item.question for item in await self.items(tasks)]

    async def question_digests(self, tasks: Sequence[TaskCoordinates]) -> list[Digest]:
        """Return 16-byte digests of the questions, cached; empty if the generator fails on a task.

        Raises `WorkerUnavailable` for a task that is only too slow on this machine: that says
        nothing about its sender.
        """
        # The cache may evict entries while the request runs, so read it first.
        known = {task: self._digests.get(task) for task in tasks}
        missing = [task for task, digest in known.items() if digest is None]
        made = await run_batched(self._send, self._item, missing)
        if TIMED_OUT_ERROR in made:
            raise WorkerUnavailable("a task takes too long to generate")
        for task, item in zip(missing, made, strict=True):
            digest = Digest(b"") if isinstance(item, str) else question_digest(item.question)
            known[task] = digest
            self._digests.put(task, digest)
        return [known[task] or Digest(b"") for task in tasks]

    def known_digests(self, tasks: Sequence[TaskCoordinates]) -> list[Digest] | None:
        """Return the same from the cache alone; None unless all are in it."""
        found = [self._digests.get(task) for task in tasks]
        return None if None in found else [digest for digest in found if digest is not None]

    async def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        """Return one result per request, in order, whatever happens to the worker.

        Equal requests are scored once. If a server is unavailable, all its completions get 0: a
        partly scored group would give a false training signal.
        """
        found = await self.score_groups(
            [
                GroupRequest(task=one.task, answers=((one.text, one.finish_reason),))
                for one in requests
            ]
        )
        return [one for (one,) in found]

    async def score_groups(self, groups: Sequence[GroupRequest]) -> list[list[ScoreResult]]:
        """Return one result per completion of each group, in order. Errors are those of `score`.

        A family whose reward may compare completions scores each group as a whole. In other
        families, equal completions of one task are scored once.
        """
        whole = [group for group in groups if self._is_whole(group)]
        alone = [
            ScoreRequest(task=group.task, text=text, finish_reason=finish_reason)
            for group in groups
            if not self._is_whole(group)
            for text, finish_reason in group.answers
        ]
        of_groups = iter(
            await self._run_distinct(
                self._score_group, whole, lambda group, away: (_away(away),) * len(group.answers)
            )
        )
        of_answers = iter(await self._run_distinct(self._score, alone, lambda _, away: _away(away)))
        return [
            list(next(of_groups))
            if self._is_whole(group)
            else [next(of_answers) for _ in group.answers]
            for group in groups
        ]

    def _is_whole(self, group: GroupRequest) -> bool:
        spec = self._by_name.get(group.task.family)
        return spec is not None and spec.is_scored_by_group

    async def play(self, requests: Sequence[PlayRequest]) -> list[Play]:
        """Return the environments' replies, in order; see `PlayRequest`.

        Messages longer than any completion end their game, because it could not be shared.
        """
        fitting = [one for one in requests if play_chars(one) <= MAX_COMPLETION_BYTES]
        played = await self._run_distinct(self._play, fitting, lambda _, away: Play.over(str(away)))
        plays = dict(zip(fitting, played, strict=True))
        return [
            plays.get(request) or Play.over("the messages are too long") for request in requests
        ]

    async def _run_distinct(
        self,
        operation: Operation[T, R],
        items: Sequence[T],
        instead: Callable[[T, ServerUnavailable], R],
    ) -> list[R]:
        """Send different items once each; those of an unavailable server get `instead`."""
        results: dict[T, R] = {}
        left = list(dict.fromkeys(items))
        while left:
            try:
                results |= zip(left, await run_batched(self._send, operation, left), strict=True)
                break
            except ServerUnavailable as away:
                there = [item for item in left if operation.worker_key(item) == away.worker_key]
                results |= {item: instead(item, away) for item in there}
                left = [item for item in left if item not in results]
        return [results[item] for item in items]


def _away(away: ServerUnavailable) -> ScoreResult:
    return ScoreResult(reward=0.0, error=str(away), is_deferred=not away.was_contacted)


def _require_all(tasks: Sequence[TaskCoordinates], results: Sequence[R | str | None]) -> list[R]:
    """Return the results if all exist. Raises `GenerationError` for the first that does not."""
    complete: list[R] = []
    for task, result in zip(tasks, results, strict=True):
        if result is None or isinstance(result, str):
            why = f"{task.family}: no item {task.index} of stream {task.seed}"
            raise GenerationError(why, task)
        complete.append(result)
    return complete
