"""The node's task worker while its families change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from shoal_p2p.task_worker import ReplaceableWorker
from shoal_tasks.errors import WorkerUnavailable
from shoal_tasks.families import EASY, coordinates
from shoal_tasks.spec import FamilySpec
from tests.support.doubles.worker import InstantWorker

if TYPE_CHECKING:
    from trio_typing import TaskStatus

pytestmark = pytest.mark.virtual_time


class SlowStart(InstantWorker):
    """Takes a second to start, and knows when it ended."""

    refused = False
    ended = False

    async def run(self, *, task_status: TaskStatus[Any] = trio.TASK_STATUS_IGNORED) -> None:
        await trio.sleep(1.0)
        if self.refused:
            raise WorkerUnavailable("no memory")
        try:
            await super().run(task_status=task_status)
        finally:
            self.ended = True


class Making:
    """Makes workers, and keeps them."""

    def __init__(self) -> None:
        self.made: list[SlowStart] = []
        self.refuses = False

    def __call__(self, families: Sequence[FamilySpec]) -> SlowStart:
        self.made.append(SlowStart(families))
        self.made[-1].refused = self.refuses
        return self.made[-1]


async def test_the_former_worker_answers_until_the_new_one_is_ready(nursery: trio.Nursery) -> None:
    make = Making()
    worker = ReplaceableWorker(EASY[:1], make)
    await nursery.start(worker.run)
    task = coordinates(EASY[0], 1 << 20)
    make.made[0].gate = trio.Event()
    late = trio.Event()

    async def ask() -> None:
        assert await worker.questions([task])
        late.set()

    nursery.start_soon(ask)
    nursery.start_soon(worker.use, EASY[:2])
    await trio.sleep(0.5)
    assert len(make.made) == 2 and not make.made[0].ended
    await trio.sleep(1.0)
    await worker.question_digests([task])
    assert (make.made[0].num_requested, make.made[1].num_requested) == (0, 1)
    make.made[0].gate.set()
    await late.wait()
    await trio.sleep(20.0)
    assert make.made[0].ended and not make.made[1].ended


async def test_a_worker_that_does_not_start_changes_nothing(nursery: trio.Nursery) -> None:
    make = Making()
    worker = ReplaceableWorker(EASY[:1], make)
    await nursery.start(worker.run)
    make.refuses = True
    with pytest.raises(WorkerUnavailable, match="no memory"):
        await worker.use(EASY[:2])
    await trio.sleep(20.0)
    assert not make.made[0].ended
    assert await worker.questions([coordinates(EASY[0], 1 << 20)])
