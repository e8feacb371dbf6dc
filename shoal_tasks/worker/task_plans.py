"""The questions of both clients as plans, with the cache of digests that they share. Sans-IO."""

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
from shoal_tasks.worker.operations import (
    ConfiguredFamilies,
    group_operation,
    item_operation,
    play_chars,
    play_operation,
    score_operation,
)
from shoal_tasks.worker.plan import Ask, Operation, run_plan
from shoal_wire.digests import question_digest
from shoal_wire.limits import MAX_COMPLETION_BYTES
from shoal_wire.types import Digest

R = TypeVar("R")
T = TypeVar("T")

_MAX_DRAWS: Final = 100
_TRIES: Final = 8
"""Candidates in one frame, once a first one was not for training: some answers are drawn seldom."""

_SEEDS: Final = 64 * MAX_ITEMS_PER_FRAME
_SEEDS_EACH: Final = 2 * MAX_ITEMS_PER_FRAME
"""Seeds looked at for held-out questions of a family: at most so many, or so many for each, of
which an eighth is held out."""
_SEEDS_WITHOUT_NEWS: Final = 8 * MAX_ITEMS_PER_FRAME
"""Seeds without a new question after which a family is taken to have no more."""


class TaskPlans:
    """One client's requests to its worker. All raise `UnknownFamily` for a family not given."""

    def __init__(self, families: Sequence[FamilySpec], ask: Ask) -> None:
        """Raises ValueError without families or when two have one name."""
        self._ask = ask
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
        """Draw fresh training tasks of all, or some, families with their questions, by
        `draw_coordinates`.

        One that its generator cannot make, or that is not for training, is drawn again, of the same
        family. A family whose server is away is left out. Raises `GenerationError` where a
        generator fails on nearly every seed or a family has no question for training,
        `ServerUnavailable` where no other family is left.
        """
        left = families or self.specs
        while True:
            try:
                return await self._draw(rng, count, left)
            except ServerUnavailable as away:
                left = [spec for spec in left if spec.lane != away.lane]
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
            asked = [task for place in missing for task in candidates[place]]
            made = iter(await run_plan(self._ask, self._item, asked))
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
                why = f"{task.family} has no question to train on: all that it makes are held out"
                raise GenerationError(why, task)
        return _require_all(tasks, drawn)

    async def held_out(
        self, per_family: int, *, first_seed: int = 0, families: Sequence[FamilySpec] = ()
    ) -> list[tuple[TaskCoordinates, str]]:
        """Find the evaluation's tasks: of each family the first held-out ones.

        None of a family that has too few different ones, as `num_held_out_needed` counts, or whose
        server is away.
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
            made = await run_plan(self._ask, self._item, tasks)
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
        """Find the families that have enough held-out questions; remembered, each when known."""
        for spec in self.specs:
            if spec.name not in self._is_evaluated:
                with contextlib.suppress(ServerUnavailable):
                    found = await self._held_out_of(spec, num_held_out_needed(spec), 0)
                    self._is_evaluated[spec.name] = bool(found)
        return [spec for spec in self.specs if self._is_evaluated.get(spec.name)]

    async def draw_for_judge(self, rng: random.Random) -> tuple[TaskCoordinates, str]:
        """Draw one held-out task with its question, from a judge's seeds.

        Raises `GenerationError` where no family has enough held-out questions.
        """
        # Two judges of a local family need not agree, so a record by one would say little.
        families = [spec for spec in await self.evaluated() if not spec.is_local]
        if not families:
            raise GenerationError("no family of this swarm is large enough to be judged on")
        spec = self._by_name[judge_coordinates(rng, families).family]
        for _ in range(_MAX_DRAWS):
            tasks = [judge_coordinates(rng, [spec]) for _ in range(_TRIES)]
            made = await run_plan(self._ask, self._item, tasks)
            for task, item in zip(tasks, made, strict=True):
                if isinstance(item, TaskItem) and item.part is Split.HELD_OUT:
                    return task, item.question
        raise GenerationError(f"{spec.name}: no held-out question among a judge's seeds")

    async def asked(self, tasks: Sequence[TaskCoordinates]) -> list[tuple[str, Split]]:
        """Return each task's question, and what it may be used for.

        Of those of a server that is away nothing can be said. Raises `GenerationError` as `items`
        does.
        """
        nothing = TaskItem(question="", answer=None, example=None, part=Split.AWAY)
        made = await self._apart(self._item, tasks, lambda _task, _away: nothing)
        return [(item.question, item.part) for item in _require_all(tasks, made)]

    async def items(self, tasks: Sequence[TaskCoordinates]) -> list[TaskItem]:
        """Return the tasks. Raises `GenerationError` where a generator fails on one."""
        made = await run_plan(self._ask, self._item, tasks)
        return _require_all(tasks, made)

    async def questions(self, tasks: Sequence[TaskCoordinates]) -> list[str]:
        """Return the tasks' questions. Raises as `items`."""
        return [item.question for item in await self.items(tasks)]

    async def question_digests(self, tasks: Sequence[TaskCoordinates]) -> list[Digest]:
        """16-byte digests of the questions, cached; empty where the generator fails on a task.

        Raises `WorkerUnavailable` on a task that is only too slow here: that says nothing about
        whoever sent it.
        """
        # The cache may lose entries while the worker is asked, so what it holds is taken before.
        known = {task: self._digests.get(task) for task in tasks}
        missing = [task for task, digest in known.items() if digest is None]
        made = await run_plan(self._ask, self._item, missing)
        if TIMED_OUT_ERROR in made:
            raise WorkerUnavailable("a task takes too long to make")
        for task, item in zip(missing, made, strict=True):
            digest = Digest(b"") if isinstance(item, str) else question_digest(item.question)
            known[task] = digest
            self._digests.put(task, digest)
        return [known[task] or Digest(b"") for task in tasks]

    def known_digests(self, tasks: Sequence[TaskCoordinates]) -> list[Digest] | None:
        """The same, where all of them are in the cache; None where one is not."""
        found = [self._digests.get(task) for task in tasks]
        return None if None in found else [digest for digest in found if digest is not None]

    async def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        """Rewards, in order: one result a request, whatever happens to the worker meanwhile.

        What is asked twice is scored once. Where a server is away, all that it was to score here
        gets 0: a group of which it scored a part would teach.
        """
        found = await self.score_groups(
            [
                GroupRequest(task=one.task, answers=((one.text, one.finish_reason),))
                for one in requests
            ]
        )
        return [one for (one,) in found]

    async def score_groups(self, groups: Sequence[GroupRequest]) -> list[list[ScoreResult]]:
        """Rewards of groups, in order: one result a completion. Fails as `score` does.

        Of a family whose reward may compare a group's completions, each group is scored as a whole;
        of others, equal completions of one task are scored once.
        """
        whole = [group for group in groups if self._is_whole(group)]
        alone = [
            ScoreRequest(task=group.task, text=text, finish_reason=finish_reason)
            for group in groups
            if not self._is_whole(group)
            for text, finish_reason in group.answers
        ]
        of_groups = iter(
            await self._apart(
                self._score_group, whole, lambda group, away: (_away(away),) * len(group.answers)
            )
        )
        of_answers = iter(await self._apart(self._score, alone, lambda _, away: _away(away)))
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
        """Return the answers of environments, in order; see `PlayRequest`.

        Messages that are longer than any completion may be end their game: nobody could share it.
        """
        fitting = [one for one in requests if play_chars(one) <= MAX_COMPLETION_BYTES]
        played = await self._apart(self._play, fitting, lambda _, away: Play.over(str(away)))
        plays = dict(zip(fitting, played, strict=True))
        return [
            plays.get(request) or Play.over("the messages are too long") for request in requests
        ]

    async def _apart(
        self,
        operation: Operation[T, R],
        items: Sequence[T],
        instead: Callable[[T, ServerUnavailable], R],
    ) -> list[R]:
        """Ask for different items once each; those of a server that is away get `instead`."""
        results: dict[T, R] = {}
        left = list(dict.fromkeys(items))
        while left:
            try:
                results |= zip(left, await run_plan(self._ask, operation, left), strict=True)
                break
            except ServerUnavailable as away:
                there = [item for item in left if operation.lane(item) == away.lane]
                results |= {item: instead(item, away) for item in there}
                left = [item for item in left if item not in results]
        return [results[item] for item in items]


def _away(away: ServerUnavailable) -> ScoreResult:
    return ScoreResult(reward=0.0, error=str(away), waits=not away.was_asked)


def _require_all(tasks: Sequence[TaskCoordinates], results: Sequence[R | str | None]) -> list[R]:
    """The results where all exist; raises `GenerationError` naming the first that does not."""
    complete: list[R] = []
    for task, result in zip(tasks, results, strict=True):
        if result is None or isinstance(result, str):
            why = f"{task.family}: no item {task.index} of stream {task.seed}"
            raise GenerationError(why, task)
        complete.append(result)
    return complete
