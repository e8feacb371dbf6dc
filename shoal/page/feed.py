"""What browsers are told as it happens: numbered events, a ring of the latest, few listeners.

    publish ─▶ ring (bounded) ─▶ each listener's own queue ─▶ its stream
                                        full ─▶ the listener is dropped; its browser comes again

A browser that comes again says which event it saw last. Where the ring still has what followed it
gets that, else everything anew.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import trio

MAX_LISTENERS: Final = 8
MAX_WAITING: Final = 64
"""Events that wait for one listener."""
MAX_RING_BYTES: Final = 4 << 20


class FullError(Exception):
    """As many listen as may."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event as it goes out."""

    id: str
    kind: str
    data: str
    """JSON in one line."""

    def encode(self) -> bytes:
        """Return it as a stream of events has it."""
        return f"id: {self.id}\nevent: {self.kind}\ndata: {self.data}\n\n".encode()


class Listener:
    """One stream's queue; ends where its reader is too slow."""

    def __init__(self, first: Sequence[Event]) -> None:
        self.first = tuple(first)
        """What came before, for a browser that comes again."""
        self.is_new = False
        """Whether it has to be told everything first."""
        self._send, self._receive = trio.open_memory_channel[Event](MAX_WAITING)

    async def next(self) -> Event:
        """Wait for the next event. Raises trio.EndOfChannel once it was dropped."""
        return await self._receive.receive()

    def offer(self, event: Event) -> bool:
        """Queue an event; False, and its end, if it does not take them fast enough."""
        try:
            self._send.send_nowait(event)
        except (trio.WouldBlock, trio.BrokenResourceError):
            self.end()
            return False
        return True

    def end(self) -> None:
        """End it, after what waits."""
        self._send.close()


class Feed:
    """All events of a page."""

    def __init__(self, mark: str) -> None:
        """`mark` tells this page's numbers from those of an earlier one."""
        self._mark = mark
        self._next = 1
        self._ring: deque[Event] = deque()
        self._num_bytes = 0
        self._listeners: list[Listener] = []
        self.num_dropped = 0

    @property
    def num_listeners(self) -> int:
        """How many listen."""
        return len(self._listeners)

    @property
    def last_id(self) -> str:
        """Return the id of the newest event."""
        return f"{self._mark}-{self._next - 1}"

    def publish(self, kind: str, value: Any) -> None:
        """Tell everybody; never waits."""
        event = Event(f"{self._mark}-{self._next}", kind, encoded(value))
        self._next += 1
        self._ring.append(event)
        self._num_bytes += len(event.data)
        while self._num_bytes > MAX_RING_BYTES:
            self._num_bytes -= len(self._ring.popleft().data)
        staying = [one for one in self._listeners if one.offer(event)]
        self.num_dropped += len(self._listeners) - len(staying)
        self._listeners = staying

    def listen(self, last_id: str = "") -> Listener:
        """Return a new listener that saw `last_id` last. Raises FullError."""
        if len(self._listeners) >= MAX_LISTENERS:
            raise FullError
        missed = self._after(last_id)
        listener = Listener(missed or ())
        listener.is_new = missed is None
        self._listeners.append(listener)
        return listener

    def forget(self, listener: Listener) -> None:
        """A stream has ended."""
        listener.end()
        if listener in self._listeners:
            self._listeners.remove(listener)

    def _after(self, last_id: str) -> list[Event] | None:
        """Return what followed an event; None where that is not known."""
        if last_id == self.last_id:
            return []
        for place, event in enumerate(self._ring):
            if event.id == last_id:
                return list(self._ring)[place + 1 :]
        return None


def encoded(value: Any) -> str:
    """Return JSON in one line of ASCII."""
    return json.dumps(value, separators=(",", ":"))
