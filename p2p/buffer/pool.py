"""The replay buffer's groups by publisher, and whom a newcomer displaces. Pure.

Every call is O(log n) amortised. Only *ready* groups, those that nobody has leased, can be
displaced, expire or be drawn, so only they are in the heaps and draw sets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from p2p.buffer.containers import DrawSet, LazyHeap, OrderHeap
from p2p.buffer.types import BufferLimits, DropCause, Entry
from shoal_base.bounded import BoundedDict
from shoal_wire.types import PeerId


@dataclass(slots=True, eq=False)
class Slot:
    """A resident group. Compared by identity."""

    entry: Entry
    arrival: int
    """The buffer's running number."""
    ready: bool = False


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


_NOTED_CHANGES = 64
"""Publishers of a ranking that may have changed since it was asked, beside twice the ranked."""


class _Ranking:
    """Which publisher with ready groups has most, by groups or by bytes.

    Changes are only noted until somebody asks, which a pool that is not full never does.
    """

    def __init__(self, measure: Callable[[PeerId], int]) -> None:
        self._measure = measure
        self._heap: LazyHeap[PeerId] = LazyHeap()
        self._changed: dict[PeerId, bool] = {}

    def changed(self, publisher: PeerId, *, evictable: bool) -> None:
        self._changed[publisher] = evictable
        if len(self._changed) > 2 * len(self._heap) + _NOTED_CHANGES:
            self._catch_up()

    def largest(self) -> PeerId | None:
        self._catch_up()
        return self._heap.peek()

    def _catch_up(self) -> None:
        for publisher, evictable in self._changed.items():
            if evictable:
                self._heap.put(publisher, -self._measure(publisher))
            else:
                self._heap.discard(publisher)
        self._changed.clear()


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
        self._most_groups = _Ranking(lambda peer: self.shelves[peer].groups)
        self._most_bytes = _Ranking(lambda peer: self.shelves[peer].bytes)

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
        self.num_groups += 1
        self.num_bytes += slot.entry.num_bytes
        self.make_ready(slot)
        self._rank(publisher, shelf)

    def remove(self, slot: Slot) -> None:
        """Remove a resident slot, ready or not."""
        publisher = slot.entry.group.publisher
        shelf = self.shelves[publisher]
        if slot.ready:
            self.take(slot)
        shelf.groups -= 1
        shelf.bytes -= slot.entry.num_bytes
        self.num_groups -= 1
        self.num_bytes -= slot.entry.num_bytes
        self._rank(publisher, shelf)
        if shelf.groups == 0:
            del self.shelves[publisher]
            self.departed[publisher] = shelf.counters

    def make_ready(self, slot: Slot) -> None:
        """Let a resident slot be drawn and displaced (again)."""
        publisher = slot.entry.group.publisher
        shelf = self.shelves[publisher]
        was_bare = not shelf.ready
        received_at, arrival = slot.entry.received_at, slot.arrival
        slot.ready = True
        self._ready_by_arrival[arrival] = slot
        shelf.ready.add(slot)
        shelf.by_age.push(received_at, arrival, len(shelf.ready))
        self.oldest.push(received_at, arrival, self.num_ready)
        if was_bare:
            self.ready_publishers.add(publisher)
            self._rank(publisher, shelf)

    def take(self, slot: Slot) -> None:
        """Take a ready slot out of every draw, leaving it resident."""
        publisher = slot.entry.group.publisher
        shelf = self.shelves[publisher]
        slot.ready = False
        del self._ready_by_arrival[slot.arrival]
        shelf.ready.discard(slot)
        if not shelf.ready:
            self.ready_publishers.discard(publisher)
            self._rank(publisher, shelf)

    def make_room(self, entry: Entry) -> list[tuple[Slot, DropCause]] | None:
        """Remove what `entry` displaces and return it; None, with nothing changed, if too little.

        At its own quota a publisher displaces its own oldest. In a full pool the oldest of the
        publisher with most goes, counting the newcomer: so who floods displaces only itself.
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
        own_oldest = shelf.by_age.peek() if shelf else None
        if groups > limits.max_groups_per_publisher or size > limits.max_bytes_per_publisher:
            return DropCause.EVICTED_BY_QUOTA, own_oldest
        if self.num_groups + 1 > limits.max_groups:
            fattest = self._most_groups.largest()
            larger = fattest is not None and self.shelves[fattest].groups >= groups
        elif self.num_bytes + entry.num_bytes > limits.max_bytes:
            fattest = self._most_bytes.largest()
            larger = fattest is not None and self.shelves[fattest].bytes >= size
        else:
            return None
        if fattest is not None and larger:
            return DropCause.EVICTED_BY_CAPACITY, self.shelves[fattest].by_age.peek()
        return DropCause.EVICTED_BY_CAPACITY, own_oldest

    def _rank(self, publisher: PeerId, shelf: PublisherGroups) -> None:
        self._most_groups.changed(publisher, evictable=bool(shelf.ready))
        self._most_bytes.changed(publisher, evictable=bool(shelf.ready))
