"""Numbers this peer's pubsub messages so that no number is ever lower than one before it.

    wall clock, monotonic clock ─▶ next() ─▶ message
    reserve() ─▶ file: the highest number that may have been used

A number is the time in nanoseconds: of the wall clock, or of the monotonic one while the wall clock
is behind. After a restart the numbers begin above the file's, also where the clock was set back
meanwhile. Go peers ignore an author whose numbers fall (`BasicSeqnoValidator`), and a number that
is used twice is one message.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import trio

from shoal_base.waits import MINUTE_S
from shoal_p2p.disk import KeptState

_NS = 1_000_000_000
_RESERVED_NS = int(MINUTE_S) * _NS
"""Numbers in the file beyond the last one: it is written twice a minute, and a restart after a kill
is at most so far ahead of the clock. Peers take that for a clock that differs."""
_HIGHEST = 1 << 63
"""A file that holds more is corrupt: the field has 64 bits, and go's comparison stays the same."""


class SequenceNumbers:
    """Await `reserve`, then take `next` at once."""

    def __init__(
        self,
        file: KeptState | None = None,
        *,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """The numbers of a later process rise above these only with a `file`."""
        self._file = file
        self._wall_ns, self._monotonic_ns = wall_ns, monotonic_ns
        self._last = 0
        self._last_at = monotonic_ns()
        self._reserved: int | None = None
        """The number in the file; None until it was read."""
        self._lock = trio.Lock()

    async def reserve(self) -> None:
        """Make sure that the file holds a number above the next one."""
        if self._file is None or self._has_reserve():
            return
        async with self._lock:
            if self._reserved is None:
                self._last = self._reserved = await self._file.load(_number_in) or 0
            if self._has_reserve():
                return
            reserved = self._candidate() + _RESERVED_NS
            await self._file.save(f"{reserved}\n")
            self._reserved = reserved

    def next(self) -> int:
        """Return the next message's number, above all before it."""
        self._last, self._last_at = self._candidate(), self._monotonic_ns()
        return self._last

    def _has_reserve(self) -> bool:
        return self._reserved is not None and self._reserved - self._candidate() > _RESERVED_NS // 2

    def _candidate(self) -> int:
        elapsed_ns = self._monotonic_ns() - self._last_at
        return max(self._last + max(1, elapsed_ns), self._wall_ns())


def _number_in(text: str) -> int:
    """Return the number in a file. Raises ValueError: there is none."""
    number = int(text)
    if not 0 <= number < _HIGHEST:
        raise ValueError(f"{number} is no sequence number")
    return number
