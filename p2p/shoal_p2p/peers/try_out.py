"""Tries a swarm's task families before its manifest is saved: some never finish a question.

A manifest comes from an untrusted peer, and generators accept extreme parameters, such as primes up
to two thousand million or twelve queens. In the sandboxed worker such a family is reported in one
line. In a node that has joined, it would block this start and every later one, since the manifest
is saved. Families of shipped presets are not tried.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import trio

from shoal_base.waits import LONG_DEADLINE_S
from shoal_tasks.errors import TaskError
from shoal_tasks.families import PRESETS
from shoal_tasks.spec import FamilySpec
from shoal_tasks.types import TaskCoordinates
from shoal_wire.errors import ManifestError

if TYPE_CHECKING:
    from trio_typing import TaskStatus

_SEEDS = (1, 2, 3)
"""Seeds of the questions that are tried: a search may finish for one and not for the next."""


class TaskMaker(Protocol):
    """The part of a task worker that makes questions."""

    async def run(self, *, task_status: TaskStatus[Any] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Raises TaskError: it does not start with these families."""

    async def questions(self, tasks: Sequence[TaskCoordinates]) -> list[str]:
        """Return one question per task. Raises TaskError."""


TryOut = Callable[[Sequence[FamilySpec]], Awaitable[None]]
"""Raises ManifestError, one line that names the first family that cannot be made."""


async def anything(_families: Sequence[FamilySpec]) -> None:
    """Accept any family without a trial."""


async def try_families(
    families: Sequence[FamilySpec],
    make_worker: Callable[[Sequence[FamilySpec], float], TaskMaker],
) -> None:
    """Make a few questions of each family outside the presets, one family at a time.

    Raises:
        ManifestError: one line that names the first family that cannot be made.
    """
    for family in families:
        if not _is_known(family):
            await _try(family, make_worker([family], LONG_DEADLINE_S))


async def _try(family: FamilySpec, worker: TaskMaker) -> None:
    tasks = [
        TaskCoordinates(family=family.name, config_digest=family.digest, seed=seed, index=0)
        for seed in _SEEDS
    ]
    why = ""
    async with trio.open_nursery() as nursery:
        try:
            await nursery.start(worker.run)
            await worker.questions(tasks)
        except TaskError as error:
            why = str(error)
        nursery.cancel_scope.cancel()
    if why:
        raise ManifestError(f"the swarm's tasks cannot be made here: {why}")


def _is_known(family: FamilySpec) -> bool:
    return any(family == one for preset in PRESETS.values() for one in preset)
