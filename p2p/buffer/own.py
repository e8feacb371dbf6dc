"""What the buffer remembers of this node's own groups: all but what they say. Pure.

Nobody here draws them, so their texts need not stay. They are counted and shown beside others'
groups, are known again when somebody sends the same content, and say which batches on disk are
still of use.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from p2p.buffer.types import Entry
from shoal_wire.types import BatchId, GroupId, PeerId


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnGroup:
    """One own group without its completions."""

    group_id: GroupId
    publisher: PeerId
    """This node."""
    batch_id: BatchId
    family: str
    num_bytes: int
    received_at: float
    """Seconds, on the buffer's clock."""


def own_group(entry: Entry) -> OwnGroup:
    """Return what is remembered of an own group."""
    group = entry.group
    return OwnGroup(
        group_id=group.group_id,
        publisher=group.publisher,
        batch_id=group.batch_id,
        family=group.group.task.family,
        num_bytes=entry.num_bytes,
        received_at=entry.received_at,
    )


class OwnGroups:
    """Own groups within a number and a size, the oldest forgotten first."""

    def __init__(self, *, max_groups: int, max_bytes: int) -> None:
        self._max_groups = max_groups
        self._max_bytes = max_bytes
        self._groups: OrderedDict[GroupId, OwnGroup] = OrderedDict()
        self.num_bytes = 0
        self.stored_total = 0

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, group_id: GroupId) -> bool:
        return group_id in self._groups

    def __iter__(self) -> Iterator[OwnGroup]:
        return iter(self._groups.values())

    def get(self, group_id: GroupId) -> OwnGroup | None:
        """Return what is remembered of an own group."""
        return self._groups.get(group_id)

    def add(self, group: OwnGroup) -> int:
        """Remember a group that is not remembered; return how many had to go for it."""
        self._groups[group.group_id] = group
        self.num_bytes += group.num_bytes
        self.stored_total += 1
        gone = 0
        while len(self._groups) > self._max_groups or self.num_bytes > self._max_bytes:
            self._forget_oldest()
            gone += 1
        return gone

    def forget_until(self, received_at: float) -> int:
        """Forget what was received at that time or before; return how many."""
        gone = 0
        while (oldest := self.oldest()) is not None and oldest.received_at <= received_at:
            self._forget_oldest()
            gone += 1
        return gone

    def oldest(self) -> OwnGroup | None:
        """Return what will be forgotten first."""
        return next(iter(self._groups.values()), None)

    def newest(self) -> OwnGroup | None:
        """Return what was added last."""
        return next(reversed(self._groups.values()), None)

    def _forget_oldest(self) -> None:
        _, gone = self._groups.popitem(last=False)
        self.num_bytes -= gone.num_bytes
