"""A dictionary of bounded size, which evicts its oldest entry for a new one. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

REMEMBERED = 1024
"""Default size limit of a dict or cache, in entries: more than a node's simultaneous peers, of some
kilobytes each."""
FEW = 64
"""Size limit if an entry may have tens of kilobytes, or if a person reads all of them."""
MANY = 4 * REMEMBERED
"""Size limit if evicting an entry lifts a restriction: throwaway identities evict few of them."""

PIECE_BYTES = 64 * 1024
"""Bytes that are read or sent in one turn; a line has fewer."""
QUEUE_BYTES = 32 * 1024 * 1024
"""Size limit of one queue or cache of messages, in bytes."""
LINE_CHARS = 300
"""Most characters shown of one line of untrusted text."""


class BoundedDict(OrderedDict[K, V]):
    """A dict of at most `limit` entries, ordered from the oldest to the newest.

    Assigning makes an entry the newest, reading does not: the entry assigned longest ago is
    evicted. To evict by first assignment, assign with `setdefault`; by last use, read with `use`.
    Every call is O(1), and reads run at the speed of dict.
    """

    __slots__ = ("_limit",)

    def __init__(self, limit: int = REMEMBERED) -> None:
        """Start empty. With limit 0 nothing is stored. Raises ValueError for a limit below 0."""
        if limit < 0:
            raise ValueError(f"limit is {limit}, must be at least 0")
        super().__init__()
        self._limit = limit

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._limit}, {dict(self)!r})"

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._limit:
            self.popitem(last=False)

    def put(self, key: K, value: V) -> tuple[K, V] | None:
        """Assign, and return the evicted entry, or None."""
        super().__setitem__(key, value)
        self.move_to_end(key)
        return self.popitem(last=False) if len(self) > self._limit else None

    def use(self, key: K, make: Callable[[], V]) -> V:
        """Return a value, made by `make` if it is missing, and mark its entry as the newest."""
        if key in self:
            self.move_to_end(key)
            return self[key]
        value = make()
        self.put(key, value)
        return value
