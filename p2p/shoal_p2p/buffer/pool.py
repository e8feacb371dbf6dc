"""External groups by publisher and by share key: eviction and sampling. Pure.

Every call is O(log n) amortised. Only groups without a lease can be evicted, expire or be sampled.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from shoal_base.bounded import BoundedDict
from shoal_p2p.buffer.types import BufferEntry, BufferLimits, DropCause
from shoal_p2p.fair import FORWARDED, PUBLISHED, ShareKey
from shoal_p2p.fair.containers import LazyHeap
from shoal_p2p.fair.quota import HierarchicalQuota, QuotaEntry
from shoal_wire.types import GroupId, PeerId

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

    @property
    def max_group_bytes(self) -> int:
        """The largest group that fits an empty pool."""
        return min(self.limits.max_bytes, self.limits.max_bytes_per_publisher)

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
        lacks_groups = len(self.shares) + 1 > limits.max_groups
        if not lacks_groups and self.num_bytes + size <= limits.max_bytes:
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
