"""The gossip interface of the node: topics, validators, publishing and meshes.

`Libp2pGossip` is the real implementation. A simulation has another one over the same `Mesh`. One
test suite covers both (`tests/conformance`). They differ in one respect only: the simulated one
carries no bytes, so it has no malformed messages and no slow readers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from shoal_p2p.intake.validation import Validator
from shoal_p2p.reputation.scoring import Cause
from shoal_wire.types import PeerId
from shoal_wire.verdict import Reason, Verdict

OVERLOAD = frozenset(reason for reason in Reason if reason.row.ours)
"""Reasons that are this node's own trouble. The message is not marked as seen, so that another
copy can be accepted: one that another peer sends later, or one requested from a peer that
advertises it."""


class OversizeError(Exception):
    """A message exceeds the size limit of gossip. Announce it and serve it on request instead."""


class PeerScorer(Protocol):
    """Scores peers. Gossip reports verdicts and misbehaviour to it and reads scores from it."""

    def on_verdict(self, forwarder: PeerId, author: PeerId | None, judged: Verdict) -> None:
        """Called once for each message that has a verdict.

        The author is None if the message broke gossip's own rules (bad signature, too long) and was
        never validated. An exception raised here is counted as a fault and affects only this
        message.
        """

    def on_behaviour(self, peer_id: PeerId, cause: Cause) -> None:
        """Called for each misbehaviour that is not a validation result."""

    def score(self, peer_id: PeerId) -> float:
        """Return a peer's score. 0 is neutral; if this raises, the score is 0.

        A peer below the mesh's gossip threshold gets no messages and no IHAVE and is in no mesh.
        RPCs of a peer below the graylist threshold are not processed (gossipsub v1.1).
        """

    def rank(self, peer_id: PeerId) -> float:
        """Return how valuable a connection to this peer is: 0 if it has delivered nothing.

        If this raises, the rank is 0. The highest-ranked members of a mesh stay in it.
        """

    def is_protected(self, peer_id: PeerId) -> bool:
        """Return whether this peer is exempt from bans for what it sends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshPeer:
    """One member of a topic's mesh."""

    peer_id: PeerId
    since_s: float
    """Seconds since it became a member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GossipStats:
    """Counters since the start of the node."""

    pubsub: Mapping[str, int]
    """Counters: received, duplicate, own_echo, forwarded, malformed_rpc, fault, unknown_topic,
    publish_skipped (copies not sent because the peer's queue stayed full) and read_paused."""
    verdicts: Mapping[Reason, int]


class Gossip(Protocol):
    """Publishes and receives messages by topic.

    Each message of a peer goes to its topic's validator, which also delivers what it accepts. Own
    messages are neither validated nor delivered locally; a message that claims this node as its
    author but arrives from a peer is dropped. Accepted messages are forwarded to the mesh, but not
    back to their forwarder or author. At each heartbeat, recent messages are advertised (IHAVE) to
    the topic's other peers, including new ones.
    """

    async def subscribe(self, topic: str, validator: Validator) -> None:
        """Join `topic` and pass each message of a peer to `validator`, at most once at a time.

        If the validator exceeds its deadline (`GossipSettings.validator_deadline_s`) or raises, the
        message is ignored, counted, and not marked as seen. Nothing is delivered before the
        verdict.
        """

    async def unsubscribe(self, topic: str) -> None:
        """Leave `topic`. Messages still in transit are dropped, or get the verdict LEFT_TOPIC."""

    async def publish(self, topic: str, data: bytes) -> int:
        """Queue `data` for the topic's peers and return how many; 0 means that there are none.

        Publishing does not require a subscription. The same data published again is another
        message.

        Raises:
            OversizeError: `data` is longer than the limit, so peers would drop it.
        """

    def lag_s(self, sent_since: float = -math.inf) -> float | None:
        """Return the delivery lag in seconds: how much later than in quiet times messages arrive,
        among recent messages sent after `sent_since` (Trio's clock). None if there are too few
        samples."""

    def mesh(self) -> dict[str, list[MeshPeer]]:
        """Return the mesh of each topic of this node, the oldest member first."""

    def topics(self) -> tuple[str, ...]:
        """Return the topics this node is subscribed to."""

    def topic_peers(self, topic: str) -> tuple[PeerId, ...]:
        """Return the connected peers that are subscribed to `topic`."""

    def subscriptions(self) -> Mapping[PeerId, tuple[str, ...]]:
        """Return a live view of all connected peers with subscriptions, and their topics."""

    def peer_topics(self, peer_id: PeerId) -> tuple[str, ...]:
        """Return the topics `peer_id` is subscribed to."""

    def stats(self) -> GossipStats:
        """Return the counters."""
