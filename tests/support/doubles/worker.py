"""A task worker made of arithmetic: it answers at once, and tests can delay or break it.

worker = InstantWorker()
worker.gate = trio.Event()               # answers wait until it is set
worker.error = WorkerUnavailable("gone") # or fail
worker.known = {task: NO_TASK}           # this task cannot be generated
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import trio

from shoal_tasks.families import EASY, judge_coordinates
from shoal_tasks.spec import FamilySpec
from shoal_tasks.types import (
    Play,
    PlayRequest,
    ScoreRequest,
    ScoreResult,
    Split,
    TaskCoordinates,
    TaskItem,
)
from shoal_wire.digests import question_digest
from shoal_wire.types import Digest

if TYPE_CHECKING:
    from trio_typing import TaskStatus

RIGHT_ANSWER = "7"
"""The only answer that an `InstantWorker` rewards."""

NO_TASK = Digest(b"")
"""The digest of a task that cannot be generated, as in the real worker."""


def fake_question(task: TaskCoordinates) -> str:
    """Return an `InstantWorker`'s question for a task."""
    return f"What is {task.family} {task.seed} {task.index}?"


class InstantWorker:
    """A complete `shoal_p2p.parts.Worker`."""

    def __init__(self, families: Sequence[FamilySpec] = EASY) -> None:
        self.gate = trio.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.known: Mapping[TaskCoordinates, Digest] = {}
        """Digests that differ from the usual ones; `NO_TASK` for tasks that cannot be generated."""
        self.waiting = 0
        """Number of calls that wait for `gate`."""
        self.num_requested = 0
        """Tasks whose digest was requested."""
        self._families = families

    @property
    def report(self) -> Any:
        """Return None: there is no process."""
        return None

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        task_status.started()
        await trio.sleep_forever()

    async def question_digests(self, tasks: Sequence[TaskCoordinates]) -> list[Digest]:
        """Return the digest of each task's fake question, or its entry in `known`."""
        self.num_requested += len(tasks)
        await self._turn()
        return [self.known.get(one, question_digest(fake_question(one))) for one in tasks]

    def known_digests(self, tasks: Sequence[TaskCoordinates]) -> list[Digest] | None:
        """Return None: nothing is cached."""
        return None

    async def questions(self, tasks: Sequence[TaskCoordinates]) -> list[str]:
        """Return one fake question per task."""
        await self._turn()
        return [fake_question(task) for task in tasks]

    async def items(self, tasks: Sequence[TaskCoordinates]) -> list[TaskItem]:
        """Return one fake question and no answer per task."""
        await self._turn()
        return [
            TaskItem(question=fake_question(one), answer=None, example=None, part=Split.TRAINING)
            for one in tasks
        ]

    async def draw_for_judge(self, rng: random.Random) -> tuple[TaskCoordinates, str]:
        """Return a task from the seeds of judges."""
        await self._turn()
        task = judge_coordinates(rng, self._families)
        return task, fake_question(task)

    async def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        """Reward only `RIGHT_ANSWER`."""
        await self._turn()
        return [ScoreResult(reward=float(one.text == RIGHT_ANSWER)) for one in requests]

    async def play(self, requests: Sequence[PlayRequest]) -> list[Play]:
        """Repeat each message; no game ends."""
        await self._turn()
        return [Play(observations=one.messages, done=False, reward=0.0) for one in requests]

    async def _turn(self) -> None:
        self.waiting += 1
        try:
            await self.gate.wait()
        finally:
            self.waiting -= 1
        if self.error is not None:
            raise self.error
