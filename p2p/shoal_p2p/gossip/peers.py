"""Keeps the reachable peers and their subscriptions. Pure.

A peer's subscriptions arrive on the stream that it opened; this node's leave on the one that it
opened itself. Either can exist without the other. Iteration is in insertion order, so that a run is
reproducible from its seed.
"""

from __future__ import annotations

from collections.abc import Mapping

from shoal_p2p.gossip.settings import GossipLimits
from shoal_wire.types import PeerId


class PeerTable:
    """Peers with an outbound stream, and the subscriptions of all peers, within the limits."""

    def __init__(self, limits: GossipLimits) -> None:
        self._limits = limits
        self.reachable: dict[PeerId, bool] = {}
        """Peers with an outbound stream, and whether each supports IDONTWANT."""
        self.subscribers: dict[str, dict[PeerId, None]] = {}
        """Topics with at least one subscriber."""
        self.topics: dict[PeerId, tuple[str, ...]] = {}
        """Peers with at least one subscription, and their topics."""

    def subscribed_to(self, topic: str) -> Mapping[PeerId, None]:
        """Return the subscribers of `topic`."""
        return self.subscribers.get(topic, {})

    def subscribe(self, peer: PeerId, topic: str) -> bool:
        """Record a subscription. False if it is already known, or is refused."""
        topics = self.topics.get(peer, ())
        is_text = topic.isascii() and topic.isprintable()
        if (
            topic in topics
            or len(topic) > self._limits.max_topic_chars
            or not is_text
            or len(topics) >= self._limits.max_subscriptions_per_peer
        ):
            return False
        self.topics[peer] = (*topics, topic)
        self.subscribers.setdefault(topic, {})[peer] = None
        return True

    def unsubscribe(self, peer: PeerId, topic: str) -> None:
        """Record that `peer` has left `topic`."""
        if topic in (topics := self.topics.get(peer, ())):
            self.topics[peer] = tuple(one for one in topics if one != topic)
            if not self.topics[peer]:
                del self.topics[peer]
            peers = self.subscribers[topic]
            del peers[peer]
            if not peers:
                del self.subscribers[topic]

    def forget_subscriptions(self, peer: PeerId) -> None:
        """Forget all subscriptions of `peer`."""
        for topic in self.topics.get(peer, ()):
            self.unsubscribe(peer, topic)
