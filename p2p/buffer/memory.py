"""Ids remembered within a bound, the oldest forgotten first. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from shoal_base.bounded import BoundedDict
from shoal_wire.types import GroupId


class IdMemory:
    """A set of group ids that holds at most `max_ids`."""

    __slots__ = ("_ids",)

    def __init__(self, max_ids: int) -> None:
        self._ids: BoundedDict[GroupId, None] = BoundedDict(max_ids)

    def __contains__(self, group_id: GroupId) -> bool:
        return group_id in self._ids

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[GroupId]:
        return iter(self._ids)

    def add(self, group_id: GroupId) -> bool:
        """Remember an id; return whether it is new. A known one keeps its place in the line."""
        if group_id in self._ids:
            return False
        self._ids[group_id] = None
        return True
