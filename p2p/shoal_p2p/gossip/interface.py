"""Gossip as the node sees it: topics, validators, publish, mesh.

`Libp2pGossip` is the real thing; a simulation has another over the same `Mesh`. One suite runs
against both (`tests/conformance`). They differ by intent in one thing: the simulated one carries no
bytes, so nothing of it is malformed and nobody reads slowly.
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
"""Our own troubles: the message is not marked seen, so that another copy may come through: a later
one of another peer, or one that is offered again within the next heartbeats, and asked for once a
second."""


class OversizeError(Exception):
    """A message larger than one gossip message may be; announce and pull it instead."""


class PeerScorer(Protocol):
    """The node's judgement of peers: gossip reports to it, and asks it."""

    def on_verdict(self, forwarder: PeerId, author: PeerId | None, judged: Verdict) -> None:
        """Learn of a judged message, once.

        The author is None if the message broke the rules of gossip itself, so that nobody has
        judged it: its signature does not hold, or it is too long. What this raises is counted as a
        fault and costs that message only.
        """

    def on_behaviour(self, peer_id: PeerId, cause: Cause) -> None:
        """Learn of what no verdict shows, each time."""

    def score(self, peer_id: PeerId) -> float:
        """Return a peer's points: 0 is neutral, and so is whatever this raises.

        Below the mesh's gossip threshold a peer gets no messages and no offers and is in no mesh;
        below the graylist threshold nothing that it sends is read (gossipsub v1.1).
        """

    def rank(self, peer_id: PeerId) -> float:
        """Return how much a connection to this peer is worth: 0 for one that has brought nothing.

        What this raises counts as 0. The worthiest members of a mesh stay in it.
        """

    def is_protected(self, peer_id: PeerId) -> bool:
        """Return whether this peer may not be banned for what it sends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshPeer:
    """One member of a topic's mesh."""

    peer_id: PeerId
    since_s: float
    """Seconds since it became a member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GossipStats:
    """Counters since the start."""

    pubsub: Mapping[str, int]
    """received, duplicate, own_echo, forwarded, malformed_rpc, fault, unknown_topic,
    publish_skipped (copies not sent to a peer because its queue stayed full), held_back."""
    verdicts: Mapping[Reason, int]


class Gossip(Protocol):
    """Every message of a peer goes to its topic's validator, which hands on what it accepts.

    Own messages are not validated and not delivered to ourselves; one in our name from elsewhere is
    dropped. What is accepted goes on to the mesh, but not back to its forwarder or author, and what
    was said in the last heartbeats is offered to the topic's other peers, newcomers among them.
    """

    async def subscribe(self, topic: str, validator: Validator) -> None:
        """Join `topic`; every message of a peer goes to `validator`, each at most once at a time.

        The validator has two seconds; later, or if it raises, the message is ignored, counted
        and not marked as seen. Nothing is handed on before its verdict.
        """

    async def unsubscribe(self, topic: str) -> None:
        """Leave `topic`; what is still on its way is dropped, or judged LEFT_TOPIC."""

    async def publish(self, topic: str, data: bytes) -> int:
        """Queue `data` for the topic's peers and return for how many; 0 means nobody is there.

        One need not be subscribed; and the same data again is another message.

        Raises:
            OversizeError: `data` is longer than the limit, and would vanish on its way.
        """

    def late_s(self, sent_since: float = -math.inf) -> float | None:
        """Return how many seconds later than in quiet times messages arrive, of those that were
        sent lately and since then by Trio's clock; None where too few were heard to say."""

    def mesh(self) -> dict[str, list[MeshPeer]]:
        """Return the mesh of each topic of this node, the oldest member first."""

    def topics(self) -> tuple[str, ...]:
        """Return the topics this node is subscribed to."""

    def topic_peers(self, topic: str) -> tuple[PeerId, ...]:
        """Return the connected peers that are subscribed to `topic`."""

    def subscriptions(self) -> Mapping[PeerId, tuple[str, ...]]:
        """Return the connected peers that are subscribed to anything, with their topics: a view,
        which changes with them."""

    def peer_topics(self, peer_id: PeerId) -> tuple[str, ...]:
        """Return the topics `peer_id` is subscribed to."""

    def stats(self) -> GossipStats:
        """Return the counters."""
