"""The replay buffer's groups by publisher, and whom a newcomer displaces. Pure.

Every call is O(log n) amortised. Only *ready* groups, those that nobody has leased, can be
displaced, expire or be drawn, so only they are in the heaps and draw sets.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from p2p.buffer.containers import DrawSet, OrderHeap
from p2p.buffer.shares import ShareTree
from p2p.buffer.types import BufferLimits, DropCause, Entry, Slot
from shoal_base.bounded import BoundedDict
from shoal_wire.types import PeerId


@dataclass(slots=True)
class Counters:
    """What is counted for a publisher; outlives its groups for a while."""

    draws: int = 0
    stored_total: int = 0


@dataclass(slots=True)
class PublisherGroups:
    """One publisher's groups."""

    counters: Counters
    by_age: OrderHeap[Slot]
    """Ready groups, oldest first."""
    groups: int = 0
    bytes: int = 0
    ready: DrawSet[Slot] = field(default_factory=DrawSet)
    slots: dict[int, Slot] = field(default_factory=dict)
    """All that are resident, by their arrival."""


class GroupPool:
    """Groups of many publishers within fixed bounds."""

    def __init__(self, limits: BufferLimits) -> None:
        self.limits = limits
        self.num_groups = 0
        self.num_bytes = 0
        self.shelves: dict[PeerId, PublisherGroups] = {}
        self.departed = BoundedDict[PeerId, Counters](limits.max_departed_publishers)
        self.ready_publishers: DrawSet[PeerId] = DrawSet()
        self._ready_by_arrival: dict[int, Slot] = {}
        self.oldest: OrderHeap[Slot] = OrderHeap(self._ready_by_arrival)
        self.shares = ShareTree(self._ready_by_arrival)

    @property
    def num_ready(self) -> int:
        """How many groups nobody has leased."""
        return len(self._ready_by_arrival)

    @property
    def max_group_bytes(self) -> int:
        """The largest group that fits an empty pool."""
        return min(self.limits.max_bytes, self.limits.max_bytes_per_publisher)

    def counters(self, publisher: PeerId) -> Counters:
        """Return the counters of a publisher that has groups here."""
        return self.shelves[publisher].counters

    def add(self, slot: Slot) -> None:
        """Add a slot as ready. There must be room."""
        publisher = slot.entry.group.publisher
        shelf = self.shelves.get(publisher)
        if shelf is None:
            known = publisher in self.departed
            shelf = PublisherGroups(
                counters=self.departed.pop(publisher) if known else Counters(),
                by_age=OrderHeap(self._ready_by_arrival),
            )
            self.shelves[publisher] = shelf
        shelf.groups += 1
        shelf.bytes += slot.entry.num_bytes
        shelf.slots[slot.arrival] = slot
        self.num_groups += 1
        self.num_bytes += slot.entry.num_bytes
        self._enter(slot, shelf)
        self.shares.add(slot)

    def remove(self, slot: Slot) -> None:
        """Remove a resident slot, ready or not."""
        publisher = slot.entry.group.publisher
        shelf = self.shelves[publisher]
        self.shares.remove(slot)
        if slot.ready:
            self._leave(slot, shelf)
        del shelf.slots[slot.arrival]
        shelf.groups -= 1
        shelf.bytes -= slot.entry.num_bytes
        self.num_groups -= 1
        self.num_bytes -= slot.entry.num_bytes
        if shelf.groups == 0:
            del self.shelves[publisher]
            self.departed[publisher] = shelf.counters

    def make_ready(self, slot: Slot) -> None:
        """Let a resident slot be drawn and displaced (again)."""
        self._enter(slot, self.shelves[slot.entry.group.publisher])
        self.shares.made_ready(slot)

    def take(self, slot: Slot) -> None:
        """Take a ready slot out of every draw, leaving it resident."""
        self._leave(slot, self.shelves[slot.entry.group.publisher])
        self.shares.taken(slot)

    def make_room(self, entry: Entry) -> list[tuple[Slot, DropCause]] | None:
        """Remove what `entry` displaces and return it; None, with nothing changed, if too little.

        At its own quota a publisher displaces its own oldest. In a full pool `ShareTree` says
        whose share is exceeded: so who floods displaces only itself, under whatever names.
        """
        victims: list[tuple[Slot, DropCause]] = []
        while (needed := self._lacking(entry)) is not None:
            cause, slot = needed
            if slot is None:
                for victim, _ in victims:
                    self.add(victim)
                return None
            self.remove(slot)
            victims.append((slot, cause))
        return victims

    def _lacking(self, entry: Entry) -> tuple[DropCause, Slot | None] | None:
        """Return what must go next for `entry` to fit, None once it fits."""
        publisher = entry.group.publisher
        limits = self.limits
        shelf = self.shelves.get(publisher)
        groups = 1 + (shelf.groups if shelf else 0)
        size = entry.num_bytes + (shelf.bytes if shelf else 0)
        if groups > limits.max_groups_per_publisher or size > limits.max_bytes_per_publisher:
            return DropCause.EVICTED_BY_QUOTA, shelf.by_age.peek() if shelf else None
        lacks_groups = self.num_groups + 1 > limits.max_groups
        if not lacks_groups and self.num_bytes + entry.num_bytes <= limits.max_bytes:
            return None
        victim = self.shares.victim(entry, by_bytes=not lacks_groups)
        return DropCause.EVICTED_BY_CAPACITY, victim

    def _enter(self, slot: Slot, shelf: PublisherGroups) -> None:
        received_at, arrival = slot.entry.received_at, slot.arrival
        slot.ready = True
        self._ready_by_arrival[arrival] = slot
        shelf.ready.add(slot)
        shelf.by_age.push(received_at, arrival, len(shelf.ready))
        self.oldest.push(received_at, arrival, self.num_ready)
        self.ready_publishers.add(slot.entry.group.publisher)

    def _leave(self, slot: Slot, shelf: PublisherGroups) -> None:
        slot.ready = False
        del self._ready_by_arrival[slot.arrival]
        shelf.ready.discard(slot)
        if not shelf.ready:
            self.ready_publishers.discard(slot.entry.group.publisher)
