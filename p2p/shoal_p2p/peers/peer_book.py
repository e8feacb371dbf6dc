"""The peers remembered across restarts: their addresses, and the success of dialling them.

Peers known only from third parties are not included. No I/O of its own. Limited to 256 peers with 8
addresses each, and 64 of one network. Peers never dialled successfully are evicted first, then the
lowest-ranked.
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
"""Remembered peers of one network. Loopback is exempt."""
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BookEntry:
    """One remembered peer."""

    peer_id: PeerId
    addresses: tuple[str, ...]
    last_seen_ms: int
    """Wall clock of the last time it was connected; 0 if never."""
    num_successes: int = 0
    """Successful dials by this node."""
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


def _eviction_key(entry: BookEntry) -> tuple[bool, tuple[int, int, int]]:
    """Sort key for eviction, last first: peers that this node never dialled successfully."""
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
        """Cached results of `ranked` and `to_json`."""
        self.num_urgent = 0
        """Changes to be saved at once: the first success with a peer, and a new inbound peer or
        address among the first 64. Further ids of unknown peers wait."""
        for entry in entries:
            self._put(entry)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, peer_id: PeerId) -> BookEntry | None:
        """Return the entry of `peer_id`."""
        return self._entries.get(peer_id)

    def ranked(self) -> tuple[BookEntry, ...]:
        """Return all entries, the most likely to answer first."""
        if self._ranked is None:
            self._ranked = tuple(sorted(self._entries.values(), key=_rank))
        return self._ranked

    def note_connected(self, peer: PeerAddresses, *, now_ms: int, by_dial: bool = True) -> None:
        """Record that `peer` is connected, with addresses that work or that it announced itself.

        A peer that this node did not dial (`by_dial`) evicts no peer that it did.
        """
        old = self._entries.get(peer.peer_id)
        is_reached = by_dial and not (old and old.num_successes)
        is_new = not set(peer.addresses) <= set(old.addresses if old else ())
        if is_reached or (is_new and len(self._entries) < FEW):
            self.num_urgent += 1
        self._put(
            BookEntry(
                peer_id=peer.peer_id,
                addresses=(*peer.addresses, *(old.addresses if old else ())),
                last_seen_ms=now_ms,
                num_successes=(old.num_successes if old else 0) + by_dial,
            )
        )

    def note_failed(self, peer_id: PeerId) -> None:
        """Record a failed dial. Peers without an entry are ignored."""
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
        if (pool := self._eviction_candidates(entry)) and (gone := max(pool, key=_eviction_key)):
            never_reached = entry.num_successes == 0 < gone.num_successes
            forgotten = entry if never_reached else gone
            del self._entries[forgotten.peer_id]
            self._uncount(forgotten)

    def _uncount(self, entry: BookEntry) -> None:
        network = _network(entry)
        self._num_of[network] -= 1
        if not self._num_of[network]:
            del self._num_of[network]

    def _eviction_candidates(self, entry: BookEntry) -> list[BookEntry]:
        """Return the eviction candidates for `entry`; empty if there is space."""
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
        """Read a book. Raises ValueError if it is malformed."""
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
