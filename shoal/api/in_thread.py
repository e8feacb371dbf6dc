"""The Python API for asynchronous programs, of asyncio and Trio alike: each call in one thread.

The thread is always the same one, since the task worker ends with the thread that started it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from shoal.api.groups import Group, LeasedGroup
from shoal.api.joining import connect
from shoal.api.swarm import Swarm
from shoal_policy.rollouts import Question
from shoal_wire.types import GroupId

T = TypeVar("T")


class AsyncSwarm:
    """A `Swarm` whose calls are awaited. One call runs at a time; the others wait for it.

    A cancelled call still runs to its end, so what it leased must be released: `close` does.
    """

    def __init__(self, swarm: Swarm, run: Callable[[Callable[[], Any]], Any]) -> None:
        self.swarm = swarm
        """The blocking one: for its properties, which do not wait."""
        self._run = run

    async def status(self) -> dict[str, Any]:
        """Do as `Swarm.status`."""
        return await self._do(self.swarm.status)

    async def tasks(self, count: int, *, seed: int | None = None) -> list[Question]:
        """Do as `Swarm.tasks`."""
        return await self._do(partial(self.swarm.tasks, count, seed=seed))

    async def publish(self, groups: Sequence[Group], **told: Any) -> bool:
        """Do as `Swarm.publish`, with the same keywords."""
        return await self._do(partial(self.swarm.publish, groups, **told))

    async def draw(self, count: int) -> list[LeasedGroup]:
        """Do as `Swarm.draw`."""
        return await self._do(partial(self.swarm.draw, count))

    async def verify(self, groups: Sequence[Group | LeasedGroup]) -> list[list[float]]:
        """Do as `Swarm.verify`."""
        return await self._do(partial(self.swarm.verify, groups))

    async def acknowledge(self, groups: Sequence[LeasedGroup | GroupId]) -> bool:
        """Do as `Swarm.acknowledge`."""
        return await self._do(partial(self.swarm.acknowledge, groups))

    async def release(self, groups: Sequence[LeasedGroup]) -> None:
        """Do as `Swarm.release`."""
        await self._do(partial(self.swarm.release, groups))

    async def _do(self, call: Callable[[], T]) -> T:
        found: T = await anyio.to_thread.run_sync(self._run, call)
        return found


@asynccontextmanager
async def aconnect(*where: Any, **options: Any) -> AsyncIterator[AsyncSwarm]:
    """Do as `shoal.connect`, for `async with`; takes the same arguments."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="shoal") as executor:

        def run(call: Callable[[], T]) -> T:
            return executor.submit(call).result()

        swarm = await anyio.to_thread.run_sync(run, partial(connect, *where, **options))
        try:
            yield AsyncSwarm(swarm, run)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(run, swarm.close)
