"""Drives a mesh: asks validators, tells the watch, performs events. The way out is a subclass's."""

from __future__ import annotations

import logging
import math
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
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
    """The part that both gossips have in common."""

    def __init__(
        self,
        own: PeerId,
        *,
        watch: PeerScorer,
        settings: GossipSettings,
        fault_of: Callable[[Message], Reason | None],
        pack: Callable[[Message], Any],
        source_of: Callable[[PeerId], str],
        rng: random.Random,
    ) -> None:
        """`source_of` says by which network a peer is connected; see `Mesh` for the others."""
        self._settings = settings
        self._watch = watch
        self._validators: dict[str, Validator] = {}
        self._validating = FairLimiter(settings.max_validating)
        self._source_of = source_of
        self._verdicts: Counter[Reason] = Counter()
        self._mesh = Mesh(
            own,
            settings,
            score=partial(self._told_by, watch.score),
            rank=partial(self._told_by, watch.rank),
            fault_of=fault_of,
            pack=pack,
            rng=rng,
        )

    # The way out

    @abstractmethod
    def _send(self, peer: PeerId, rpc: Rpc) -> None:
        """Send subscriptions or control to a peer."""

    @abstractmethod
    def _push(self, peer: PeerId, frame: Any) -> bool:
        """Queue a message for a peer; False if there is no room."""

    @abstractmethod
    def _spawn(self, task: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """Run a task for as long as the host runs. Raises RuntimeError when it does not."""

    # The interface

    async def subscribe(self, topic: str, validator: Validator) -> None:
        await trio.lowlevel.checkpoint()
        self._validators[topic] = validator
        self._perform(self._mesh.join(topic, trio.current_time()))

    async def unsubscribe(self, topic: str) -> None:
        await trio.lowlevel.checkpoint()
        self._validators.pop(topic, None)
        self._perform(self._mesh.leave(topic, trio.current_time()))

    def late_s(self, sent_since: float = -math.inf) -> float | None:
        return self._mesh.late_s(trio.current_time(), sent_since)

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
            raise OversizeError(f"{len(data)} bytes, one gossip message holds {limit}")

    def _told_by(self, judge: Callable[[PeerId], float], peer: PeerId) -> float:
        try:
            return judge(peer)
        except Exception:  # the score function is the node's code, run on every message
            logger.exception("the score function failed")
            return 0.0

    # Events

    def _perform(self, events: Iterable[Event]) -> int:
        """Do what the mesh asks for; return how many peers messages were queued for."""
        num_queued = 0
        for event in events:
            match event:
                case SendRpc(peer, rpc):
                    self._send(peer, rpc)
                case Forward(peers, frame):
                    num_queued += sum([self._push(peer, frame) for peer in peers])
                case JudgedMessage(forwarder, author, judged):
                    self._watch.on_verdict(forwarder, author, judged)
                    self._verdicts[judged.reason] += 1
                case Misbehaviour(peer, cause):
                    self._watch.on_behaviour(peer, cause)
                case MessageReceived(peer, message):
                    self._admit(peer, message)
                case Validate():
                    raise AssertionError("only `_admit` asks the mesh what to validate")
        return num_queued

    def _admit(self, peer: PeerId, message: Message, done: Callable[[], None] = _nothing) -> None:
        """Judge a message that may be new; `done` is called when that has ended.

        Whatever the node's own code raises costs this message only.
        """
        is_awaited = False
        try:
            for event in self._mesh.admit(peer, message, trio.current_time()):
                if isinstance(event, Validate):
                    self._spawn(self._judge, peer, message, done)
                    is_awaited = True
                else:
                    self._perform((event,))
        except Exception:  # noqa: BLE001 - it is logged there
            self._count_fault(peer)
        finally:
            if not is_awaited:
                done()

    async def _judge(self, peer: PeerId, message: Message, done: Callable[[], None]) -> None:
        try:
            judged = await self._verdict(peer, message)
            self._perform(self._mesh.judged(peer, message, judged, trio.current_time()))
        except Exception:  # noqa: BLE001 - one message must never end the node
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
            # Subscribed when the message was read, and no longer: nobody's fault.
            return verdict(Reason.LEFT_TOPIC)
        judged: Verdict | None = None
        try:
            with trio.move_on_after(self._settings.validator_deadline_s):
                async with self._validating.seat((self._source_of(peer), peer)):
                    judged = await validator(message.data, message.author, peer)
        except Exception:  # the validator is the node's code over a stranger's bytes
            logger.exception("the validator of %s failed", topic)
            return verdict(Reason.VALIDATOR_FAULT)
        return judged or verdict(Reason.BUSY)

    def _beat(self, busy: Iterable[PeerId] = ()) -> None:
        """Do a heartbeat; a fault of one is logged and counted, not fatal."""
        try:
            self._perform(self._mesh.heartbeat(trio.current_time(), frozenset(busy)))
        except Exception:  # over peers' data; the node must outlive it
            self._mesh.counts["fault"] += 1
            logger.exception("gossip heartbeat failed")
