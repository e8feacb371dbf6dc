"""A dictionary that forgets: at most so many entries, and the oldest goes for a new one. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

REMEMBERED = 1024
"""Entries that a dict or a cache keeps where nothing speaks for another number: more peers than a
node meets at once, of at most some kilobytes each."""
FEW = 64
"""The same where an entry may have some tens of kilobytes, or somebody reads all of them."""
MANY = 4 * REMEMBERED
"""The same where forgetting one would set somebody free, so that throwaway names push out few."""

PIECE_BYTES = 64 * 1024
"""Bytes that are read or sent at once, before anybody else has a turn; a line has fewer."""
QUEUE_BYTES = 32 * 1024 * 1024
"""Bytes that one queue or cache may hold, of messages of any size."""
LINE_CHARS = 300
"""Characters that are shown of one line that somebody else has written."""


class BoundedDict(OrderedDict[K, V]):
    """A dict of at most `limit` entries, from the oldest to the newest.

    Assigning makes an entry the newest, reading does not: so the one assigned longest ago goes.
    Where the first time counts, assign with `setdefault`; where the last use counts, read with
    `use`. Every call is O(1), and reading is C's own.
    """

    __slots__ = ("_limit",)

    def __init__(self, limit: int = REMEMBERED) -> None:
        """Start empty. Raises ValueError for a limit below 0; at 0 nothing is ever kept."""
        if limit < 0:
            raise ValueError(f"{limit} entries are no bound")
        super().__init__()
        self._limit = limit

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._limit}, {dict(self)!r})"

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def put(self, key: K, value: V) -> tuple[K, V] | None:
        """Assign, and return the entry that had to go, if one had to."""
        super().__setitem__(key, value)
        self.move_to_end(key)
        return self.popitem(last=False) if len(self) > self._limit else None

    def use(self, key: K, make: Callable[[], V]) -> V:
        """Return a value, made if it is missing; its entry is the newest afterwards."""
        if key in self:
            self.move_to_end(key)
            return self[key]
        value = make()
        self.put(key, value)
        return value
