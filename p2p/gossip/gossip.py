"""Gossip over py-libp2p; `interface.Gossip` has the contract.

Nothing passes through py-libp2p's lossy subscription channel: a message goes to its topic's
validator, which itself hands what it accepts to the node's bounded intake.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field

import trio
from libp2p.peer.id import ID

from p2p.gossip.fair_seats import FairSeats
from p2p.gossip.interface import GossipStats, MeshPeer, OversizeError, Watch
from p2p.gossip.pubsub import GuardedPubsub, PubsubLimits
from p2p.gossip.router import GossipRouter
from p2p.gossip.scorer import MeshSettings
from p2p.intake.validation import Validator
from p2p.net.address import from_libp2p_id, to_libp2p_id
from p2p.net.host import Libp2pHost
from p2p.standing.scoring import Cause
from shoal_wire.types import PeerId
from shoal_wire.verdict import Reason, Verdict, verdict

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GossipSettings:
    """Mesh shape, bounds and deadlines of gossip."""

    mesh: MeshSettings = field(default_factory=MeshSettings)
    limits: PubsubLimits = field(default_factory=PubsubLimits)
    validator_deadline_s: float = 2.0
    max_validating: int = 64
    """Validators running at once, all peers together; others wait, within the deadline, and whose
    network has fewest goes first."""
    publish_deadline_s: float = 5.0
    """How long `publish` waits for peers whose queues are full."""
    ban_s: float = 300.0
    """For how long a peer that keeps sending malformed RPCs is refused."""


class Libp2pGossip:
    """Create before the host runs; it attaches its services to the host."""

    def __init__(
        self,
        *,
        host: Libp2pHost,
        watch: Watch,
        settings: GossipSettings | None = None,
    ) -> None:
        self._settings = settings or GossipSettings()
        self._host = host
        self._validators: dict[str, Validator] = {}
        self._validating = FairSeats(self._settings.max_validating)
        self._watch = watch
        self._verdicts: Counter[Reason] = Counter()

        def charge(peer: ID, cause: Cause) -> None:
            watch.on_behaviour(from_libp2p_id(peer), cause)

        self._router = GossipRouter(
            self._settings.mesh,
            score=lambda peer: watch.score(from_libp2p_id(peer)),
            charge=charge,
        )
        self._pubsub = GuardedPubsub(
            host.libp2p_host,
            self._router,
            identity=host.identity,
            limits=self._settings.limits,
            validate=self._validate,
            report=self._report,
            ban=self._ban,
            charge=charge,
        )
        host.attach_service(self._pubsub)
        host.attach_service(self._router)

    async def subscribe(self, topic: str, validator: Validator) -> None:
        """Join `topic`; every message of a peer goes to `validator`, each at most once at a time.

        The validator has two seconds; later, or if it raises, the message is ignored, counted
        and not marked as seen.
        """
        self._validators[topic] = validator
        await self._pubsub.subscribe(topic)

    async def unsubscribe(self, topic: str) -> None:
        """Leave `topic`."""
        self._validators.pop(topic, None)
        await self._pubsub.unsubscribe(topic)

    async def publish(self, topic: str, data: bytes) -> int:
        """Queue `data` for the topic's peers and return for how many; 0 means nobody is there.

        Waits for room in full queues, at most the deadline of the settings.

        Raises:
            OversizeError: `data` is longer than the limit, and would vanish on its way.
        """
        limit = self._settings.limits.max_message_bytes
        if len(data) > limit:
            raise OversizeError(f"{len(data)} bytes, one gossip message holds {limit}")
        await trio.lowlevel.checkpoint()
        return await self._pubsub.publish_own(topic, data, self._settings.publish_deadline_s)

    def mesh(self) -> dict[str, list[MeshPeer]]:
        """Return each topic's mesh, the oldest member first."""
        found: dict[str, list[MeshPeer]] = {}
        for topic, peers in self._router.mesh.items():
            members = [
                MeshPeer(peer_id=from_libp2p_id(peer), since_s=self._router.mesh_age_s(topic, peer))
                for peer in peers
            ]
            found[topic] = sorted(members, key=lambda member: -member.since_s)
        return found

    def topics(self) -> tuple[str, ...]:
        """Return the topics this node is subscribed to."""
        return tuple(self._pubsub.topic_ids)

    def topic_peers(self, topic: str) -> tuple[PeerId, ...]:
        """Return the connected peers that are subscribed to `topic`."""
        return tuple(sorted(map(from_libp2p_id, self._pubsub.peer_topics.get(topic, ()))))

    def subscribers(self) -> dict[str, tuple[PeerId, ...]]:
        """Return every topic that a connected peer is subscribed to, with those peers."""
        return {
            topic: tuple(sorted(map(from_libp2p_id, peers)))
            for topic, peers in self._pubsub.peer_topics.items()
            if peers
        }

    def peer_topics(self, peer_id: PeerId) -> tuple[str, ...]:
        """Return the topics `peer_id` is subscribed to."""
        peer = to_libp2p_id(peer_id)
        return tuple(topic for topic, peers in self._pubsub.peer_topics.items() if peer in peers)

    def stats(self) -> GossipStats:
        """Return the counters."""
        return GossipStats(
            pubsub=dict(self._pubsub.counts),
            verdicts=dict(self._verdicts),
        )

    async def _validate(self, topic: str, data: bytes, author: ID, forwarder: ID) -> Verdict:
        validator = self._validators.get(topic)
        if validator is None:
            # Subscribed when the message was read, and no longer: nobody's fault.
            return verdict(Reason.LEFT_TOPIC)
        judged: Verdict | None = None
        try:
            with trio.move_on_after(self._settings.validator_deadline_s):
                brought_by = from_libp2p_id(forwarder)
                async with self._validating.seat(self._host.source_of(brought_by)):
                    judged = await validator(data, from_libp2p_id(author), brought_by)
        except Exception:  # the validator is the node's code over a stranger's bytes
            logger.exception("the validator of %s failed", topic)
            return verdict(Reason.VALIDATOR_FAULT)
        return judged or verdict(Reason.BUSY)

    def _report(self, forwarder: ID, author: ID | None, judged: Verdict) -> None:
        self._watch.on_verdict(
            from_libp2p_id(forwarder),
            None if author is None else from_libp2p_id(author),
            judged,
        )
        self._verdicts[judged.reason] += 1

    def _ban(self, peer: ID) -> None:
        peer_id = from_libp2p_id(peer)
        if not self._watch.is_protected(peer_id):
            self._host.ban(peer_id, seconds=self._settings.ban_s)
