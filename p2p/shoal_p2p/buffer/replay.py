"""The replay buffer: bounded, idempotent, fair between publishers. Pure.

                  lease            consume
    ┌─────▶ ready ───────▶ leased ─────────▶ consumed (the id outlives it)
    insert    │ ▲             │
              │ └─────────────┘ release, lease expired, holder disconnected
              ▼
            dropped: evicted by a newer group or too old, never while leased; or withdrawn, and
            then its lease remains.

The groups are external; of its own groups the buffer records all but the text. Content that a
publisher evicts, by signing or sending more, may be inserted again from other publishers. Otherwise
the first peer to sign another one's content could exclude it for good. The bounds in `BufferLimits`
hold after every call. A call costs O(log n) per group, whatever the number of groups and
publishers. Time is an argument, in seconds on one monotonic clock; equal calls with equal seeds
give equal samples.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice

from shoal_base.bounded import BoundedDict
from shoal_ipc.answers.node import Buffer, PublisherRow
from shoal_p2p.buffer.pool import (
    Counters,
    GroupPool,
    LeaseBook,
    OwnGroups,
    Slot,
    WeightOf,
    uniform_weight,
)
from shoal_p2p.buffer.types import BufferEntry, BufferLimits, DropCause, InsertOutcome
from shoal_p2p.fair.quota import Leaf
from shoal_wire.types import GroupId, PeerId

MIN_USEFUL_PUBLISHERS = 16
"""Number of useful publishers with groups in the buffer above which the others are sampled less.
With fewer, a swarm's first useful publishers would stay its only ones. A guess: a round samples
about eight."""
UNKNOWN_SHARE = 0.05
"""Share of the samples for publishers without recent signal, all together: with 1,250 of them none
is sampled often enough to be evaluated. A guess between what liars get of it and how soon a useful
newcomer is found (tests/p2p/buffer/test_strangers.py)."""


class ReplayBuffer:
    """Groups to train on. Not thread-safe: one event loop owns it.

    buffer.insert(entry, now)
    entries = buffer.lease(8, holder="trainer", now=now, lease_seconds=60)
    buffer.consume(entry.group.group_id for entry in entries)
    """

    def __init__(self, limits: BufferLimits, rng: random.Random) -> None:
        self._limits = limits
        self._rng = rng
        self._pool = GroupPool(limits)
        self._own = OwnGroups(max_groups=limits.max_groups, max_bytes=limits.max_bytes)
        self._leases = LeaseBook()
        self._leased_slots = 0
        self._consumed: BoundedDict[GroupId, None] = BoundedDict(limits.max_consumed_ids)
        self._seen: BoundedDict[GroupId, None] = BoundedDict(limits.max_consumed_ids)
        self._refused: BoundedDict[tuple[GroupId, PeerId], None] = BoundedDict(
            limits.max_consumed_ids
        )
        """Groups by a publisher that caused their removal: accepted from other publishers only."""
        self._next_due = math.inf
        """Time before which no lease expires and no unleased group is too old."""
        self._num_stored = self._num_draws = self._num_consumed = 0
        self._dropped: Counter[str] = Counter()

    # Filling

    def insert(self, entry: BufferEntry, now: float) -> InsertOutcome:
        """Offer a group. Idempotent by group id; a refused group changes only the counters.

        In a full pool it evicts the oldest unleased group of the share key that exceeds its share
        most, from network down to identity (`shoal_p2p.fair.quota`); at its publisher's quota, the
        publisher's oldest. Expired groups are dropped first.
        """
        self.expire(now)
        outcome = self._refusal(entry, now, self._pool.max_group_bytes)
        evicted = None if outcome else self._pool.evict_for(entry)
        if evicted is None:
            outcome = outcome or InsertOutcome.OVER_QUOTA
            self._dropped[outcome] += 1
            return outcome
        for victim, cause in evicted:
            self._count_displaced(victim, cause)
        self._note_stored(entry)
        self._pool.add(entry)
        self._pool.counters_of(entry.group.publisher).stored_total += 1
        return InsertOutcome.STORED

    def record_own(self, entry: BufferEntry, now: float) -> InsertOutcome:
        """Record an own group, so that no copy of it is sampled as an external one.

        Counted like `insert`; at the bounds the oldest own groups are dropped.
        """
        self.expire(now)
        outcome = self._refusal(entry, now, self._limits.max_bytes)
        if outcome is not None:
            self._dropped[outcome] += 1
            return outcome
        self._note_stored(entry)
        if gone := self._own.add(entry):
            self._dropped[DropCause.EVICTED_BY_QUOTA] += gone
        return InsertOutcome.STORED

    def _refusal(self, entry: BufferEntry, now: float, max_bytes: int) -> InsertOutcome | None:
        group_id = entry.group.group_id
        if entry.num_bytes <= 0:
            raise ValueError("a group has a positive number of bytes")
        if group_id in self._consumed:
            return InsertOutcome.CONSUMED_BEFORE
        if self.has_seen(group_id) or (group_id, entry.group.publisher) in self._refused:
            return InsertOutcome.DUPLICATE
        if now - entry.received_at >= self._limits.max_age_seconds:
            return InsertOutcome.TOO_OLD
        return InsertOutcome.TOO_LARGE if entry.num_bytes > max_bytes else None

    def _note_stored(self, entry: BufferEntry) -> None:
        self._num_stored += 1
        self._seen.setdefault(entry.group.group_id, None)
        self._due_by(entry.received_at + self._limits.max_age_seconds)

    # Training on it

    def lease(
        self,
        count: int,
        *,
        holder: str,
        now: float,
        lease_seconds: float,
        weight_of: WeightOf = uniform_weight,
        has_signal: Callable[[PeerId], bool] | None = None,
        by_shares: bool = True,
    ) -> list[BufferEntry]:
        """Lease up to `count` groups to `holder`, sampled without replacement.

        `weight_of` scales the probability of a publisher, 0 to 1 (0: never). With `by_shares` the
        sample follows the share keys, network first; otherwise all publishers count equally. Once
        `has_signal` is true for enough publishers in the buffer, the others share a small part.
        """
        self.expire(now)
        pool = self._pool
        if has_signal is not None and not self._knows_enough(has_signal):
            has_signal = None
        entries: list[BufferEntry] = []
        while len(entries) < count:
            slot = self._draw(weight_of, has_signal, by_shares=by_shares)
            if slot is None:
                break
            self._lease_slot(slot, holder, now + lease_seconds)
            pool.counters_of(slot.entry.group.publisher).draws += 1
            entries.append(slot.entry)
        self._num_draws += len(entries)
        return entries

    def _knows_enough(self, has_signal: Callable[[PeerId], bool]) -> bool:
        known = filter(has_signal, self._pool.ready_publishers())
        return sum(1 for _ in islice(known, MIN_USEFUL_PUBLISHERS)) >= MIN_USEFUL_PUBLISHERS

    def _draw(
        self, weight_of: WeightOf, has_signal: Callable[[PeerId], bool] | None, *, by_shares: bool
    ) -> Slot | None:
        if has_signal is not None:
            is_known = self._rng.random() >= UNKNOWN_SHARE

            def of_kind(publisher: PeerId, source: str) -> float:
                return weight_of(publisher, source) if has_signal(publisher) is is_known else 0.0

            slot = self._pool.draw(self._rng, of_kind, by_shares=by_shares)
            if slot is not None:
                return slot
        return self._pool.draw(self._rng, weight_of, by_shares=by_shares)

    def consume(self, ids: Iterable[GroupId]) -> int:
        """Consume groups whose effect is in a checkpoint; return how many are newly consumed.

        Also valid after a lease expired, and for groups that are not in the buffer.
        """
        return sum(self._consume(group_id) for group_id in ids)

    def release(self, ids: Iterable[GroupId], holder: str) -> int:
        """Release groups leased by `holder`; return how many there were."""
        released = 0
        for group_id in ids:
            if self._leases.holder_of(group_id) == holder:
                self._end_lease(group_id)
                released += 1
        return released

    def release_holder(self, holder: str) -> int:
        """Release all groups leased by `holder`; return how many there were."""
        return self.release(self._leases.held_by(holder), holder)

    def hold(self, ids: Iterable[GroupId], holder: str, now: float, lease_seconds: float) -> int:
        """Lease groups by id to a trainer that still has them; return how many are in the buffer.

        Replaces other holders' leases. Groups that are not in the buffer are leased as well, at
        most `max_consumed_ids`, so that the same content counts as a duplicate.
        """
        self.expire(now)
        resident = 0
        for group_id in ids:
            if group_id in self._consumed:
                continue
            slot = self._pool.slots.get(group_id)
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
        """End expired leases, then drop old unleased groups; return how many were dropped."""
        if now < self._next_due:
            return 0
        for group_id in self._leases.overdue(now):
            self._end_lease(group_id)
        max_age = self._limits.max_age_seconds
        expired = self._own.forget_until(now - max_age)
        while (slot := self._pool.oldest()) is not None:
            if now - slot.entry.received_at < max_age:
                break
            self._remove(slot)
            expired += 1
        if expired:
            self._dropped[DropCause.EXPIRED] += expired
        self._next_due = self._leases.next_deadline()
        if slot is not None:
            self._due_by(slot.entry.received_at + max_age)
        if (own := self._own.oldest()) is not None:
            self._due_by(own.received_at + max_age)
        return expired

    def discard(self, ids: Collection[GroupId], publisher: PeerId) -> int:
        """Withdraw a publisher's groups, leased or not, for example after an equivocation.

        Returns how many were in the buffer. Leases remain, since the holder may still train on
        them. None of the groups is accepted from this publisher again.
        """
        self.refuse(ids, publisher)
        slots = [slot for group_id in ids if (slot := self._pool.slots.get(group_id)) is not None]
        slots = [slot for slot in slots if slot.entry.group.publisher == publisher]
        for slot in slots:
            self._remove(slot)
            self._count_displaced(slot, DropCause.DISCARDED)
        return len(slots)

    def refuse(self, ids: Iterable[GroupId], publisher: PeerId) -> None:
        """Refuse these groups from this publisher; other publishers may still deliver them."""
        for group_id in ids:
            self._refused[group_id, publisher] = None

    # Looking at it

    def ready(self) -> int:
        """Return how many groups can be leased."""
        return self._pool.num_ready

    def counters(self) -> dict[PeerId, Counters]:
        """Return the counters of every publisher, including those without groups."""
        return dict(self._pool.counters)

    def get(self, group_id: GroupId) -> BufferEntry | None:
        """Return a group in the buffer, or None."""
        slot = self._pool.slots.get(group_id)
        return None if slot is None else slot.entry

    def holds(self, group_id: GroupId) -> bool:
        """Return whether a group is in the buffer, or leased."""
        return group_id in self._pool.slots or group_id in self._leases

    def has_seen(self, group_id: GroupId) -> bool:
        """Return whether a group would be refused as a duplicate from any peer."""
        return (
            group_id in self._seen
            or group_id in self._consumed
            or group_id in self._own.entries
            or self.holds(group_id)
        )

    def get_own(self, group_id: GroupId) -> BufferEntry | None:
        """Return an own group without its text, or None."""
        return self._own.entries.get(group_id)

    def own_groups(self) -> Iterator[BufferEntry]:
        """Yield this node's own groups, without their text, oldest first; O(n)."""
        return iter(self._own.entries.values())

    def external_groups(self) -> Iterator[BufferEntry]:
        """Yield every external group in order of arrival; O(n)."""
        return (slot.entry for slot in self._pool.slots.values())

    @property
    def max_groups(self) -> int:
        """Capacity in external groups."""
        return self._limits.max_groups

    def room(self, *, since: float) -> int:
        """Return the capacity for external groups if those received before `since` are replaced."""
        newer = sum(slot.entry.received_at >= since for slot in self._pool.slots.values())
        return self._limits.max_groups - newer

    @property
    def max_groups_per_publisher(self) -> int:
        """The most groups of one publisher that it holds."""
        return self._limits.max_groups_per_publisher

    def stats(self, now: float, *, max_publishers: int = 256) -> Buffer:
        """Return a snapshot; the `max_publishers` with most groups are listed."""
        limits, dropped = self._limits, self._dropped
        evicted = DropCause.EVICTED_BY_QUOTA, DropCause.EVICTED_BY_CAPACITY
        return Buffer(
            groups=len(self._pool.slots),
            bytes=self._pool.num_bytes,
            local_groups=len(self._own.entries),
            local_bytes=self._own.num_bytes,
            leased=self._leased_slots,
            capacity_groups=limits.max_groups,
            capacity_bytes=limits.max_bytes,
            evicted=sum(dropped[cause] for cause in evicted),
            dropped={str(cause): count for cause, count in sorted(dropped.items())},
            consumed_total=self._num_consumed,
            stored_total=self._num_stored,
            sampled_total=self._num_draws,
            publishers=rows_of(self._own, self._pool, now, max_publishers),
        )

    # Inside

    def _due_by(self, when: float) -> None:
        if when < self._next_due:
            self._next_due = when

    def _lease_slot(self, slot: Slot, holder: str, deadline: float) -> None:
        if slot.is_ready:
            self._pool.set_ready(slot, is_ready=False)
            self._leased_slots += 1
        self._leases.grant(slot.entry.group.group_id, holder, deadline)
        self._due_by(deadline)

    def _end_lease(self, group_id: GroupId) -> None:
        self._leases.end(group_id)
        slot = self._pool.slots.get(group_id)
        if slot is not None and not slot.is_ready:
            self._pool.set_ready(slot, is_ready=True)
            self._leased_slots -= 1
            self._due_by(slot.entry.received_at + self._limits.max_age_seconds)

    def _consume(self, group_id: GroupId) -> bool:
        self._leases.end(group_id)
        slot = self._pool.slots.get(group_id)
        if slot is not None:
            self._remove(slot)
        is_new = group_id not in self._consumed
        self._consumed.setdefault(group_id, None)
        self._num_consumed += is_new
        return is_new

    def _remove(self, slot: Slot) -> None:
        if not slot.is_ready:
            self._leased_slots -= 1
        self._pool.remove(slot)

    def _count_displaced(self, slot: Slot, cause: DropCause) -> None:
        """Count a group that its publisher displaced; others may deliver its content again."""
        group_id, publisher = slot.entry.group.group_id, slot.entry.group.publisher
        self._seen.pop(group_id, None)
        self.refuse([group_id], publisher)
        self._dropped[cause] += 1


def rows_of(own: OwnGroups, pool: GroupPool, now: float, most: int) -> tuple[PublisherRow, ...]:
    """Return the `most` publishers with most groups, largest first; O(publishers and groups)."""
    leaves = (leaf for leaf in pool.publishers.root.children.values() if isinstance(leaf, Leaf))
    others = heapq.nlargest(most, leaves, key=lambda leaf: leaf.count)
    rows = [_row(leaf, pool.counters.get(PeerId(leaf.key), Counters()), now) for leaf in others]
    if own.entries:
        rows.insert(0, _own_row(own, now))
    return tuple(sorted(rows, key=lambda row: -row.groups)[:most])


def _own_row(own: OwnGroups, now: float) -> PublisherRow:
    entries = own.entries.values()
    oldest, newest = next(iter(entries)), next(reversed(entries))
    return PublisherRow(
        peer_id=oldest.group.publisher,
        is_local=True,
        groups=len(entries),
        bytes=own.num_bytes,
        oldest_s=round(now - oldest.received_at, 3),
        newest_s=round(now - newest.received_at, 3),
        received=own.stored_total,
    )


def _row(leaf: Leaf[GroupId], counters: Counters, now: float) -> PublisherRow:
    oldest = leaf.oldest.peek()
    newest = max((place.since for place in leaf.free), default=None)
    return PublisherRow(
        peer_id=PeerId(leaf.key),
        groups=leaf.count,
        bytes=leaf.size,
        oldest_s=None if oldest is None else round(now - oldest.since, 3),
        newest_s=None if newest is None else round(now - newest, 3),
        sampled=counters.draws,
        received=counters.stored_total,
    )
