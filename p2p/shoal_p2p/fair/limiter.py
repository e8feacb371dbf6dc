"""Serves a bounded number of tasks at once, and queues the others fairly (`FairQueue`)."""

from __future__ import annotations

import trio

from shoal_p2p.fair import Path
from shoal_p2p.fair.queue import FairQueue


class FairLimiter:
    """Admits at most `num_seats` at once; the next is one of those that hold fewest.

    Who waits is bounded by who asks.
    """

    def __init__(self, num_seats: int) -> None:
        self._num_free = num_seats
        self._waiting: FairQueue[trio.Event] = FairQueue()

    def seat(self, path: Path) -> Seat:
        """Return what holds a seat while it is open; it waits only where none is free."""
        return Seat(self, path)

    async def take(self, path: Path) -> None:
        """Take a seat, which is given back; waits, and lets others run, only where none is free."""
        if self._num_free:
            self._num_free -= 1
            self._waiting.hold(path)
            return
        given = trio.Event()
        self._waiting.add(path, given)
        try:
            await given.wait()
        except trio.Cancelled:
            if not self._waiting.discard(path, given):
                self.give_back(path)
            raise

    def give_back(self, path: Path) -> None:
        """Give a seat that was taken to who is next."""
        # Before it is released: of equals whoever gives a seat back is served last.
        found = self._waiting.take()
        self._waiting.release(path)
        if found is None:
            self._num_free += 1
            return
        heir, given = found
        self._waiting.hold(heir)
        given.set()


class Seat:
    """Holds a seat while it is open. A class, not a generator: one is made for every message."""

    __slots__ = ("_limiter", "_path")

    def __init__(self, limiter: FairLimiter, path: Path) -> None:
        self._limiter = limiter
        self._path = path

    async def __aenter__(self) -> None:
        await self._limiter.take(self._path)

    async def __aexit__(self, *_exception: object) -> None:
        self._limiter.give_back(self._path)
