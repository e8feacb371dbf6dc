"""The Python API for asynchronous programs (asyncio or Trio): every call runs in one thread.

It is always the same thread, since the task worker ends with the thread that started it.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

import anyio
import anyio.to_thread

from shoal.api.joining import connect
from shoal.api.swarm import Swarm

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(
    method: Callable[Concatenate[Swarm, P], T],
) -> Callable[Concatenate[AsyncSwarm, P], Coroutine[Any, Any, T]]:
    """Return a method that calls a method of `Swarm` in the thread."""

    @functools.wraps(method)
    async def call(self: AsyncSwarm, /, *given: P.args, **named: P.kwargs) -> T:
        done = functools.partial(method, self.swarm, *given, **named)
        found: T = await anyio.to_thread.run_sync(self._run, done)
        return found

    return call


class AsyncSwarm:
    """A `Swarm` whose calls are awaited. One call runs at a time; further calls wait for it.

    A cancelled call still runs to its end, so what it leased must be released: `close` does.
    """

    def __init__(self, swarm: Swarm, run: Callable[[Callable[[], Any]], Any]) -> None:
        self.swarm = swarm
        """The blocking swarm, for its properties, which do not wait."""
        self._run = run

    status = _awaited(Swarm.status)
    tasks = _awaited(Swarm.tasks)
    publish = _awaited(Swarm.publish)
    draw = _awaited(Swarm.draw)
    verify = _awaited(Swarm.verify)
    acknowledge = _awaited(Swarm.acknowledge)
    release = _awaited(Swarm.release)


@asynccontextmanager
async def aconnect(*where: Any, **options: Any) -> AsyncIterator[AsyncSwarm]:
    """Connect as `shoal.connect` does, with the same arguments, for `async with`."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="shoal") as executor:

        def run(call: Callable[[], T]) -> T:
            return executor.submit(call).result()

        swarm = await anyio.to_thread.run_sync(run, functools.partial(connect, *where, **options))
        try:
            yield AsyncSwarm(swarm, run)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(run, swarm.close)
