"""The task worker of a node whose families change: a new worker takes over once it is ready."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import trio

from shoal_p2p.parts import Worker
from shoal_tasks.spec import FamilySpec
from shoal_tasks.types import (
    Play,
    PlayRequest,
    ScoreRequest,
    ScoreResult,
    TaskCoordinates,
    TaskItem,
)
from shoal_wire.types import Digest

if TYPE_CHECKING:
    from trio_typing import TaskStatus

_DRAIN_S = 10.0
"""Time for the requests of a worker that was replaced. Gossip waits as long for a verdict."""


class ReplaceableWorker:
    """Passes requests to the current worker. It is itself a `Worker`."""

    def __init__(
        self, families: Sequence[FamilySpec], make: Callable[[Sequence[FamilySpec]], Worker]
    ) -> None:
        """`make` returns a worker for some families."""
        self._make = make
        self._worker = make(families)
        self._scope = trio.CancelScope()
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: TaskStatus[Any] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the current worker until cancelled; started means ready. Raises like its `run`."""
        async with trio.open_nursery() as self._nursery:
            report = await self._nursery.start(self._serve, self._worker, self._scope)
            task_status.started(report)

    async def use(self, families: Sequence[FamilySpec]) -> None:
        """Start a worker for these families, and end the current one when the new one is ready.

        Raises:
            TaskError: it does not start; the current one stays.
        """
        if self._nursery is None:  # it was not started yet
            self._worker = self._make(families)
            return
        worker, scope = self._make(families), trio.CancelScope()
        await self._nursery.start(self._serve, worker, scope)
        before, self._worker, self._scope = self._scope, worker, scope
        before.deadline = trio.current_time() + _DRAIN_S

    @staticmethod
    async def _serve(
        worker: Worker,
        scope: trio.CancelScope,
        *,
        task_status: TaskStatus[Any] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        with scope:
            await worker.run(task_status=task_status)

    @property
    def report(self) -> Any:
        """Pass on; see `Worker`."""
        return self._worker.report

    async def question_digests(self, tasks: list[TaskCoordinates]) -> list[Digest]:
        """Pass on; see `Worker`."""
        return await self._worker.question_digests(tasks)

    def known_digests(self, tasks: Sequence[TaskCoordinates]) -> list[Digest] | None:
        """Pass on; see `Worker`."""
        return self._worker.known_digests(tasks)

    async def questions(self, tasks: Sequence[TaskCoordinates]) -> list[str]:
        """Pass on; see `Worker`."""
        return await self._worker.questions(tasks)

    async def items(self, tasks: Sequence[TaskCoordinates]) -> list[TaskItem]:
        """Pass on; see `Worker`."""
        return await self._worker.items(tasks)

    async def draw_for_judge(self, rng: random.Random) -> tuple[TaskCoordinates, str]:
        """Pass on; see `Worker`."""
        return await self._worker.draw_for_judge(rng)

    async def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        """Pass on; see `Worker`."""
        return await self._worker.score(requests)

    async def play(self, requests: Sequence[PlayRequest]) -> list[Play]:
        """Pass on; see `Worker`."""
        return await self._worker.play(requests)
