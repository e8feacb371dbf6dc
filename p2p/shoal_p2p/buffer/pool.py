"""External groups by publisher and by share key: eviction and sampling. Pure.

Every call is O(log n) amortised. Only groups without a lease can be evicted, expire or be sampled.

A lease may name a group that is not in the buffer: a trainer that reconnects may hold one that this
node lost, and must not receive it a second time. Own groups are recorded without their text. They
are never sampled. They are counted and shown like external groups, identify copies of the same
content, and determine which batches on disk are still needed.
"""

from __future__ import annotations

import math
import random
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from shoal_base.bounded import BoundedDict
from shoal_p2p.buffer.types import BufferEntry, BufferLimits, DropCause
from shoal_p2p.fair import FORWARDED, PUBLISHED, ShareKey
from shoal_p2p.fair.quota import HierarchicalQuota, LazyHeap, QuotaEntry
from shoal_wire.types import GroupId, PeerId


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


WeightOf = Callable[[PeerId, str], float]
"""``weight_of(publisher, source)``: the factor on a publisher's sampling probability, 0 to 1. The
source is the network responsible for its groups (`source_of`), empty for uniform sampling."""


def uniform_weight(_publisher: PeerId, _source: str) -> float:
    """Return 1: the weight of every publisher with uniform sampling."""
    return 1.0


def share_key_of(entry: BufferEntry) -> ShareKey:
    """Return a group's share key: network, origin, connection, publisher."""
    origin = PUBLISHED if entry.by_publisher else FORWARDED
    return (entry.network, origin, entry.connection, str(entry.group.publisher))


def source_of(entry: BufferEntry) -> str:
    """Return the network whose record a new publisher starts with, empty if it was forwarded.

    A peer forwards everything that is valid, even without signal, and other publishers behind it
    are not responsible for that.
    """
    return entry.network if entry.by_publisher else ""


@dataclass(slots=True)
class Counters:
    """Counters of one publisher, kept longer than its groups."""

    draws: int = 0
    stored_total: int = 0


class Slot:
    """A group in the pool with its quota entries. Compared by identity."""

    __slots__ = ("by_publisher", "by_share", "entry")

    def __init__(self, entry: BufferEntry) -> None:
        group_id, size, since = entry.group.group_id, entry.num_bytes, entry.received_at
        self.entry = entry
        self.by_share = QuotaEntry(share_key_of(entry), group_id, size, since)
        self.by_publisher = QuotaEntry((str(entry.group.publisher),), group_id, size, since)

    @property
    def is_ready(self) -> bool:
        """True if no trainer has leased it."""
        return self.by_share.is_free


class GroupPool:
    """Groups of many publishers, within fixed bounds."""

    def __init__(self, limits: BufferLimits) -> None:
        self.limits = limits
        self.max_group_bytes = min(limits.max_bytes, limits.max_bytes_per_publisher)
        """The largest group that fits an empty pool."""
        self.slots: dict[GroupId, Slot] = {}
        """Slots in order of arrival."""
        self.shares: HierarchicalQuota[GroupId] = HierarchicalQuota()
        self.publishers: HierarchicalQuota[GroupId] = HierarchicalQuota()
        self.counters: BoundedDict[PeerId, Counters] = BoundedDict(limits.max_publishers)
        self._oldest: LazyHeap[GroupId] = LazyHeap()

    @property
    def num_ready(self) -> int:
        """The number of groups that no trainer has leased."""
        return self.shares.root.num_free

    @property
    def num_bytes(self) -> int:
        """The size of all groups, in bytes of memory."""
        return self.shares.root.size

    def counters_of(self, publisher: PeerId) -> Counters:
        """Return a publisher's counters."""
        return self.counters.use(publisher, Counters)

    def oldest(self) -> Slot | None:
        """Return the oldest ready group."""
        group_id = self._oldest.peek()
        return None if group_id is None else self.slots[group_id]

    def add(self, entry: BufferEntry) -> None:
        """Add a group as ready. There must be space."""
        slot = self.slots[entry.group.group_id] = Slot(entry)
        self._enter(slot)

    def _enter(self, slot: Slot) -> None:
        self.shares.add(slot.by_share)
        self.publishers.add(slot.by_publisher)
        self._oldest.put(slot.by_share.item, slot.by_share.since)

    def remove(self, slot: Slot) -> None:
        """Remove a group, ready or leased."""
        self._leave(slot)
        del self.slots[slot.by_share.item]

    def _leave(self, slot: Slot) -> None:
        self.shares.remove(slot.by_share)
        self.publishers.remove(slot.by_publisher)
        self._oldest.discard(slot.by_share.item)

    def set_ready(self, slot: Slot, *, is_ready: bool) -> None:
        """Set whether a group may be sampled and evicted."""
        self.shares.set_free(slot.by_share, is_free=is_ready)
        self.publishers.set_free(slot.by_publisher, is_free=is_ready)
        if is_ready:
            self._oldest.put(slot.by_share.item, slot.by_share.since)
        else:
            self._oldest.discard(slot.by_share.item)

    def evict_for(self, entry: BufferEntry) -> list[tuple[Slot, DropCause]] | None:
        """Evict groups until `entry` fits and return them; None, without any change, if it cannot.

        A publisher at its own quota displaces its own oldest group. In a full pool
        `HierarchicalQuota` chooses, so a flooding peer only displaces itself, whatever its
        identities.
        """
        evicted: list[tuple[Slot, DropCause]] = []
        while (needed := self._lacking(entry)) is not None:
            cause, place = needed
            if place is None:
                for slot, _ in evicted:
                    self._enter(slot)
                return None
            slot = self.slots[place.item]
            self._leave(slot)
            evicted.append((slot, cause))
        for slot, _ in evicted:
            del self.slots[slot.by_share.item]
        return evicted

    def _lacking(self, entry: BufferEntry) -> tuple[DropCause, QuotaEntry[GroupId] | None] | None:
        """Return the next eviction and its cause for `entry` to fit, None once it fits."""
        limits, publishers = self.limits, self.publishers
        own, size = publishers.leaf((str(entry.group.publisher),)), entry.num_bytes
        if own is not None and (
            own.count + 1 > limits.max_groups_per_publisher
            or own.size + size > limits.max_bytes_per_publisher
        ):
            return DropCause.EVICTED_BY_QUOTA, own.oldest.peek()
        lacks_groups = self.shares.root.count + 1 > limits.max_groups
        if not lacks_groups and self.shares.root.size + size <= limits.max_bytes:
            return None
        eviction = self.shares.pick_eviction(share_key_of(entry), size, by_size=not lacks_groups)
        return DropCause.EVICTED_BY_CAPACITY, eviction

    def ready_publishers(self) -> Iterator[PeerId]:
        """Yield every publisher with a ready group."""
        for name, leaf in self.publishers.root.children.items():
            if leaf.num_free:
                yield PeerId(name)

    def draw(self, rng: random.Random, weight_of: WeightOf, *, by_shares: bool) -> Slot | None:
        """Return a ready group, sampled by share key or, without `by_shares`, by publisher.

        `weight_of` applies either way; None if no group has a positive weight.
        """
        tree = self.shares if by_shares else self.publishers
        place = tree.sample(
            rng, lambda share_key: weight_of(PeerId(share_key[-1]), _source_in(share_key))
        )
        return None if place is None else self.slots[place.item]


def _source_in(share_key: ShareKey) -> str:
    """Return `source_of` for the groups of a share key."""
    return share_key[0] if len(share_key) > 1 and share_key[1] == PUBLISHED else ""
