"""So many at once, and who is next when all are taken: who has fewest.

Names cost nothing, so seats are counted by the network that a message came by.
"""

from __future__ import annotations

from collections import Counter, deque

import trio


class FairSeats:
    """At most `num_seats` at once. Who waits is bounded by who asks: sixteen for each stream."""

    def __init__(self, num_seats: int) -> None:
        self._num_free = num_seats
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[trio.Event]] = {}

    def seat(self, source: str) -> _Seat:
        """Hold a seat for a message that came by `source`; waits only where none is free."""
        return _Seat(self, source)

    async def take(self, source: str) -> None:
        """Take a seat, which is given back; waits only where none is free."""
        if self._num_free:
            self._num_free -= 1
            self._held[source] += 1
            return
        given = trio.Event()
        self._waiting.setdefault(source, deque()).append(given)
        try:
            await given.wait()
        except trio.Cancelled:
            if given.is_set():
                self.give_back(source)
            else:
                self._forget(source, given)
            raise

    def give_back(self, source: str) -> None:
        """Give a seat that was taken to who is next."""
        self._held[source] -= 1
        if not self._held[source]:
            del self._held[source]
        if not self._waiting:
            self._num_free += 1
            return
        # Among those with as many seats, who has waited longest: the dictionary is in that order.
        heir = min(self._waiting, key=lambda waiting: self._held[waiting])
        given = self._waiting[heir][0]
        self._forget(heir, given)
        self._held[heir] += 1
        given.set()

    def _forget(self, source: str, given: trio.Event) -> None:
        waiting = self._waiting.pop(source)
        waiting.remove(given)
        if waiting:
            self._waiting[source] = waiting


class _Seat:
    """What holds a seat while it is open. Not a generator's: one is made for every message."""

    __slots__ = ("_seats", "_source")

    def __init__(self, seats: FairSeats, source: str) -> None:
        self._seats = seats
        self._source = source

    async def __aenter__(self) -> None:
        await self._seats.take(self._source)

    async def __aexit__(self, *_exception: object) -> None:
        self._seats.give_back(self._source)
