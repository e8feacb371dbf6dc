"""The groups of others that are here, by publisher and by share: what goes and what is drawn.

Every call is O(log n) amortised. Only groups that nobody has leased can be displaced, expire or be
drawn. Pure.
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
"""The factor on a publisher's chance, 0 to 1, by its name and by the network that answers for what
it has here (`source_of`; empty where publishers are drawn alike)."""


def alike(_publisher: PeerId, _source: str) -> float:
    """Everybody's weight where nothing is known of anybody."""
    return 1.0


def share_key_of(entry: BufferEntry) -> ShareKey:
    """Return what a group shares room and draws by: its network, side, connection, publisher."""
    side = PUBLISHED if entry.by_publisher else FORWARDED
    return (entry.network, side, entry.connection, str(entry.group.publisher))


def source_of(entry: BufferEntry) -> str:
    """Return the network by which a new name is judged: that of a peer that signed it itself.

    Empty for what is passed on. A peer passes on all that is valid, also what teaches nothing, and
    that is no fault of the others that are heard through it.
    """
    return entry.network if entry.by_publisher else ""


@dataclass(slots=True)
class Counters:
    """Counters of one publisher; they outlive its groups for a while."""

    draws: int = 0
    stored_total: int = 0


class Slot:
    """A resident group with its places. Compared by identity."""

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
    """Groups of many publishers within fixed bounds."""

    def __init__(self, limits: BufferLimits) -> None:
        self.limits = limits
        self.slots: dict[GroupId, Slot] = {}
        """Slots in the order of their arrival."""
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
        """Return what is counted for a publisher."""
        return self.counters.use(publisher, Counters)

    def oldest(self) -> Slot | None:
        """Return the ready group that came first."""
        group_id = self._oldest.peek()
        return None if group_id is None else self.slots[group_id]

    def add(self, entry: BufferEntry) -> None:
        """Add a group as ready. There must be room."""
        slot = self.slots[entry.group.group_id] = Slot(entry)
        self._enter(slot)

    def _enter(self, slot: Slot) -> None:
        self.shares.add(slot.by_share)
        self.publishers.add(slot.by_publisher)
        self._oldest.put(slot.by_share.item, slot.by_share.since)

    def remove(self, slot: Slot) -> None:
        """Remove a resident group, ready or not."""
        self._leave(slot)
        del self.slots[slot.by_share.item]

    def _leave(self, slot: Slot) -> None:
        self.shares.remove(slot.by_share)
        self.publishers.remove(slot.by_publisher)
        self._oldest.discard(slot.by_share.item)

    def set_ready(self, slot: Slot, *, is_ready: bool) -> None:
        """Let a resident group be drawn and displaced, or take it out of every draw."""
        self.shares.set_free(slot.by_share, is_free=is_ready)
        self.publishers.set_free(slot.by_publisher, is_free=is_ready)
        if is_ready:
            self._oldest.put(slot.by_share.item, slot.by_share.since)
        else:
            self._oldest.discard(slot.by_share.item)

    def make_room(self, entry: BufferEntry) -> list[tuple[Slot, DropCause]] | None:
        """Remove what `entry` displaces and return it; None, with nothing changed, if too little.

        At its own quota a publisher displaces its own oldest. In a full pool `HierarchicalQuota`
        says whose share is exceeded: so who floods displaces only itself, under whatever names.
        """
        victims: list[tuple[Slot, DropCause]] = []
        while (needed := self._lacking(entry)) is not None:
            cause, place = needed
            if place is None:
                for slot, _ in victims:
                    self._enter(slot)
                return None
            slot = self.slots[place.item]
            self._leave(slot)
            victims.append((slot, cause))
        for slot, _ in victims:
            del self.slots[slot.by_share.item]
        return victims

    def _lacking(self, entry: BufferEntry) -> tuple[DropCause, QuotaEntry[GroupId] | None] | None:
        """Return what must go next for `entry` to fit, None once it fits."""
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
        victim = self.shares.pick_eviction(share_key_of(entry), size, by_size=not lacks_groups)
        return DropCause.EVICTED_BY_CAPACITY, victim

    def ready_publishers(self) -> Iterator[PeerId]:
        """Yield every publisher with a group that is ready."""
        for name, leaf in self.publishers.root.children.items():
            if leaf.num_free:
                yield PeerId(name)

    def draw(self, rng: random.Random, weight_of: WeightOf, *, by_shares: bool) -> Slot | None:
        """Return a ready group, drawn by share or, not `by_shares`, all publishers alike.

        Each way by `weight_of` its publisher; None where there is none of positive weight.
        """
        tree = self.shares if by_shares else self.publishers
        place = tree.sample(
            rng, lambda share_key: weight_of(PeerId(share_key[-1]), _source_in(share_key))
        )
        return None if place is None else self.slots[place.item]


def _source_in(share_key: ShareKey) -> str:
    """Return `source_of` the groups at the end of a path."""
    return share_key[0] if len(share_key) > 1 and share_key[1] == PUBLISHED else ""
