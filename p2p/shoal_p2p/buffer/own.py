"""The buffer's record of this node's own groups, without their text. Pure.

They are never sampled. They are counted and shown like external groups, identify copies of the same
content, and determine which batches on disk are still needed.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

from shoal_p2p.buffer.types import BufferEntry
from shoal_wire.types import GroupId


class OwnGroups:
    """Own groups, bounded by number and size; the oldest are dropped first."""

    def __init__(self, *, max_groups: int, max_bytes: int) -> None:
        self._max_groups = max_groups
        self._max_bytes = max_bytes
        self.entries: OrderedDict[GroupId, BufferEntry] = OrderedDict()
        """Own groups without their completions; `num_bytes` is their cost with them."""
        self.num_bytes = 0
        self.stored_total = 0

    def add(self, entry: BufferEntry) -> int:
        """Add a group that is not present; return how many were dropped for it."""
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
        """Drop groups received at that time or before; return how many."""
        gone = 0
        while (oldest := self.oldest()) is not None and oldest.received_at <= received_at:
            self._forget_oldest()
            gone += 1
        return gone

    def oldest(self) -> BufferEntry | None:
        """Return the group that will be dropped first."""
        return next(iter(self.entries.values()), None)

    def _forget_oldest(self) -> None:
        _, gone = self.entries.popitem(last=False)
        self.num_bytes -= gone.num_bytes
