"""Leases of groups: holder and expiry. Pure.

A lease may name a group that is not resident: a trainer that reconnects may hold one that this
node lost, and must not be handed it a second time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from shoal_p2p.fair.containers import LazyHeap
from shoal_wire.types import GroupId


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One group held by one trainer connection."""

    holder: str
    deadline: float
    """Seconds, on the buffer's clock."""


class LeaseBook:
    """All leases, by group, by holder and by deadline."""

    def __init__(self) -> None:
        self._leases: dict[GroupId, Lease] = {}
        self._by_deadline: LazyHeap[GroupId] = LazyHeap()
        self._by_holder: dict[str, dict[GroupId, None]] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def __contains__(self, group_id: GroupId) -> bool:
        return group_id in self._leases

    def get(self, group_id: GroupId) -> Lease | None:
        """Return the lease on a group, if any."""
        return self._leases.get(group_id)

    def grant(self, group_id: GroupId, holder: str, deadline: float) -> None:
        """Lease a group, ending any lease it had."""
        if group_id in self._leases:
            self.end(group_id)
        self._leases[group_id] = Lease(holder=holder, deadline=deadline)
        self._by_deadline.put(group_id, deadline)
        self._by_holder.setdefault(holder, {})[group_id] = None

    def end(self, group_id: GroupId) -> Lease | None:
        """End a lease and return it, None if there was none."""
        lease = self._leases.pop(group_id, None)
        if lease is None:
            return None
        self._by_deadline.discard(group_id)
        held = self._by_holder[lease.holder]
        del held[group_id]
        if not held:
            del self._by_holder[lease.holder]
        return lease

    def held_by(self, holder: str) -> tuple[GroupId, ...]:
        """Return what a holder has leased, in the order it was granted."""
        return tuple(self._by_holder.get(holder, ()))

    def next_deadline(self) -> float:
        """Return when the next lease runs out, infinity when there is none."""
        least = self._by_deadline.least()
        return math.inf if least is None else least

    def overdue(self, now: float) -> Iterator[GroupId]:
        """Yield groups whose lease has run out; the caller ends each before the next."""
        while (deadline := self._by_deadline.least()) is not None and deadline <= now:
            group_id = self._by_deadline.peek()
            assert group_id is not None
            yield group_id
