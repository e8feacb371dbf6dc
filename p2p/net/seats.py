"""Who is served at once, when more ask than there are seats. Pure.

Names cost nothing, so a full house is shared by network first, then by name.  Who waits for its
peer, which has yet to send its request or to read its answer, gives its seat up to a newcomer that
has less; work in hand is done to its end.

    newcomer ─▶ its name has its share? ─ yes ─▶ refused
                        │ no
                        ▼
             a seat is free, or one of who has more, or is of the same name, only waits? ─▶ seated
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from p2p.net.circuit import CircuitStream
from p2p.net.inbound_gate import prefix_of
from p2p.net.layers import find_socket, lowest_layer
from shoal_wire.types import PeerId


@dataclass(slots=True, eq=False)
class Seat:
    """One request on its way through."""

    peer_id: PeerId
    source: str
    evict: Callable[[], None]
    """Called when the seat is given to a newcomer."""
    is_busy: bool = False
    """True while it is our turn: then nobody takes the seat away."""


class Seats:
    """At most so many, at most so many of one name; the longest seated first."""

    def __init__(self, *, max_seats: int, max_of_peer: int) -> None:
        self._max_seats = max_seats
        self._max_of_peer = max_of_peer
        self._seats: dict[Seat, None] = {}

    def __len__(self) -> int:
        return len(self._seats)

    @property
    def num_busy(self) -> int:
        """Seats where it is our turn."""
        return sum(seat.is_busy for seat in self._seats)

    def __contains__(self, seat: object) -> bool:
        return seat in self._seats

    def take(
        self, peer_id: PeerId, source: str, *, evict: Callable[[], None] = lambda: None
    ) -> Seat | None:
        """Return a seat for a peer of that network (`source_of`); None if there is none for it."""
        of_source = Counter(seat.source for seat in self._seats)
        of_peer = Counter(seat.peer_id for seat in self._seats)
        if of_peer[peer_id] >= self._max_of_peer:
            return None
        if len(self._seats) >= self._max_seats:
            mine = (of_source[source], of_peer[peer_id])
            waiting = [seat for seat in self._seats if not seat.is_busy]
            victim = max(
                waiting, key=lambda s: (of_source[s.source], of_peer[s.peer_id]), default=None
            )
            if victim is None:
                return None
            theirs = (of_source[victim.source], of_peer[victim.peer_id])
            if theirs <= mine and victim.peer_id != peer_id:
                return None
            self.leave(victim)
            victim.evict()
        seat = Seat(peer_id, source, evict)
        self._seats[seat] = None
        return seat

    def leave(self, seat: Seat) -> None:
        """Give a seat back, if it is still held."""
        self._seats.pop(seat, None)


def source_of(connection: object) -> str:
    """Return what a connection shares its seats with: its network, or the relay it comes through.

    One of this machine, where all share an address, is a source of its own.
    """
    lowest = lowest_layer(connection)
    if isinstance(lowest, CircuitStream):
        return lowest.address.partition("/p2p-circuit")[0]
    stream = find_socket(connection)
    try:
        host = str(stream.socket.getpeername()[0]) if stream is not None else ""
    except OSError:  # gone already
        host = ""
    return prefix_of(host) or f"connection {id(connection)}"
