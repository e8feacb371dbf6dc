"""Leases of groups: holder and expiry. Pure.

A lease may name a group that is not in the buffer: a trainer that reconnects may hold one that this
node lost, and must not receive it a second time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from shoal_p2p.fair.containers import LazyHeap
from shoal_wire.types import GroupId


class LeaseBook:
    """All leases, by group and by deadline."""

    def __init__(self) -> None:
        self._holders: dict[GroupId, str] = {}
        """Holder of each leased group (a trainer's connection), in the order of the grants."""
        self._by_deadline: LazyHeap[GroupId] = LazyHeap()

    def __len__(self) -> int:
        return len(self._holders)

    def __contains__(self, group_id: GroupId) -> bool:
        return group_id in self._holders

    def holder_of(self, group_id: GroupId) -> str | None:
        """Return the holder of a group's lease, None if it is not leased."""
        return self._holders.get(group_id)

    def grant(self, group_id: GroupId, holder: str, deadline: float) -> None:
        """Lease a group, ending any lease it had; `deadline` is seconds on the buffer's clock."""
        self.end(group_id)
        self._holders[group_id] = holder
        self._by_deadline.put(group_id, deadline)

    def end(self, group_id: GroupId) -> None:
        """End the lease on a group, if there is one."""
        self._holders.pop(group_id, None)
        self._by_deadline.discard(group_id)

    def held_by(self, holder: str) -> list[GroupId]:
        """Return the groups leased by a holder, in the order of the grants; O(leases)."""
        return [group_id for group_id, one in self._holders.items() if one == holder]

    def next_deadline(self) -> float:
        """Return when the next lease expires, infinity if there is none."""
        least = self._by_deadline.least()
        return math.inf if least is None else least

    def overdue(self, now: float) -> Iterator[GroupId]:
        """Yield groups whose lease has expired; the caller ends each before the next."""
        while (group_id := self._by_deadline.peek()) is not None and self.next_deadline() <= now:
            yield group_id
