"""What is remembered of groups within a bound, the oldest forgotten first. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice

from p2p.buffer_pool import Slot
from shoal_wire.types import GroupId


class IdMemory:
    """A set of group ids that holds at most `max_ids`."""

    __slots__ = ("_ids", "_max_ids")

    def __init__(self, max_ids: int) -> None:
        self._max_ids = max_ids
        self._ids: OrderedDict[GroupId, None] = OrderedDict()

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
        if len(self._ids) > self._max_ids:
            self._ids.popitem(last=False)
        return True


class RecentGroups:
    """The last groups that came in, for people to look at after they have left the buffer."""

    def __init__(self, *, max_groups: int, max_bytes: int) -> None:
        self._max_groups = max_groups
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._slots: OrderedDict[GroupId, Slot] = OrderedDict()

    def add(self, slot: Slot) -> None:
        """Note a group that was stored; one larger than the whole ring is not kept."""
        group_id = slot.entry.group.group_id
        known = self._slots.pop(group_id, None)
        if known is not None:
            self._num_bytes -= known.entry.num_bytes
        self._slots[group_id] = slot
        self._num_bytes += slot.entry.num_bytes
        while len(self._slots) > self._max_groups or self._num_bytes > self._max_bytes:
            _, oldest = self._slots.popitem(last=False)
            self._num_bytes -= oldest.entry.num_bytes

    def get(self, group_id: GroupId) -> Slot | None:
        """Return a group that is still remembered."""
        return self._slots.get(group_id)

    def newest(self, count: int) -> list[Slot]:
        """Return up to `count` groups, the latest first."""
        return list(islice(reversed(self._slots.values()), count))
