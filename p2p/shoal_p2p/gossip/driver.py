"""Drives a mesh: runs validators, reports to the scorer, performs events. Subclasses send."""

from __future__ import annotations

import logging
import math
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import trio

from shoal_p2p.fair.limiter import FairLimiter
from shoal_p2p.gossip.interface import Gossip, GossipStats, MeshPeer, OversizeError, PeerScorer
from shoal_p2p.gossip.mesh import Mesh
from shoal_p2p.gossip.rpc import (
    Event,
    Forward,
    JudgedMessage,
    Message,
    MessageReceived,
    Misbehaviour,
    Rpc,
    SendRpc,
    Validate,
)
from shoal_p2p.gossip.settings import GossipSettings
from shoal_p2p.intake.validation import Validator
from shoal_wire.types import PeerId
from shoal_wire.verdict import Reason, Verdict, verdict

logger = logging.getLogger(__name__)


def _nothing() -> None:
    """Do nothing."""


class MeshGossip(Gossip, ABC):
    """Base class of the real and the simulated gossip."""

    def __init__(
        self,
        own: PeerId,
        *,
        scorer: PeerScorer,
        settings: GossipSettings,
        rng: random.Random,
    ) -> None:
        """Nothing is subscribed at first."""
        self._settings = settings
        self._scorer = scorer
        self._validators: dict[str, Validator] = {}
        self._validating = FairLimiter(settings.max_validating)
        self._verdicts: Counter[Reason] = Counter()
        self._mesh = Mesh(own, settings, self, rng=rng)

    # By subclasses

    @abstractmethod
    def reject_reason(self, message: Message) -> Reason | None:
        """Return why a message breaks the signing rules or a limit; None if it is authentic."""

    @abstractmethod
    def pack(self, message: Message) -> Any:
        """Return the frame that `_push` sends."""

    @abstractmethod
    def _source_of(self, peer: PeerId) -> str:
        """Return the network of a connected peer."""

    @abstractmethod
    def _send(self, peer: PeerId, rpc: Rpc) -> None:
        """Send subscriptions or control to a peer."""

    @abstractmethod
    def _push(self, peer: PeerId, frame: Any) -> bool:
        """Queue a message for a peer. False if its queue is full."""

    @abstractmethod
    def _spawn(self, task: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """Run a task while the host runs. Raises RuntimeError if it does not."""

    # The interface

    async def subscribe(self, topic: str, validator: Validator) -> None:
        await trio.lowlevel.checkpoint()
        self._validators[topic] = validator
        self._perform(self._mesh.join(topic, trio.current_time()))

    async def unsubscribe(self, topic: str) -> None:
        await trio.lowlevel.checkpoint()
        self._validators.pop(topic, None)
        self._perform(self._mesh.leave(topic, trio.current_time()))

    def lag_s(self, sent_since: float = -math.inf) -> float | None:
        return self._mesh.lag_s(trio.current_time(), sent_since)

    def mesh(self) -> dict[str, list[MeshPeer]]:
        now = trio.current_time()
        return {
            topic: [
                MeshPeer(peer_id=peer, since_s=now - since)
                for peer, since in sorted(members.items(), key=lambda member: member[1])
            ]
            for topic, members in self._mesh.members.items()
        }

    def topics(self) -> tuple[str, ...]:
        return tuple(self._mesh.members)

    def topic_peers(self, topic: str) -> tuple[PeerId, ...]:
        return tuple(sorted(self._mesh.subscribers.get(topic, ())))

    def subscriptions(self) -> Mapping[PeerId, tuple[str, ...]]:
        return self._mesh.topics

    def peer_topics(self, peer_id: PeerId) -> tuple[str, ...]:
        return self._mesh.topics.get(peer_id, ())

    def stats(self) -> GossipStats:
        return GossipStats(pubsub=dict(self._mesh.counts), verdicts=dict(self._verdicts))

    def _refuse_oversize(self, data: bytes) -> None:
        limit = self._settings.limits.max_message_bytes
        if len(data) > limit:
            raise OversizeError(f"{len(data)} bytes; a gossip message holds at most {limit}")

    # Rating of peers, for the mesh: the scorer is the node's own code, and runs for every message

    def score(self, peer: PeerId) -> float:
        try:
            return self._scorer.score(peer)
        except Exception:
            logger.exception("the score function failed")
            return 0.0

    def rank(self, peer: PeerId) -> float:
        try:
            return self._scorer.rank(peer)
        except Exception:
            logger.exception("the rank function failed")
            return 0.0

    # Events

    def _perform(self, events: Iterable[Event]) -> int:
        """Perform events and return for how many peers messages were queued."""
        num_queued = 0
        for event in events:
            match event:
                case SendRpc(peer, rpc):
                    self._send(peer, rpc)
                case Forward(peers, frame):
                    num_queued += sum([self._push(peer, frame) for peer in peers])
                case JudgedMessage(forwarder, author, judged):
                    self._scorer.on_verdict(forwarder, author, judged)
                    self._verdicts[judged.reason] += 1
                case Misbehaviour(peer, cause):
                    self._scorer.on_behaviour(peer, cause)
                case MessageReceived(peer, message):
                    self._admit(peer, message)
                case Validate():
                    raise AssertionError("only `_admit` calls Mesh.admit")
        return num_queued

    def _admit(self, peer: PeerId, message: Message, done: Callable[[], None] = _nothing) -> None:
        """Validate a message that may be new, and call `done` when that has ended.

        An exception in the node's own code affects only this message.
        """
        is_awaited = False
        try:
            for event in self._mesh.admit(peer, message, trio.current_time()):
                if isinstance(event, Validate):
                    self._spawn(self._judge, peer, message, done)
                    is_awaited = True
                else:
                    self._perform((event,))
        except Exception:  # noqa: BLE001 - logged by `_count_fault`
            self._count_fault(peer)
        finally:
            if not is_awaited:
                done()

    async def _judge(self, peer: PeerId, message: Message, done: Callable[[], None]) -> None:
        try:
            judged = await self._verdict(peer, message)
            self._perform(self._mesh.on_verdict(peer, message, judged, trio.current_time()))
        except Exception:  # noqa: BLE001 - one message must not end the node
            self._count_fault(peer)
        finally:
            done()

    def _count_fault(self, peer: PeerId) -> None:
        self._mesh.counts["fault"] += 1
        logger.exception("message from %s failed", peer)

    async def _verdict(self, peer: PeerId, message: Message) -> Verdict:
        (topic,) = message.topics
        validator = self._validators.get(topic)
        if validator is None:
            # The node has unsubscribed since the message was read. No peer is at fault.
            return verdict(Reason.LEFT_TOPIC)
        judged: Verdict | None = None
        try:
            with trio.move_on_after(self._settings.validator_deadline_s):
                async with self._validating.slot((self._source_of(peer), peer)):
                    judged = await validator(message.data, message.author, peer)
        except Exception:  # the validator is the node's code over untrusted bytes
            logger.exception("the validator of %s failed", topic)
            return verdict(Reason.VALIDATOR_FAULT)
        return judged or verdict(Reason.BUSY)

    def _heartbeat(self, busy: Iterable[PeerId] = ()) -> None:
        """Run a heartbeat. An exception is logged and counted, not fatal."""
        try:
            self._perform(self._mesh.heartbeat(trio.current_time(), frozenset(busy)))
        except Exception:  # untrusted data must not end the node
            self._mesh.counts["fault"] += 1
            logger.exception("gossip heartbeat failed")
