"""The replay buffer: bounded, idempotent, fair between publishers. Pure.

                  lease                    ack (max_uses-th)
    ┌─────▶ ready ───────▶ leased ──────────────────────────▶ consumed (the id outlives it)
    insert    │ ▲             │
              │ └─────────────┘ release, lease run out, holder gone
              ▼
            gone: displaced by a newer group, or too old. Never while leased.

Only `ack` and `mark_consumed` consume. The bounds in `BufferLimits` hold after every call. A
call costs O(log n) a group, however many groups and publishers there are. Time is an argument,
in seconds on one monotonic clock; the same calls with the same seed give the same draws.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from p2p.buffer.drawing import Weights, draw
from p2p.buffer.leases import LeaseBook
from p2p.buffer.memory import IdMemory
from p2p.buffer.pool import Counters, GroupPool, Slot, external_limits, own_limits
from p2p.buffer.stats import BufferTotals, snapshot
from p2p.buffer.types import (
    BufferLimits,
    BufferStats,
    DropCause,
    Entry,
    GroupState,
    GroupView,
    InsertOutcome,
    Pool,
    Strategy,
)
from shoal_wire.types import GroupId, PeerId

__all__ = [
    "BufferLimits",
    "BufferStats",
    "DropCause",
    "Entry",
    "GroupState",
    "GroupView",
    "InsertOutcome",
    "Pool",
    "ReplayBuffer",
    "Strategy",
]


class ReplayBuffer:
    """Groups that may be trained on. Not safe for threads: one event loop owns it."""

    def __init__(self, limits: BufferLimits, rng: random.Random) -> None:
        self._limits = limits
        self._rng = rng
        self._pools = {
            Pool.OWN: GroupPool(own_limits(limits)),
            Pool.EXTERNAL: GroupPool(external_limits(limits)),
        }
        self._slots: dict[GroupId, Slot] = {}
        self._leases = LeaseBook()
        self._leased_slots = 0
        self._consumed = IdMemory(limits.max_consumed_ids)
        self._seen = IdMemory(limits.max_consumed_ids)
        self._next_due = math.inf
        """Before this time no lease runs out and no unleased group is too old."""
        self._totals = BufferTotals()
        self._dropped: Counter[str] = Counter()

    # Filling

    def insert(self, entry: Entry, now: float) -> InsertOutcome:
        """Offer a group. Idempotent by group id; a refused group changes only the counters.

        In a full pool it displaces the oldest unleased group of the publisher with most; at its
        own quota, its publisher's oldest. Groups too old are dropped first.
        """
        self.expire(now)
        outcome = self._refusal(entry, now)
        victims = None if outcome else self._pool_of(entry).make_room(entry)
        if victims is None:
            outcome = outcome or InsertOutcome.OVER_QUOTA
            self._dropped[outcome] += 1
            return outcome
        for victim, cause in victims:
            del self._slots[victim.entry.group.group_id]
            self._dropped[cause] += 1
        self._totals.stored += 1
        slot = Slot(entry=entry, arrival=self._totals.stored)
        pool = self._pool_of(entry)
        pool.add(slot)
        self._due_by(entry.received_at + self._limits.max_age_seconds)
        pool.counters(entry.group.publisher).stored_total += 1
        self._slots[entry.group.group_id] = slot
        self._seen.add(entry.group.group_id)
        return InsertOutcome.STORED

    def _refusal(self, entry: Entry, now: float) -> InsertOutcome | None:
        group_id = entry.group.group_id
        if entry.num_bytes <= 0:
            raise ValueError("a group has a positive number of bytes")
        if group_id in self._consumed:
            return InsertOutcome.CONSUMED_BEFORE
        if group_id in self._slots or group_id in self._seen or group_id in self._leases:
            return InsertOutcome.DUPLICATE
        if now - entry.received_at >= self._limits.max_age_seconds:
            return InsertOutcome.TOO_OLD
        if not self._pool_of(entry).could_ever_hold(entry.num_bytes):
            return InsertOutcome.TOO_LARGE
        return None

    # Training on it

    def lease(
        self,
        count: int,
        *,
        pool: Pool = Pool.EXTERNAL,
        strategy: Strategy = Strategy.UNIFORM_PUBLISHERS,
        holder: str,
        now: float,
        lease_seconds: float,
        exclude: Collection[GroupId] = (),
        weights: Weights | None = None,
    ) -> list[Entry]:
        """Lease up to `count` groups of one pool to `holder`, drawn without replacement.

        Groups in `exclude` are left alone. `weights` scales publishers' chances, 0 to 1 (one
        not named: 1; at 0 it is never drawn).
        """
        self.expire(now)
        source = self._pools[pool]
        excluded = (self._slots.get(group_id) for group_id in dict.fromkeys(exclude))
        aside = source.set_aside(
            slot for slot in excluded if slot is not None and _pool(slot.entry) is pool
        )
        entries: list[Entry] = []
        while len(entries) < count:
            slot = draw(source, strategy, self._rng, weights)
            if slot is None:
                break
            self._lease_slot(slot, holder, now + lease_seconds)
            slot.draws += 1
            source.counters(slot.entry.group.publisher).draws += 1
            entries.append(slot.entry)
        for slot in aside:
            source.make_ready(slot)
        self._totals.draws += len(entries)
        return entries

    def ack(self, ids: Iterable[GroupId], holder: str, now: float) -> int:
        """Count a use of each group; return how many were not consumed already.

        An acknowledgement says that a checkpoint contains the group's effect. So it counts even
        where the lease has run out, and where the group is no longer here its id is consumed.
        """
        counted = 0
        for group_id in ids:
            if group_id in self._consumed:
                continue
            counted += 1
            slot = self._slots.get(group_id)
            if slot is not None:
                slot.uses += 1
                if slot.uses < self._limits.max_uses:
                    self.release((group_id,), holder)
                    continue
            self._consume(group_id)
        self.expire(now)
        return counted

    def mark_consumed(self, ids: Iterable[GroupId]) -> int:
        """Consume groups named by a checkpoint, resident or not; return how many were new."""
        return sum(self._consume(group_id) for group_id in ids)

    def release(self, ids: Iterable[GroupId], holder: str) -> int:
        """Give back groups that `holder` has leased; return how many it had."""
        released = 0
        for group_id in ids:
            lease = self._leases.get(group_id)
            if lease is not None and lease.holder == holder:
                self._end_lease(group_id)
                released += 1
        return released

    def release_holder(self, holder: str) -> int:
        """Give back everything that `holder` has leased."""
        return self.release(self._leases.held_by(holder), holder)

    def hold(self, ids: Iterable[GroupId], holder: str, now: float, lease_seconds: float) -> int:
        """Lease groups by id to a trainer that still has them; return how many are resident.

        Takes them over from any other holder. Those not resident are leased as well, so that
        the same content arriving again is a duplicate; at most `max_consumed_ids` of them.
        """
        self.expire(now)
        resident = 0
        for group_id in ids:
            if group_id in self._consumed:
                continue
            slot = self._slots.get(group_id)
            if slot is not None:
                resident += 1
                self._lease_slot(slot, holder, now + lease_seconds)
            elif (
                group_id in self._leases
                or len(self._leases) - self._leased_slots < self._limits.max_consumed_ids
            ):
                self._leases.grant(group_id, holder, now + lease_seconds)
                self._due_by(now + lease_seconds)
        return resident

    def expire(self, now: float) -> int:
        """End leases that have run out, then drop unleased groups too old; return those."""
        if now < self._next_due:
            return 0
        for group_id in self._leases.overdue(now):
            self._end_lease(group_id)
        expired = 0
        for pool in self._pools.values():
            while (slot := pool.oldest.peek()) is not None:
                if now - slot.entry.received_at < self._limits.max_age_seconds:
                    break
                self._drop(slot, DropCause.EXPIRED)
                expired += 1
        self._next_due = self._leases.next_deadline()
        for pool in self._pools.values():
            if (slot := pool.oldest.peek()) is not None:
                self._due_by(slot.entry.received_at + self._limits.max_age_seconds)
        return expired

    def discard(self, ids: Iterable[GroupId]) -> int:
        """Withdraw groups, leased or not, as after an equivocation; return how many were here."""
        slots = [slot for group_id in ids if (slot := self._slots.get(group_id)) is not None]
        for slot in slots:
            self._leases.end(slot.entry.group.group_id)
            self._drop(slot, DropCause.DISCARDED)
        return len(slots)

    # Looking at it

    def ready(self, pool: Pool) -> int:
        """Return how many groups of a pool can be leased."""
        return len(self._pools[pool].ready)

    def publishers(self, pool: Pool) -> tuple[PeerId, ...]:
        """Return who has groups that can be leased; O(publishers)."""
        return tuple(self._pools[pool].ready_publishers)

    def contributed(self, pool: Pool) -> dict[PeerId, int]:
        """Return how many groups each publisher that can be drawn from has ever brought."""
        shelves = self._pools[pool].shelves
        return {p: shelves[p].counters.stored_total for p in self._pools[pool].ready_publishers}

    def counters(self, pool: Pool) -> dict[PeerId, Counters]:
        """Return what is counted of every publisher, of those too whose groups are gone."""
        source = self._pools[pool]
        present = {publisher: shelf.counters for publisher, shelf in source.shelves.items()}
        return {**source.departed, **present}

    def get(self, group_id: GroupId) -> GroupView | None:
        """Return a resident group."""
        slot = self._slots.get(group_id)
        return None if slot is None else _view(slot)

    def residents(self) -> Iterator[GroupView]:
        """Yield every resident group in the order of arrival; O(n)."""
        return (_view(slot) for slot in self._slots.values())

    def stats(self, now: float, *, max_publishers: int = 256) -> BufferStats:
        """Return a snapshot; the `max_publishers` with most groups are listed."""
        return snapshot(
            limits=self._limits,
            own=self._pools[Pool.OWN],
            external=self._pools[Pool.EXTERNAL],
            leased=self._leased_slots,
            totals=self._totals,
            dropped=self._dropped,
            now=now,
            max_publishers=max_publishers,
        )

    # Inside

    def _due_by(self, when: float) -> None:
        if when < self._next_due:
            self._next_due = when

    def _pool_of(self, entry: Entry) -> GroupPool:
        return self._pools[_pool(entry)]

    def _lease_slot(self, slot: Slot, holder: str, deadline: float) -> None:
        if slot.ready:
            self._pool_of(slot.entry).take(slot)
            self._leased_slots += 1
        self._leases.grant(slot.entry.group.group_id, holder, deadline)
        self._due_by(deadline)

    def _end_lease(self, group_id: GroupId) -> None:
        self._leases.end(group_id)
        slot = self._slots.get(group_id)
        if slot is not None and not slot.ready:
            self._pool_of(slot.entry).make_ready(slot)
            self._leased_slots -= 1
            self._due_by(slot.entry.received_at + self._limits.max_age_seconds)

    def _consume(self, group_id: GroupId) -> bool:
        self._leases.end(group_id)
        slot = self._slots.get(group_id)
        if slot is not None:
            self._remove(slot)
        is_new = self._consumed.add(group_id)
        self._totals.consumed += is_new
        return is_new

    def _drop(self, slot: Slot, cause: DropCause) -> None:
        self._remove(slot)
        self._dropped[cause] += 1

    def _remove(self, slot: Slot) -> None:
        if not slot.ready:
            self._leased_slots -= 1
        self._pool_of(slot.entry).remove(slot)
        del self._slots[slot.entry.group.group_id]


def _pool(entry: Entry) -> Pool:
    return Pool.OWN if entry.own else Pool.EXTERNAL


def _view(slot: Slot) -> GroupView:
    return GroupView(
        entry=slot.entry,
        state=GroupState.READY if slot.ready else GroupState.LEASED,
        draws=slot.draws,
    )
