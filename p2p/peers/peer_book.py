"""The peers worth remembering across restarts: where they were, and how well dialling went.

Pure but for `load` and `save`.  Bounded: 256 peers of 8 addresses; the lowest-ranked go first.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from p2p.net.address import parse_peer_id, parse_transport
from shoal_base.files import read_at_most, set_corrupt_aside, write_atomically
from shoal_wire.limits import MAX_ADDRS_PER_PEER
from shoal_wire.peers import PeerAddresses
from shoal_wire.types import PeerId

logger = logging.getLogger(__name__)

MAX_PEERS = 256
_VERSION = 1
_MAX_FILE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class BookEntry:
    """What is remembered of one peer."""

    peer_id: PeerId
    addresses: tuple[str, ...]
    last_seen_ms: int
    """Wall clock of the last time it was connected; 0 if never."""
    num_successes: int = 0
    num_failures: int = 0
    """Failed dials since the last success."""


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
        for entry in entries:
            self._put(entry)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, peer_id: PeerId) -> BookEntry | None:
        """Return what is remembered of `peer_id`."""
        return self._entries.get(peer_id)

    def ranked(self) -> tuple[BookEntry, ...]:
        """Return all entries, the likeliest to answer first."""
        return tuple(sorted(self._entries.values(), key=_rank))

    def note_connected(self, peer: PeerAddresses, *, now_ms: int) -> None:
        """`peer` is connected; the addresses given are known good or announced by itself."""
        old = self._entries.get(peer.peer_id)
        self._put(
            BookEntry(
                peer_id=peer.peer_id,
                addresses=(*peer.addresses, *(old.addresses if old else ())),
                last_seen_ms=now_ms,
                num_successes=(old.num_successes if old else 0) + 1,
            )
        )

    def note_failed(self, peer_id: PeerId) -> None:
        """A dial of `peer_id` failed; nothing happens to peers not in the book."""
        if old := self._entries.get(peer_id):
            self._entries[peer_id] = replace(old, num_failures=old.num_failures + 1)

    def _put(self, entry: BookEntry) -> None:
        addresses = tuple(dict.fromkeys(entry.addresses))[: self._max_addresses]
        if not addresses:
            return
        self._entries[entry.peer_id] = replace(entry, addresses=addresses)
        if len(self._entries) > self._max_peers:
            others = (e for e in self._entries.values() if e.peer_id != entry.peer_id)
            del self._entries[max(others, key=_rank).peer_id]

    def to_json(self) -> str:
        """Return the book as text."""
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
        return json.dumps({"version": _VERSION, "peers": peers}, indent=1)

    @classmethod
    def from_json(cls, text: str, *, max_peers: int = MAX_PEERS) -> PeerBook:
        """Read a book. Raises ValueError if anything in it is not as it should be."""
        content = json.loads(text)
        if not isinstance(content, dict) or content.get("version") != _VERSION:
            raise ValueError("not a peer book of this version")
        try:
            return cls((_entry(item) for item in content["peers"]), max_peers=max_peers)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a peer book: {error!r}") from None


def _entry(item: dict[str, object]) -> BookEntry:
    addresses = item["addresses"]
    if not isinstance(addresses, list):
        raise ValueError("addresses is not a list")
    return BookEntry(
        peer_id=parse_peer_id(str(item["peer_id"])),
        addresses=tuple(parse_transport(str(address)) for address in addresses),
        last_seen_ms=_count(item["last_seen_ms"]),
        num_successes=_count(item["num_successes"]),
        num_failures=_count(item["num_failures"]),
    )


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def load_peer_book(path: Path) -> PeerBook:
    """Read the book at `path`; blocks. A corrupt file is set aside and the book starts empty."""
    try:
        return PeerBook.from_json(read_at_most(path, _MAX_FILE_BYTES).decode("utf-8"))
    except FileNotFoundError:
        return PeerBook()
    except (ValueError, RecursionError) as error:
        aside = set_corrupt_aside(path)
        logger.warning("the peer book %s is corrupt (%s); moved to %s", path, error, aside)
        return PeerBook()


def save_peer_book(path: Path, text: str) -> None:
    """Write `text` (of `PeerBook.to_json`) atomically; blocks. Raises OSError."""
    write_atomically(path, text.encode())
