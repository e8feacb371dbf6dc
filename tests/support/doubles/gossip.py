"""Gossip without a network: published messages go into a list, and tests inject received ones.

gossip = FakeGossip(peers=1)
await gossip.subscribe("/topic", validator)
await gossip.publish("/topic", b"own")
assert gossip.published == [("/topic", b"own")]
assert await gossip.hear("/topic", b"theirs", author=peer_id) == ACCEPT
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import trio

from shoal_p2p.gossip.interface import Gossip, GossipStats, MeshPeer
from shoal_p2p.intake.validation import Validator
from shoal_p2p.reputation.scoring import Cause
from shoal_wire.types import PeerId
from shoal_wire.verdict import Reason, Verdict


@dataclass(eq=False)
class FakeGossip(Gossip):
    """A complete `shoal_p2p.gossip.interface.Gossip` without connections."""

    peers: int = 1
    """Number of receivers of published messages; with 0 they are not recorded."""
    late: float = 0.0
    """Delivery lag in seconds."""
    published: list[tuple[str, bytes]] = field(default_factory=list)
    """Topics and data, in order."""
    listening: dict[str, tuple[PeerId, ...]] = field(default_factory=dict)
    """Peers subscribed to a topic."""
    validators: dict[str, Validator] = field(default_factory=dict)
    """Topics that the component under test has joined."""
    verdicts: Counter[Reason] = field(default_factory=Counter)

    async def hear(
        self, topic: str, data: bytes, *, author: PeerId, forwarder: PeerId | None = None
    ) -> Verdict:
        """Pass a peer's message to its topic's validator, and return the verdict."""
        verdict = await self.validators[topic](data, author, forwarder or author)
        self.verdicts[verdict.reason] += 1
        return verdict

    async def subscribe(self, topic: str, validator: Validator) -> None:
        """Store the validator, for `hear`."""
        await trio.lowlevel.checkpoint()
        self.validators[topic] = validator

    async def unsubscribe(self, topic: str) -> None:
        """Remove the validator."""
        await trio.lowlevel.checkpoint()
        self.validators.pop(topic, None)

    async def publish(self, topic: str, data: bytes) -> int:
        """Record a published message, if there are receivers."""
        await trio.lowlevel.checkpoint()
        if self.peers:
            self.published.append((topic, data))
        return self.peers

    def lag_s(self, sent_since: float = 0.0) -> float | None:
        """Return the delivery lag that the test set."""
        return self.late

    def mesh(self) -> dict[str, list[MeshPeer]]:
        """Return a mesh of all subscribed peers."""
        return {
            topic: [MeshPeer(peer_id=peer_id, since_s=1.0) for peer_id in self.topic_peers(topic)]
            for topic in self.validators
        }

    def topics(self) -> tuple[str, ...]:
        """Return the topics subscribed to."""
        return tuple(self.validators)

    def topic_peers(self, topic: str) -> tuple[PeerId, ...]:
        """Return the peers subscribed to `topic`."""
        return self.listening.get(topic, ())

    def subscriptions(self) -> Mapping[PeerId, tuple[str, ...]]:
        """Return the subscribed peers by topic."""
        all_peers = dict.fromkeys(one for peers in self.listening.values() for one in peers)
        return {peer_id: self.peer_topics(peer_id) for peer_id in all_peers}

    def peer_topics(self, peer_id: PeerId) -> tuple[str, ...]:
        """Return the topics of a peer."""
        return tuple(topic for topic, peers in self.listening.items() if peer_id in peers)

    def stats(self) -> GossipStats:
        """Return the verdicts on injected messages."""
        return GossipStats(pubsub={}, verdicts=dict(self.verdicts))


class RecordingWatch:
    """Records every verdict and charge; the test sets the peers' scores."""

    def __init__(self) -> None:
        self.verdicts: list[tuple[PeerId, PeerId | None, Verdict]] = []
        """Forwarder, author, verdict."""
        self.charged: list[tuple[PeerId, Cause]] = []
        self.score_of: Callable[[PeerId], float] = lambda _peer_id: 0.0

    def on_verdict(self, forwarder: PeerId, author: PeerId | None, judged: Verdict) -> None:
        """Keep it."""
        self.verdicts.append((forwarder, author, judged))

    def on_behaviour(self, peer_id: PeerId, cause: Cause) -> None:
        """Keep it."""
        self.charged.append((peer_id, cause))

    def score(self, peer_id: PeerId) -> float:
        """Return the score that the test set."""
        return self.score_of(peer_id)

    def rank(self, peer_id: PeerId) -> float:
        """Return that all peers are equal."""
        return 0.0

    def is_protected(self, peer_id: PeerId) -> bool:
        """Return False."""
        return False
