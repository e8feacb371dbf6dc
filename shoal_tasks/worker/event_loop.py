"""An event loop without sockets, for rewards that are asynchronous. For the worker process only.

The sandbox has no sockets, which asyncio's own loops wake themselves by. This one waits for nothing
but time, and its time is its own: it jumps to the next timer, so that a reward that sleeps takes no
longer and gives the same on every machine. Work for threads (`asyncio.to_thread`) is done at once.
"""

from __future__ import annotations

import asyncio
import selectors
import warnings
from collections.abc import Awaitable, Callable, Mapping
from typing import Any


class _NothingToWaitFor(selectors.BaseSelector):
    """A selector without files: a wait moves the clock."""

    def __init__(self) -> None:
        self.now = 0.0

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        raise PermissionError("the event loop of a reward has no sockets, pipes or files")

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        raise KeyError(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("the reward waits for what never happens")
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
        """Return the loop's own time, seconds since it was made."""
        return self._clock.now

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> Any:
        """Call `func` at once: the sandbox has no threads."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  it is the awaiter's
            future.set_exception(error)
        return future

    def _make_self_pipe(self) -> None:
        self._ssock = self._csock = None

    def _close_self_pipe(self) -> None:
        """There is none."""


class _Policy(asyncio.DefaultEventLoopPolicy):
    _loop_factory = TimeOnlyLoop


def use_time_only_loops() -> None:
    """Let every loop that is made from now on be a `TimeOnlyLoop`, those of `asyncio.run` too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        asyncio.set_event_loop_policy(_Policy())


def wait_for(awaitable: Awaitable[Any]) -> Any:
    """Run an awaitable to its end on a loop of its own, and return its result."""

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
    """End what the reward started and did not wait for."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
