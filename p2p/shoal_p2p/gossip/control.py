"""Limits the control messages of each peer between two heartbeats; more is spam. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable

from shoal_base.bounded import MANY
from shoal_p2p.gossip.rpc import Rpc
from shoal_wire.types import PeerId

MAX_IDS = MANY
"""Message ids processed from one peer between two heartbeats."""
_MAX_ID_BYTES = 256
"""Longer ids are ignored: shoal's own ids have about 46 bytes."""
SPAM_ENTRIES = MAX_IDS // 2
SPAM_IDS = 4 * MAX_IDS
"""Control entries, and message ids, above which one peer is spamming between two heartbeats. Other
implementations advertise up to 5,000 ids at a time, so ids beyond `MAX_IDS` are ignored before they
count as spam."""
_MAX_REPEATS = 3
"""Times that one message is sent to one peer on request (go-libp2p's GossipRetransmission)."""


class ControlBudget:
    """Counts each peer's control messages since the last heartbeat. Reconnecting resets nothing."""

    def __init__(self) -> None:
        self._entries: Counter[PeerId] = Counter()
        self._ids: Counter[PeerId] = Counter()
        self._accepted: Counter[PeerId] = Counter()
        self._resent: Counter[tuple[PeerId, bytes]] = Counter()

    def spend(self, peer: PeerId, rpc: Rpc) -> bool:
        """Count the control entries of an RPC. True if they exceed the limit, once between
        heartbeats."""
        was_spam = self.is_spent(peer)
        self._entries[peer] += rpc.num_entries
        self._ids[peer] += sum(map(len, rpc.id_lists))
        return self.is_spent(peer) and not was_spam

    def is_spent(self, peer: PeerId) -> bool:
        """Return whether control messages of the peer are ignored until the next heartbeat."""
        return self._entries[peer] > SPAM_ENTRIES or self._ids[peer] > SPAM_IDS

    def accept_ids(self, peer: PeerId, ids: Iterable[bytes]) -> list[bytes]:
        """Return the distinct `ids` within the peer's allowance, and charge them to it."""
        left = max(0, MAX_IDS - self._accepted[peer])
        found = [key for key in dict.fromkeys(ids) if len(key) <= _MAX_ID_BYTES][:left]
        self._accepted[peer] += len(found)
        return found

    def may_resend(self, peer: PeerId, key: bytes) -> bool:
        """Count a message sent on request. False if the peer has received it often enough."""
        if self._resent[peer, key] >= _MAX_REPEATS:
            return False
        self._resent[peer, key] += 1
        return True

    def renew(self, cached: Container[bytes]) -> None:
        """Start a new heartbeat. Only messages that are still `cached` can be requested again."""
        for counter in (self._entries, self._ids, self._accepted):
            counter.clear()
        if self._resent:
            self._resent = Counter({k: n for k, n in self._resent.items() if k[1] in cached})
