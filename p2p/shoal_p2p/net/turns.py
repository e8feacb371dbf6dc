"""Whose turn it is to write."""

from __future__ import annotations

from types import TracebackType

import trio


async def take(places: trio.Semaphore) -> None:
    """Take a place; waits, and lets others run, only where none is free."""
    if places.value:
        places.acquire_nowait()
    else:
        await places.acquire()


class Baton:
    """A lock that is taken at once when it is free, and that any task may give back.

    `trio.Lock` lets every other task run first, also when nobody holds it: five of those in the way
    of each frame were most of what a delivery cost.  Who waits is served in order, and may be
    cancelled while waiting.
    """

    def __init__(self) -> None:
        self._free = trio.Semaphore(1)

    async def acquire(self) -> None:
        """Wait until it is free, and take it. Does not let others run if it is."""
        await take(self._free)

    def release(self) -> None:
        """Give it to who has waited longest."""
        self._free.release()

    def locked(self) -> bool:
        """Whether somebody has it."""
        return not self._free.value

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()
