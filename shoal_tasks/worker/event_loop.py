"""An asyncio event loop without sockets, for asynchronous rewards. For the worker process only.

asyncio's own loops need a socket pair to wake up, and the sandbox allows none. This loop waits only
for timers, on a virtual clock that jumps to the next one: a reward that sleeps takes no time and
gives the same result on every machine. `asyncio.to_thread` runs its function at once.
"""

from __future__ import annotations

import asyncio
import selectors
import warnings
from collections.abc import Awaitable, Callable, Mapping
from typing import Any


class _NothingToWaitFor(selectors.BaseSelector):
    """A selector without files: waiting advances the clock."""

    def __init__(self) -> None:
        self.now = 0.0

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        raise PermissionError("the event loop of a reward has no sockets, pipes or files")

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        raise KeyError(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("the reward awaits something that never completes")
        self.now += max(0.0, timeout)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {}


class TimeOnlyLoop(asyncio.SelectorEventLoop):
    """asyncio's loop on `_NothingToWaitFor`."""

    def __init__(self) -> None:
        self._clock = _NothingToWaitFor()
        super().__init__(self._clock)

    def time(self) -> float:
        """Return the virtual time, in seconds since the loop was created."""
        return self._clock.now

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> Any:
        """Call `func` at once: the sandbox allows no threads."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  raised again where it is awaited
            future.set_exception(error)
        return future

    def _make_self_pipe(self) -> None:
        self._ssock = self._csock = None

    def _close_self_pipe(self) -> None:
        """Do nothing: there is no self-pipe."""


class _Policy(asyncio.DefaultEventLoopPolicy):
    _loop_factory = TimeOnlyLoop


def use_time_only_loops() -> None:
    """Make every new event loop a `TimeOnlyLoop`, those of `asyncio.run` too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        asyncio.set_event_loop_policy(_Policy())


def run_awaitable(awaitable: Awaitable[Any]) -> Any:
    """Run an awaitable on a new loop and return its result."""

    async def awaited() -> Any:
        return await awaitable

    loop = TimeOnlyLoop()
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(awaited())
    finally:
        asyncio.set_event_loop(None)
        _cancel_all(loop)
        loop.close()


def _cancel_all(loop: TimeOnlyLoop) -> None:
    """Cancel the tasks that the reward started and did not await."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
