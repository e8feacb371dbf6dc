"""The table of reachable peers and the topics each is subscribed to. Pure.

A peer's subscriptions come on the stream that it opened, ours go out on the one that we opened:
either may exist without the other. Iteration is in the order of arrival, so that a seed is a run.
"""

from __future__ import annotations

from collections.abc import Mapping

from shoal_p2p.gossip.settings import GossipLimits
from shoal_wire.types import PeerId


class PeerTable:
    """Peers with an outgoing stream, and everybody's subscriptions, within the limits."""

    def __init__(self, limits: GossipLimits) -> None:
        self._limits = limits
        self.reachable: dict[PeerId, bool] = {}
        """Peers with an outgoing stream, and whether each understands IDONTWANT."""
        self.subscribers: dict[str, dict[PeerId, None]] = {}
        """Topics with at least one subscriber."""
        self.topics: dict[PeerId, tuple[str, ...]] = {}
        """Peers that are subscribed to anything, with their topics."""

    def of(self, topic: str) -> Mapping[PeerId, None]:
        """Return the subscribers of `topic`."""
        return self.subscribers.get(topic, {})

    def subscribe(self, peer: PeerId, topic: str) -> bool:
        """Note a subscription; False if it is known, or not to be had."""
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
        """Note that `peer` has left `topic`."""
        if topic in (topics := self.topics.get(peer, ())):
            self.topics[peer] = tuple(one for one in topics if one != topic)
            if not self.topics[peer]:
                del self.topics[peer]
            peers = self.subscribers[topic]
            del peers[peer]
            if not peers:
                del self.subscribers[topic]

    def forget_subscriptions(self, peer: PeerId) -> None:
        """Note that nothing is known of what `peer` is subscribed to."""
        for topic in self.topics.get(peer, ()):
            self.unsubscribe(peer, topic)
