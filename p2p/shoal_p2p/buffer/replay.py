"""The replay buffer: bounded, idempotent, fair between publishers. Pure.

                  lease            consume
    ┌─────▶ ready ───────▶ leased ─────────▶ consumed (the id outlives it)
    insert    │ ▲             │
              │ └─────────────┘ release, lease run out, holder gone
              ▼
            gone: displaced by a newer group or too old, never while leased; or withdrawn, and
            then a lease outlives it.

The groups are others': of this node's own it remembers all but the text. What a publisher can make
leave, by signing or sending more, may come again from others: else whoever is first with somebody's
content under its own key could keep it out for good. The bounds in
`BufferLimits` hold after every call. A call costs O(log n) a group, however many groups and
publishers there are. Time is an argument, in seconds on one monotonic clock; the same calls with
the same seed give the same draws.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice

from shoal_base.bounded import BoundedDict
from shoal_ipc.answers.node import Buffer
from shoal_p2p.buffer.leases import LeaseBook
from shoal_p2p.buffer.own import OwnGroups
from shoal_p2p.buffer.pool import Counters, GroupPool, Slot, WeightOf, alike
from shoal_p2p.buffer.stats import rows_of
from shoal_p2p.buffer.types import BufferEntry, BufferLimits, DropCause, InsertOutcome
from shoal_wire.types import GroupId, PeerId

ENOUGH_KNOWN = 16
"""Publishers that have taught this node, with groups here, from which on others get less. Fewer
would make a swarm's first useful publishers its only ones. A guess: a round draws some eight."""
STRANGERS_SHARE = 0.05
"""Share of the draws that publishers have together that have taught nothing yet, or no longer: with
1,250 of them none is drawn often enough to be known. A guess between what liars get of it and how
soon a newcomer is found (tests/p2p/buffer/test_strangers.py)."""


class ReplayBuffer:
    """Groups that may be trained on. Not safe for threads: one event loop owns it."""

    def __init__(self, limits: BufferLimits, rng: random.Random) -> None:
        self._limits = limits
        self._rng = rng
        self._pool = GroupPool(limits)
        self._own = OwnGroups(max_groups=limits.max_groups, max_bytes=limits.max_bytes)
        self._leases = LeaseBook()
        self._leased_slots = 0
        self._consumed: BoundedDict[GroupId, None] = BoundedDict(limits.max_consumed_ids)
        self._seen: BoundedDict[GroupId, None] = BoundedDict(limits.max_consumed_ids)
        self._given_up: BoundedDict[tuple[GroupId, PeerId], None] = BoundedDict(
            limits.max_consumed_ids
        )
        """Groups that were here, by publisher, and left by its doing: others may bring them."""
        self._next_due = math.inf
        """Time before which no lease runs out and no unleased group is too old."""
        self._num_stored = self._num_draws = self._num_consumed = 0
        self._dropped: Counter[str] = Counter()

    # Filling

    def insert(self, entry: BufferEntry, now: float) -> InsertOutcome:
        """Offer a group. Idempotent by group id; a refused group changes only the counters.

        In a full pool it displaces the oldest unleased group of whoever exceeds its share most: by
        network first, and by name last (`shoal_p2p.fair.quota`); at its own quota, its publisher's
        oldest. Groups too old are dropped first.
        """
        self.expire(now)
        outcome = self._refusal(entry, now, self._pool.max_group_bytes)
        victims = None if outcome else self._pool.make_room(entry)
        if victims is None:
            outcome = outcome or InsertOutcome.OVER_QUOTA
            self._dropped[outcome] += 1
            return outcome
        for victim, cause in victims:
            self._let_return(victim, cause)
        self._note_stored(entry)
        self._pool.add(entry)
        self._pool.counters_of(entry.group.publisher).stored_total += 1
        return InsertOutcome.STORED

    def note_own(self, entry: BufferEntry, now: float) -> InsertOutcome:
        """Remember a group of this node's own, so that no copy of it is drawn as another's.

        Counted as `insert` counts; at the bounds the oldest own ones are forgotten.
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
        if self.has_seen(group_id) or (group_id, entry.group.publisher) in self._given_up:
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
        weight_of: WeightOf = alike,
        has_signal: Callable[[PeerId], bool] | None = None,
        by_shares: bool = True,
    ) -> list[BufferEntry]:
        """Lease up to `count` groups to `holder`, drawn without replacement.

        `weight_of` scales publishers' chances, 0 to 1 (at 0 one is never drawn). `by_shares` draws
        as the room is shared, by network first; else all publishers count alike. Once `has_signal`
        holds of enough publishers here, the others share a small part of the draws.
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
        return sum(1 for _ in islice(known, ENOUGH_KNOWN)) >= ENOUGH_KNOWN

    def _draw(
        self, weight_of: WeightOf, has_signal: Callable[[PeerId], bool] | None, *, by_shares: bool
    ) -> Slot | None:
        if has_signal is not None:
            is_known = self._rng.random() >= STRANGERS_SHARE

            def of_kind(publisher: PeerId, source: str) -> float:
                return weight_of(publisher, source) if has_signal(publisher) is is_known else 0.0

            slot = self._pool.draw(self._rng, of_kind, by_shares=by_shares)
            if slot is not None:
                return slot
        return self._pool.draw(self._rng, weight_of, by_shares=by_shares)

    def consume(self, ids: Iterable[GroupId]) -> int:
        """Consume groups whose effect a checkpoint contains; return how many were not already.

        It counts even where the lease has run out, and where the group is not here.
        """
        return sum(self._consume(group_id) for group_id in ids)

    def release(self, ids: Iterable[GroupId], holder: str) -> int:
        """Give back groups that `holder` has leased; return how many it had."""
        released = 0
        for group_id in ids:
            if self._leases.holder_of(group_id) == holder:
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
        """End leases that have run out, then drop unleased groups too old; return those."""
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
        """Withdraw a publisher's groups, leased or not, as after an equivocation.

        Returns how many of them were here. What is leased stays so, for its holder may train on it
        yet. None of them is taken from this publisher again.
        """
        self.refuse(ids, publisher)
        slots = [slot for group_id in ids if (slot := self._pool.slots.get(group_id)) is not None]
        slots = [slot for slot in slots if slot.entry.group.publisher == publisher]
        for slot in slots:
            self._remove(slot)
            self._let_return(slot, DropCause.DISCARDED)
        return len(slots)

    def refuse(self, ids: Iterable[GroupId], publisher: PeerId) -> None:
        """Take groups from others only, not from this publisher."""
        for group_id in ids:
            self._given_up[group_id, publisher] = None

    # Looking at it

    def ready(self) -> int:
        """Return how many groups can be leased."""
        return self._pool.num_ready

    def counters(self) -> dict[PeerId, Counters]:
        """Return what is counted of every publisher, of those too whose groups are gone."""
        return dict(self._pool.counters)

    def get(self, group_id: GroupId) -> BufferEntry | None:
        """Return a resident group."""
        slot = self._pool.slots.get(group_id)
        return None if slot is None else slot.entry

    def holds(self, group_id: GroupId) -> bool:
        """Return whether a group is resident, or leased."""
        return group_id in self._pool.slots or group_id in self._leases

    def has_seen(self, group_id: GroupId) -> bool:
        """Return whether a group is refused as known already, whoever brings it."""
        return (
            self.holds(group_id)
            or group_id in self._seen
            or group_id in self._consumed
            or group_id in self._own.entries
        )

    def get_own(self, group_id: GroupId) -> BufferEntry | None:
        """Return a group of this node's own, without its text."""
        return self._own.entries.get(group_id)

    def own_groups(self) -> Iterator[BufferEntry]:
        """Yield this node's own groups, without their text, oldest first; O(n)."""
        return iter(self._own.entries.values())

    def residents(self) -> Iterator[BufferEntry]:
        """Yield every resident group, which are others', in the order of arrival; O(n)."""
        return (slot.entry for slot in self._pool.slots.values())

    @property
    def max_groups(self) -> int:
        """The most groups of others that it holds."""
        return self._limits.max_groups

    def room(self, *, since: float) -> int:
        """Return how many groups of others it could take in place of what came before `since`."""
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

    def _let_return(self, slot: Slot, cause: DropCause) -> None:
        """Count a group that left by its publisher's doing: others may bring its content."""
        group_id, publisher = slot.entry.group.group_id, slot.entry.group.publisher
        self._seen.pop(group_id, None)
        self.refuse([group_id], publisher)
        self._dropped[cause] += 1
