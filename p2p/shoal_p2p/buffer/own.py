"""The buffer's record of this node's own groups: all but their text. Pure.

Nobody here draws them. They are counted and shown beside others' groups, are known again when
somebody sends the same content, and say which batches on disk are still of use.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

from shoal_p2p.buffer.types import BufferEntry
from shoal_wire.types import GroupId


class OwnGroups:
    """Own groups within a number and a size, the oldest forgotten first."""

    def __init__(self, *, max_groups: int, max_bytes: int) -> None:
        self._max_groups = max_groups
        self._max_bytes = max_bytes
        self.entries: OrderedDict[GroupId, BufferEntry] = OrderedDict()
        """Own groups without their completions; `num_bytes` is their cost with them."""
        self.num_bytes = 0
        self.stored_total = 0

    def add(self, entry: BufferEntry) -> int:
        """Remember a group that is not remembered; return how many had to go for it."""
        group = entry.group.group
        bare = replace(group, task=replace(group.task, inline=None), completions=())
        remembered = replace(entry, group=replace(entry.group, group=bare))
        self.entries[entry.group.group_id] = remembered
        self.num_bytes += entry.num_bytes
        self.stored_total += 1
        gone = 0
        while len(self.entries) > self._max_groups or self.num_bytes > self._max_bytes:
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

    def oldest(self) -> BufferEntry | None:
        """Return what will be forgotten first."""
        return next(iter(self.entries.values()), None)

    def _forget_oldest(self) -> None:
        _, gone = self.entries.popitem(last=False)
        self.num_bytes -= gone.num_bytes
