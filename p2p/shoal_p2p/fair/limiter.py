"""A fair capacity limiter: a bounded number of tasks run, the others wait in a `FairQueue`."""

from __future__ import annotations

import trio

from shoal_p2p.fair import ShareKey
from shoal_p2p.fair.queue import FairQueue


class FairLimiter:
    """A `trio.CapacityLimiter` that serves share keys fairly.

    At most `num_slots` slots are in use; the next one is given to a waiting key that holds the
    fewest. The caller bounds the number of waiting tasks.

        async with limiter.slot((network, peer_id)):
            await validate(message)
    """

    def __init__(self, num_slots: int) -> None:
        self._num_free = num_slots
        self._waiting: FairQueue[trio.Event] = FairQueue()

    def slot(self, share_key: ShareKey) -> LimiterSlot:
        """Return a context manager that holds a slot. Entering it waits if no slot is free."""
        return LimiterSlot(self, share_key)

    async def acquire(self, share_key: ShareKey) -> None:
        """Acquire a slot; a checkpoint only if none is free."""
        if self._num_free:
            self._num_free -= 1
            self._waiting.reserve(share_key)
            return
        granted = trio.Event()
        self._waiting.add(share_key, granted)
        try:
            await granted.wait()
        except trio.Cancelled:
            if not self._waiting.discard(share_key, granted):
                self.release(share_key)
            raise

    def release(self, share_key: ShareKey) -> None:
        """Release a slot and pass it to the next waiting task."""
        # Popped before the release, so that among equals the releasing key is served last.
        found = self._waiting.pop()
        self._waiting.release(share_key)
        if found is None:
            self._num_free += 1
            return
        next_key, granted = found
        self._waiting.reserve(next_key)
        granted.set()


class LimiterSlot:
    """Holds one slot. A class, not a generator: one is created for every message."""

    __slots__ = ("_limiter", "_path")

    def __init__(self, limiter: FairLimiter, share_key: ShareKey) -> None:
        self._limiter = limiter
        self._path = share_key

    async def __aenter__(self) -> None:
        await self._limiter.acquire(self._path)

    async def __aexit__(self, *_exception: object) -> None:
        self._limiter.release(self._path)
