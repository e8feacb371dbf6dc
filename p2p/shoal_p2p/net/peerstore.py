"""py-libp2p's address book, bounded in bytes for each peer: names and addresses are strangers'."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from libp2p.custom_types import MetadataValue
from libp2p.peer.envelope import Envelope
from libp2p.peer.id import ID
from libp2p.peer.peerstore import PeerStore
from multiaddr import Multiaddr  # type: ignore[import-untyped]

logger = logging.getLogger(__name__)

# Guesses with room: what an honest peer has of each is well below.
MAX_ADDRESSES = 16
MAX_ADDRESS_BYTES = 512
MAX_PROTOCOLS = 64
MAX_PROTOCOL_CHARS = 128
MAX_RECORD_BYTES = 8 * 1024


class BoundedPeerStore(PeerStore):
    """Some 25 KiB a peer at most; what is beyond a bound is not kept."""

    def add_addrs(self, peer_id: ID, addrs: Sequence[Multiaddr], ttl: int = 0) -> None:
        """Remember the first addresses that are not too long."""
        known = self.peer_data_map[peer_id].get_addrs() if self.has_peer(peer_id) else []
        fresh = [a for a in addrs if a not in known and len(a.to_bytes()) <= MAX_ADDRESS_BYTES]
        super().add_addrs(peer_id, fresh[: max(0, MAX_ADDRESSES - len(known))], ttl)

    def add_protocols(self, peer_id: ID, protocols: Sequence[str]) -> None:
        """Remember the first protocols that are not too long, each once."""
        known = self.peer_data_map[peer_id].get_protocols() if self.has_peer(peer_id) else []
        self.set_protocols(peer_id, list(dict.fromkeys([*known, *protocols[:MAX_PROTOCOLS]])))

    def set_protocols(self, peer_id: ID, protocols: Sequence[str]) -> None:
        """Replace the protocols; see `add_protocols`."""
        short = [name for name in protocols if len(name) <= MAX_PROTOCOL_CHARS]
        super().set_protocols(peer_id, short[:MAX_PROTOCOLS])

    def put(self, peer_id: ID, key: str, val: MetadataValue) -> None:
        """Keep nothing: nobody here asks for it."""

    def consume_peer_record(self, envelope: Envelope, ttl: int) -> bool:
        """Keep a signed record unless it is too long; return whether it was kept."""
        if len(envelope.marshal_envelope()) > MAX_RECORD_BYTES:
            return False
        return super().consume_peer_record(envelope, ttl)


def forget_peer(peerstore: object, peer_id: ID) -> None:
    """Keep py-libp2p's per-peer memory as small as the set of connected peers."""
    try:
        peerstore.clear_peerdata(peer_id)  # type: ignore[attr-defined]
    except Exception as error:  # noqa: BLE001 - an unknown peer is fine, there is nothing to keep
        logger.debug("nothing to forget of %s: %r", peer_id, error)
