"""Decides which requests are served when there are more than slots.

When all slots are taken, they are shared fairly by network, then by peer (`HierarchicalQuota`). A
slot that waits for its peer, which has yet to send its request or to read its answer, is given to a
newcomer that has fewer. Requests in progress are completed.
"""

from __future__ import annotations

from collections.abc import Callable

from shoal_p2p.fair.quota import HierarchicalQuota, QuotaEntry
from shoal_wire.types import PeerId

Slot = QuotaEntry[Callable[[], None]]
"""One request being served. Its item is called when the slot is given to another peer."""


class RequestSlots:
    """Limits concurrent requests, in all and for each peer. A peer's oldest slot is evicted
    first."""

    def __init__(self, *, max_slots: int, max_per_peer: int) -> None:
        self._max_slots = max_slots
        self._max_per_peer = max_per_peer
        self._tree: HierarchicalQuota[Callable[[], None]] = HierarchicalQuota()
        self._slots: set[Slot] = set()

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def num_busy(self) -> int:
        """Slots that wait for this node."""
        return len(self._slots) - self._tree.root.num_free

    def __contains__(self, slot: object) -> bool:
        return slot in self._slots

    def acquire(
        self, peer_id: PeerId, source: str, *, evict: Callable[[], None] = lambda: None
    ) -> Slot | None:
        """Return a slot for a peer of the network `source` (`source_of`); None if there is none for
        it."""
        share_key = (source, peer_id)
        if self._tree.count(share_key) >= self._max_per_peer:
            return None
        if len(self) >= self._max_slots:
            victim = self._tree.pick_eviction(share_key)
            if victim is None:
                return None
            self.release(victim)
            victim.item()
        slot = QuotaEntry(share_key, evict)
        self._tree.add(slot)
        self._slots.add(slot)
        return slot

    def set_busy(self, slot: Slot, *, is_busy: bool) -> None:
        """Record whether the request waits for this node. While it does, its slot is not
        evicted."""
        if slot in self._slots:
            self._tree.set_free(slot, is_free=not is_busy)

    def release(self, slot: Slot) -> None:
        """Release a slot, unless it was released already."""
        if slot in self._slots:
            self._slots.remove(slot)
            self._tree.remove(slot)
