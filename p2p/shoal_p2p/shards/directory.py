"""Peers recently seen on each shard, served to peers that look for a shard. Pure.

Only a peer's own subscriptions are recorded, never third-party reports, so that a false report does
not spread. Bounded by number and age; a new record replaces a peer's earlier one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from shoal_base.bounded import BoundedDict
from shoal_wire.peers import PeerAddresses
from shoal_wire.types import PeerId


@dataclass(frozen=True, slots=True)
class _Seen:
    addresses: tuple[str, ...]
    shards: tuple[int, ...]
    at: float


class ShardDirectory:
    """Peers by shard; the least recently seen is dropped first."""

    def __init__(self, *, max_peers: int = 8192, ttl_s: float = 1800.0) -> None:
        self._ttl_s = ttl_s
        self._seen: BoundedDict[PeerId, _Seen] = BoundedDict(max_peers)
        self._by_shard: dict[int, dict[PeerId, None]] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def note(self, peer: PeerAddresses, shards: Iterable[int], now: float) -> None:
        """Record a peer's addresses and its subscribed shards."""
        self.forget(peer.peer_id)
        seen = _Seen(peer.addresses, tuple(sorted(set(shards))), now)
        if not seen.addresses or not seen.shards:
            return
        for shard in seen.shards:
            self._by_shard.setdefault(shard, {})[peer.peer_id] = None
        oldest = self._seen.put(peer.peer_id, seen)
        if oldest is not None:
            self._unlist(*oldest)

    def forget(self, peer_id: PeerId) -> None:
        """Forget a peer."""
        seen = self._seen.pop(peer_id, None)
        if seen is not None:
            self._unlist(peer_id, seen)

    def _unlist(self, peer_id: PeerId, seen: _Seen) -> None:
        for shard in seen.shards:
            del self._by_shard[shard][peer_id]
            if not self._by_shard[shard]:
                del self._by_shard[shard]

    def find(
        self, shards: Iterable[int], now: float, *, limit: int, exclude: Collection[PeerId] = ()
    ) -> list[PeerAddresses]:
        """Return peers on any of `shards`, most recent first and from each shard in turn."""
        queues = [list(self._by_shard.get(shard, ())) for shard in dict.fromkeys(shards)]
        found: dict[PeerId, PeerAddresses] = {}
        while any(queues) and len(found) < limit:
            for queue in queues:
                peer_id = queue.pop() if queue else None
                if peer_id is None or peer_id in found or peer_id in exclude:
                    continue
                seen = self._seen[peer_id]
                if now - seen.at > self._ttl_s:
                    continue
                found[peer_id] = PeerAddresses(
                    peer_id=peer_id, addresses=seen.addresses, shards=seen.shards
                )
        return list(found.values())[:limit]
