"""Which message ids each peer needs no IHAVE of. Pure.

Gossipsub offers what it has of the last three heartbeats, at each of them anew. In a small swarm,
where every peer of the topic is offered every id because nothing else mends what a full queue or a
busy validator dropped, that was most of what a quiet node sent. A peer that has shown that it has a
message, or was offered it, gains nothing by hearing of it again; what it then still lacks, its
gaps name (`shoal_p2p.fetch.gaps`).
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable
from typing import Generic, TypeVar

Peer = TypeVar("Peer", bound=Hashable)


class OfferBook(Generic[Peer]):
    """Remembers, for each peer, the ids that it has or was offered: at most `max_ids` of each."""

    def __init__(self, max_ids: int) -> None:
        self._max_ids = max_ids
        self._knows: dict[Peer, dict[bytes, None]] = {}

    def note_holder(self, peer: Peer, key: bytes) -> None:
        """`peer` sent or offered a message, so it has it. With too many the oldest is forgotten:
        that costs one offer too many."""
        known = self._knows.setdefault(peer, {})
        known[key] = None
        if len(known) > self._max_ids:
            del known[next(iter(known))]

    def news(self, peer: Peer, keys: Iterable[bytes]) -> list[bytes]:
        """Return those of `keys` that `peer` has not heard of, which it does with this."""
        known = self._knows.get(peer, {})
        found = [key for key in keys if key not in known]
        for key in found:
            self.note_holder(peer, key)
        return found

    def keep_only(self, peers: Container[Peer], keys: Container[bytes]) -> None:
        """Forget peers that have gone, and ids that nobody offers any more."""
        self._knows = {
            peer: {key: None for key in known if key in keys}
            for peer, known in self._knows.items()
            if peer in peers
        }
