"""A bounded least-recently-used cache."""

from __future__ import annotations

from typing import Generic, TypeVar

from shoal_base.bounded import BoundedDict

K = TypeVar("K")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """At most ``capacity`` entries; the one unused for longest goes first."""

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError("capacity must be positive")
        self._entries: BoundedDict[K, V] = BoundedDict(capacity)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """The value, now the most recently used, or None."""
        value = self._entries.get(key)
        if value is not None:
            self._entries[key] = value
        return value

    def put(self, key: K, value: V) -> None:
        """Store a value, evicting if need be."""
        self._entries[key] = value
