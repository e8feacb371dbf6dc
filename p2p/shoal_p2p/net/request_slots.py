"""Decides which requests are served at once, when more peers ask than there are seats.

Where all seats are taken they are shared by network, then by name (`HierarchicalQuota`).  A seat
that waits for its peer, which has yet to send its request or to read its answer, goes to a newcomer
that has less; work in hand is done to its end.
"""

from __future__ import annotations

from collections.abc import Callable

from shoal_p2p.fair.quota import HierarchicalQuota, QuotaEntry
from shoal_wire.types import PeerId

Seat = QuotaEntry[Callable[[], None]]
"""One request on its way through; its item is called when the seat is given to a newcomer."""


class RequestSlots:
    """Bounds requests, in all and by name; of one name the longest seated goes first."""

    def __init__(self, *, max_seats: int, max_of_peer: int) -> None:
        self._max_seats = max_seats
        self._max_of_peer = max_of_peer
        self._tree: HierarchicalQuota[Callable[[], None]] = HierarchicalQuota()
        self._seats: set[Seat] = set()

    def __len__(self) -> int:
        return len(self._seats)

    @property
    def num_busy(self) -> int:
        """Seats where it is our turn."""
        return len(self._seats) - self._tree.root.num_free

    def __contains__(self, seat: object) -> bool:
        return seat in self._seats

    def take(
        self, peer_id: PeerId, source: str, *, evict: Callable[[], None] = lambda: None
    ) -> Seat | None:
        """Return a seat for a peer of that network (`source_of`); None if there is none for it."""
        share_key = (source, peer_id)
        if self._tree.count(share_key) >= self._max_of_peer:
            return None
        if len(self) >= self._max_seats:
            victim = self._tree.pick_eviction(share_key)
            if victim is None:
                return None
            self.leave(victim)
            victim.item()
        seat = QuotaEntry(share_key, evict)
        self._tree.add(seat)
        self._seats.add(seat)
        return seat

    def set_busy(self, seat: Seat, *, is_busy: bool) -> None:
        """Note whether it is our turn: while it is, nobody takes the seat away."""
        if seat in self._seats:
            self._tree.set_free(seat, is_free=not is_busy)

    def leave(self, seat: Seat) -> None:
        """Give a seat back, if it is still held."""
        if seat in self._seats:
            self._seats.remove(seat)
            self._tree.remove(seat)
