"""The peers worth remembering across restarts: where they were, and how well dialling went.

What only others said of a peer is not in it.  No I/O of its own. Bounded: 256 peers of 8 addresses,
64 of one network; those never dialled go first, then the lowest-ranked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Literal

from pydantic import NonNegativeInt, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from shoal_base.bounded import FEW
from shoal_base.rows import one_a_line
from shoal_p2p.net.address import host_and_port, parse_peer_id, parse_transport
from shoal_p2p.net.inbound_gate import prefix_of
from shoal_wire.limits import MAX_ADDRS_PER_PEER
from shoal_wire.peers import PeerAddresses
from shoal_wire.types import PeerId

MAX_PEERS = 256
"""Peers that are remembered."""
MAX_OF_NETWORK = MAX_PEERS // 4
"""Peers of one network that are remembered. Loopback is free."""
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BookEntry:
    """One remembered peer."""

    peer_id: PeerId
    addresses: tuple[str, ...]
    last_seen_ms: int
    """Wall clock of the last time it was connected; 0 if never."""
    num_successes: int = 0
    """Times that this node has reached it by a dial of its own."""
    num_failures: int = 0
    """Failed dials since the last success."""


class _SavedPeer(TypedDict):
    peer_id: str
    addresses: list[str]
    last_seen_ms: NonNegativeInt
    num_successes: NonNegativeInt
    num_failures: NonNegativeInt


class _Saved(TypedDict):
    version: Literal[1]
    peers: list[_SavedPeer]


_SAVED: Final = TypeAdapter(_Saved)


def _goes_first(entry: BookEntry) -> tuple[bool, tuple[int, int, int]]:
    """Sort key of who makes room, last first: those that this node never reached itself."""
    return (entry.num_successes == 0, _rank(entry))


def _network(entry: BookEntry) -> str | None:
    return _network_of(entry.addresses[0])


@lru_cache(maxsize=2 * MAX_PEERS)
def _network_of(address: str) -> str | None:
    return prefix_of(host_and_port(address)[0])


def _rank(entry: BookEntry) -> tuple[int, int, int]:
    """Sort key, best first: few recent failures, then recently seen, then often seen."""
    return (min(entry.num_failures, 10), -entry.last_seen_ms, -entry.num_successes)


class PeerBook:
    """Remembered peers by peer id."""

    def __init__(
        self,
        entries: Iterable[BookEntry] = (),
        *,
        max_peers: int = MAX_PEERS,
        max_addresses: int = MAX_ADDRS_PER_PEER,
    ) -> None:
        self._max_peers = max_peers
        self._max_addresses = max_addresses
        self._entries: dict[PeerId, BookEntry] = {}
        self._num_of: Counter[str | None] = Counter()
        """Entries by network."""
        self._ranked: tuple[BookEntry, ...] | None = None
        self._text: str | None = None
        """Results of `ranked` and `to_json`, kept until something changes."""
        self.num_met = 0
        """Changes of the book that are saved at once: a peer reached for the first time, and one of
        the first 64 that came by, or at another place. Strangers' names beyond these wait."""
        for entry in entries:
            self._put(entry)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, peer_id: PeerId) -> BookEntry | None:
        """Return what is remembered of `peer_id`."""
        return self._entries.get(peer_id)

    def ranked(self) -> tuple[BookEntry, ...]:
        """Return all entries, the likeliest to answer first."""
        if self._ranked is None:
            self._ranked = tuple(sorted(self._entries.values(), key=_rank))
        return self._ranked

    def note_connected(self, peer: PeerAddresses, *, now_ms: int, by_dial: bool = True) -> None:
        """`peer` is connected; the addresses given are known good or announced by itself.

        Whom this node has not dialled itself (`by_dial`) pushes out nobody whom it has.
        """
        old = self._entries.get(peer.peer_id)
        is_reached = by_dial and not (old and old.num_successes)
        is_new = not set(peer.addresses) <= set(old.addresses if old else ())
        if is_reached or (is_new and len(self._entries) < FEW):
            self.num_met += 1
        self._put(
            BookEntry(
                peer_id=peer.peer_id,
                addresses=(*peer.addresses, *(old.addresses if old else ())),
                last_seen_ms=now_ms,
                num_successes=(old.num_successes if old else 0) + by_dial,
            )
        )

    def note_failed(self, peer_id: PeerId) -> None:
        """A dial of `peer_id` failed; nothing happens to peers not in the book."""
        if old := self._entries.get(peer_id):
            self._entries[peer_id] = replace(old, num_failures=old.num_failures + 1)
            self._ranked = self._text = None

    def _put(self, entry: BookEntry) -> None:
        addresses = tuple(dict.fromkeys(entry.addresses))[: self._max_addresses]
        if not addresses:
            return
        entry = replace(entry, addresses=addresses)
        if (old := self._entries.get(entry.peer_id)) is not None:
            self._uncount(old)
        self._entries[entry.peer_id] = entry
        self._num_of[_network(entry)] += 1
        self._ranked = self._text = None
        if (pool := self._too_many_with(entry)) and (gone := max(pool, key=_goes_first)):
            never_reached = entry.num_successes == 0 < gone.num_successes
            forgotten = entry if never_reached else gone
            del self._entries[forgotten.peer_id]
            self._uncount(forgotten)

    def _uncount(self, entry: BookEntry) -> None:
        network = _network(entry)
        self._num_of[network] -= 1
        if not self._num_of[network]:
            del self._num_of[network]

    def _too_many_with(self, entry: BookEntry) -> list[BookEntry]:
        """Return of whom one must go for `entry`; nobody while there is room."""
        network = _network(entry)
        is_crowded = network is not None and self._num_of[network] > MAX_OF_NETWORK
        if not is_crowded and len(self._entries) <= self._max_peers:
            return []
        others = [e for e in self._entries.values() if e.peer_id != entry.peer_id]
        return [e for e in others if _network(e) == network] if is_crowded else others

    def to_json(self) -> str:
        """Return the book as text."""
        if self._text is None:
            self._text = self._to_json()
        return self._text

    def _to_json(self) -> str:
        peers = [
            {
                "peer_id": entry.peer_id,
                "addresses": list(entry.addresses),
                "last_seen_ms": entry.last_seen_ms,
                "num_successes": entry.num_successes,
                "num_failures": entry.num_failures,
            }
            for entry in self.ranked()
        ]
        return one_a_line({"version": _VERSION}, "peers", peers)

    @classmethod
    def from_json(cls, text: str, *, max_peers: int = MAX_PEERS) -> PeerBook:
        """Read a book. Raises ValueError if anything in it is not as it should be."""
        try:
            saved = _SAVED.validate_json(text, strict=True)
        except ValidationError:
            raise ValueError("not a peer book of this version") from None
        return cls((_entry(item) for item in saved["peers"]), max_peers=max_peers)


def _entry(item: _SavedPeer) -> BookEntry:
    return BookEntry(
        peer_id=parse_peer_id(item["peer_id"]),
        addresses=tuple(map(parse_transport, item["addresses"])),
        last_seen_ms=item["last_seen_ms"],
        num_successes=item["num_successes"],
        num_failures=item["num_failures"],
    )
