"""Gossipsub without I/O. Pure: RPCs come in with the time, events go out.

    receive ──▶ MessageReceived ──▶ admit ──▶ Validate ──▶ on_verdict ──▶ JudgedMessage, Forward
       │                              │
       └▶ control: SendRpc, Forward,  └▶ a copy, forgery or echo: Misbehaviour, JudgedMessage
          Misbehaviour
    heartbeat, join, leave, on_stream_opened ──▶ SendRpc, Misbehaviour     publish ──▶ Forward

This is gossipsub v1.1 with IDONTWANT of v1.2. shoal's additions: the application's score is the
only one; wasteful peers are read more slowly and charged (`rate_limiter`, `duplicate_tracker`);
each id is advertised once, broken promises are charged, and peers that sent a copy are sent none
(`ihave`); control messages have a budget (`control`); meshes mix (`meshes`); messages are cached as
frames, limited in bytes (`duplicate_tracker`). There is no fanout: an own message on a topic that
this node has not joined goes to random subscribers. The driver of a node is
`shoal_p2p.gossip.gossip`, that of a simulation `shoal_lab.simulation.gossip`.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from shoal_base.bounded import FEW
from shoal_base.waits import LEAST_PAUSE_S, RETRY_S
from shoal_p2p.gossip.control import MAX_IDS, ControlBudget
from shoal_p2p.gossip.delivery_lag import DeliveryLag
from shoal_p2p.gossip.duplicate_tracker import COPY_UNITS, DuplicateTracker, FrameCache
from shoal_p2p.gossip.ihave import IHaveTracker, IWantTracker
from shoal_p2p.gossip.interface import OVERLOAD
from shoal_p2p.gossip.meshes import Meshes, PeerRating
from shoal_p2p.gossip.peers import PeerTable
from shoal_p2p.gossip.rate_limiter import PeerRateLimit, RateLimiter
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
    merge_sends,
)
from shoal_p2p.gossip.settings import GossipSettings
from shoal_p2p.reputation.scoring import Cause
from shoal_wire.types import PeerId
from shoal_wire.verdict import Outcome, Reason, Verdict, verdict

_MAX_IHAVE_IDS = MAX_IDS // 4
"""Ids in one IHAVE: half of what go-libp2p accepts, a quarter of what shoal accepts."""
MESSAGE_OVERHEAD_BYTES = 512
"""Maximum length of a message without its data: author, key, sequence number, topic and
signature."""


class PauseReading(NamedTuple):
    """The driver should not read from a peer for a while, because it exceeds its rate."""

    seconds: float
    is_to_blame: bool
    """True if the pause counts as an offence once the grace period is over."""


class MeshDriver(PeerRating, Protocol):
    """The part of a driver that a mesh uses, without I/O."""

    def reject_reason(self, message: Message) -> Reason | None:
        """Return why a message breaks the signing rules or a limit; None if it is authentic."""

    def pack(self, message: Message) -> Any:
        """Return the encoded frame that `Forward` sends."""


class Mesh:
    """Gossipsub of one node. Input from peers never makes it raise."""

    def __init__(
        self, own: PeerId, settings: GossipSettings, driver: MeshDriver, *, rng: random.Random
    ) -> None:
        """Nothing is joined at first."""
        limits = settings.limits
        self._own = own
        self._shape = settings.mesh
        self._driver = driver
        self._rng = rng
        self._peers = PeerTable(limits)
        self._meshes = Meshes(settings.mesh, self._peers, driver, rng=rng)
        self._cache = FrameCache()
        self._ihave = IHaveTracker(MAX_IDS)
        self._iwant = IWantTracker(max_ids=MAX_IDS, rng=rng)
        self._idontwant: dict[PeerId, set[bytes]] = {}
        """Messages that each peer has refused by IDONTWANT since the last heartbeat."""
        self._control = ControlBudget()
        self._validating_ids: set[bytes] = set()
        self._duplicates = DuplicateTracker(ttl_s=limits.seen_ttl_s, max_ids=limits.max_seen_ids)
        self._rate_limiter = RateLimiter(limits.flood)
        self._delivery_lag = DeliveryLag()
        self.counts: Counter[str] = Counter()
        """received, duplicate, own_echo, forwarded, unknown_topic; the driver adds its own."""

    # State

    def is_known(self, key: bytes, now: float) -> bool:
        """Return whether a message has been seen or is being validated."""
        return key in self._validating_ids or self._duplicates.has_seen(key, now)

    def is_validating(self, key: bytes) -> bool:
        """Return whether a message is being validated."""
        return key in self._validating_ids

    def is_graylisted(self, peer: PeerId) -> bool:
        """Return whether RPCs of `peer` are not processed."""
        return self._driver.score(peer) < self._shape.graylist_threshold

    def lag_s(self, now: float, sent_since: float) -> float | None:
        """Return the delivery lag of messages sent since then, in seconds; None if unknown."""
        return self._delivery_lag.lag_s(now, sent_since)

    @property
    def members(self) -> Mapping[str, Mapping[PeerId, float]]:
        """Members of the mesh of each joined topic, with the time when each joined it."""
        return self._meshes.members

    @property
    def subscribers(self) -> Mapping[str, Mapping[PeerId, None]]:
        """Topics with the peers that are subscribed to them."""
        return self._peers.subscribers

    @property
    def topics(self) -> Mapping[PeerId, tuple[str, ...]]:
        """Peers with at least one subscription, and their topics."""
        return self._peers.topics

    # Streams

    def on_stream_opened(
        self,
        peer: PeerId,
        now: float,
        *,
        knows_idontwant: bool = True,
        is_dialled: bool = False,
    ) -> list[Event]:
        """Return events for a new outbound stream: send our subscriptions, graft where a mesh is
        small.

        `is_dialled`: this node made the connection, which an unknown peer cannot cause.
        """
        self._peers.reachable[peer] = knows_idontwant
        self._meshes.on_stream_opened(peer, now, is_dialled=is_dialled)
        hello = Rpc(subscriptions=[(topic, True) for topic in self._meshes.members])
        events: list[Event] = [SendRpc(peer, hello)]
        for topic in self._meshes.members:
            if peer in self._peers.subscribed_to(topic):
                events += self._meshes.on_subscribed(topic, peer, now)
        return events

    def on_stream_closed(self, peer: PeerId) -> None:
        """Forget the outbound stream to `peer`."""
        self._peers.reachable.pop(peer, None)
        self._idontwant.pop(peer, None)
        self._meshes.on_stream_closed(peer)

    def on_reading(self, peer: PeerId, network: str | None = None) -> None:
        """Record that a stream of `peer`, on a connection from `network`, is being read."""
        self._rate_limiter.network_of[peer] = network

    def on_reading_ended(self, peer: PeerId) -> None:
        """Record that the inbound stream of `peer` ended, and forget its subscriptions."""
        self._rate_limiter.network_of.pop(peer, None)
        self._peers.forget_subscriptions(peer)
        self._meshes.remove(peer)

    def may_read(self, peer: PeerId, now: float) -> bool:
        """Return whether `peer` can be read now, without a pause."""
        return self._rate_limiter.for_peer(peer, now).wait_s(now) <= 0

    def pause(self, peer: PeerId, now: float) -> PauseReading | None:
        """Return how long `peer` should not be read from now; None if it can be read."""
        limit = self._rate_limiter.for_peer(peer, now)
        wait_s = limit.wait_s(now)
        if wait_s <= 0:
            return None
        self.counts["read_paused"] += 1
        seconds = min(max(wait_s, LEAST_PAUSE_S), RETRY_S)  # then the debt is checked again
        return PauseReading(seconds, limit.is_to_blame(now))

    def on_pause_ended(self, peer: PeerId, pause: PauseReading, now: float) -> list[Event]:
        """Charge offences for a pause that ends now, one for each second."""
        self.on_read_paused(peer, pause.seconds, now)
        if not pause.is_to_blame:
            return []
        offences = self._rate_limiter.for_peer(peer, now).charge_pause(pause.seconds, now)
        return [Misbehaviour(peer, Cause.FLOOD)] * offences

    def on_read_paused(self, peer: PeerId, seconds: float, now: float) -> None:
        """Record that `peer` was not read for `seconds`: messages that it sent may still be
        unread."""
        self._iwant.on_read_paused(peer, seconds, now)

    # Topics

    def join(self, topic: str, now: float) -> list[Event]:
        """Subscribe to `topic`."""
        if topic in self._meshes.members:
            return []
        return [*self._announce(topic, joined=True), *self._meshes.join(topic, now)]

    def leave(self, topic: str, now: float) -> list[Event]:
        """Unsubscribe from `topic`."""
        if topic not in self._meshes.members:
            return []
        return [*self._announce(topic, joined=False), *self._meshes.leave(topic, now)]

    def _announce(self, topic: str, *, joined: bool) -> list[SendRpc]:
        rpc = Rpc(subscriptions=[(topic, joined)])
        return [SendRpc(peer, rpc) for peer in self._peers.reachable]

    # Messages

    def receive(self, peer: PeerId, rpc: Rpc, now: float) -> list[Event]:
        """Process an RPC of `peer`, or a part of one, and return the resulting events."""
        limit = self._rate_limiter.for_peer(peer, now)
        limit.charge_read(len(rpc.messages), rpc.num_bytes, now)
        limit.charge_waste(rpc.num_skipped, now)
        events: list[Event] = []
        for topic, joined in rpc.subscriptions:
            events += self._subscription(peer, topic, joined, now)
        for message in rpc.messages:
            if self._is_unseen(peer, message, limit, now):
                events.append(MessageReceived(peer, message))
        if rpc.num_entries:
            events += self._handle_control(peer, rpc, now)
        return events

    def _subscription(self, peer: PeerId, topic: str, joined: bool, now: float) -> list[SendRpc]:
        if not joined:
            self._peers.unsubscribe(peer, topic)
            self._meshes.remove(peer, [topic])
        elif self._peers.subscribe(peer, topic):
            return self._meshes.on_subscribed(topic, peer, now)
        return []

    def _is_unseen(self, peer: PeerId, message: Message, limit: PeerRateLimit, now: float) -> bool:
        self.counts["received"] += 1
        if self.is_known(message.id, now):
            # The copy under validation may be dropped under load. This peer has sent one all the
            # same.
            self._iwant.on_message(peer, message.id)
            self._count_copy(peer, message, limit, now)
            return False
        if not any(topic in self._meshes.members for topic in message.topics):
            self.counts["unknown_topic"] += 1
            limit.charge_waste(COPY_UNITS, now)
            return False
        return True

    def _count_copy(self, peer: PeerId, message: Message, limit: PeerRateLimit, now: float) -> None:
        self.counts["duplicate"] += 1
        self._ihave.add_holder(peer, message.id)
        limit.charge_waste(self._duplicates.on_copy(message.id, peer, now), now)

    def admit(self, peer: PeerId, message: Message, now: float) -> list[Event]:
        """Return `Validate` if a message is new and authentic, otherwise the events for its
        rejection.

        Only an authentic message is marked as being validated: a forgery must not be able to block
        the real message.
        """
        if self.is_known(message.id, now):
            self._count_copy(peer, message, self._rate_limiter.for_peer(peer, now), now)
            return []
        fault = self._driver.reject_reason(message)
        if fault is not None:
            # Charge only the forwarder: the alleged author may never have seen this message.
            self._charge_waste(peer, peer, message, verdict(fault), now)
            return [JudgedMessage(peer, None, verdict(fault))]
        if message.author == self._own:
            self.counts["own_echo"] += 1
            self._duplicates.mark_seen(message.id, now)
            return []
        self._validating_ids.add(message.id)
        if message.sent_s is not None:
            self._delivery_lag.on_pending(message.author, message.sent_s)
        self._duplicates.on_copy(message.id, peer, now)
        return [*self._announce_large(peer, message), Validate(peer, message)]

    def _announce_large(self, forwarder: PeerId, message: Message) -> list[SendRpc]:
        """Send IDONTWANT for a large message to the mesh at once (gossipsub v1.2)."""
        if len(message.data) < self._shape.idontwant_bytes:
            return []
        rpc = Rpc(idontwant=[[message.id]])
        return [
            SendRpc(peer, rpc)
            for peer in self._meshes.members.get(message.topics[0], ())
            if peer != forwarder and self._peers.reachable.get(peer)
        ]

    def on_verdict(
        self, forwarder: PeerId, message: Message, judged: Verdict, now: float
    ) -> list[Event]:
        """Apply a verdict to its message. This is the only place where verdicts take effect."""
        self._validating_ids.discard(message.id)
        if message.sent_s is not None:
            self._delivery_lag.on_judged(message.author, message.sent_s)
        self._charge_waste(forwarder, message.author, message, judged, now)
        self._iwant.on_message(forwarder, message.id)
        if judged.reason not in OVERLOAD:
            self._duplicates.mark_seen(message.id, now)
        elif message.sent_s is not None:
            self._delivery_lag.on_dropped(message.author, message.sent_s, now)
        events: list[Event] = [JudgedMessage(forwarder, message.author, judged)]
        if judged.outcome is Outcome.ACCEPT:
            self.counts["forwarded"] += 1
            if message.sent_s is not None:
                self._delivery_lag.on_valid(message.author, message.sent_s, now)
            self._ihave.add_holder(forwarder, message.id)
            if message.author != forwarder:
                self._ihave.add_holder(message.author, message.id)
            targets = self._mesh_targets(message)
            events.append(Forward(targets, self._cache_frame(message)))
        return events

    def _charge_waste(
        self, forwarder: PeerId, author: PeerId, message: Message, judged: Verdict, now: float
    ) -> None:
        """Charge what a message with a verdict wasted to the peer responsible."""
        waste = self._duplicates.on_judged(
            judged,
            key=message.id,
            content=lambda: hashlib.sha256(message.author.encode() + message.data).digest(),
            author=author,
            forwarder=forwarder,
        )
        limit = self._rate_limiter.for_peer(forwarder, now)
        limit.charge_waste(waste.forwarder_units, now)
        if waste.author_units:
            self._rate_limiter.charge_author(author, waste.author_units, now)
        limit.charge_work(judged.work_s, now, own_message=forwarder == author)

    def _cache_frame(self, message: Message) -> Any:
        frame = self._driver.pack(message)
        num_bytes = len(message.data) + MESSAGE_OVERHEAD_BYTES
        self._cache.put(message.id, message.topics[0], frame, num_bytes)
        return frame

    def _mesh_targets(self, message: Message) -> list[PeerId]:
        """Return the mesh members that need a validated message: those that have not sent a
        copy."""
        members = self._meshes.members.get(message.topics[0], ())
        return [
            peer
            for peer in self._ihave.without(message.id, members)
            if message.id not in self._idontwant.get(peer, ()) and self._meshes.is_fit(peer)
        ]

    def publish_targets(self, topic: str) -> list[PeerId]:
        """Return the peers for an own message: the mesh, filled up at random to its degree, since
        an own message must not wait for the mesh to form."""
        members = self._meshes.members.get(topic, {})
        found = [peer for peer in members if self._meshes.is_fit(peer)]
        others = [
            peer
            for peer in self._peers.subscribed_to(topic)
            if peer not in members and peer in self._peers.reachable and self._meshes.is_fit(peer)
        ]
        self._rng.shuffle(others)
        return found + others[: max(0, self._shape.degree - len(found))]

    def publish(self, message: Message, now: float) -> Forward:
        """Send an own message."""
        self._duplicates.mark_seen(message.id, now)
        return Forward(self.publish_targets(message.topics[0]), self._cache_frame(message))

    # Control

    def _handle_control(self, peer: PeerId, rpc: Rpc, now: float) -> list[Event]:
        """Process the control part of an RPC within the peer's budget."""
        if self._control.spend(peer, rpc):
            return [Misbehaviour(peer, Cause.CONTROL_SPAM)]
        if self._control.is_spent(peer):
            return []
        events: list[Event] = []
        for topic, ids in rpc.ihave[:FEW]:
            events += self._handle_ihave(peer, topic, ids, now)
        for ids in rpc.iwant[:FEW]:
            events += self._handle_iwant(peer, ids)
        for topic in rpc.graft[:FEW]:
            events += self._meshes.on_graft(topic, peer, now)
        for topic, seconds in rpc.prune[:FEW]:
            self._meshes.on_prune(topic, peer, seconds, now)
        for ids in rpc.idontwant[:FEW]:
            unwanted = self._idontwant.setdefault(peer, set())
            unwanted.update(self._control.accept_ids(peer, ids))
        return events

    def _handle_ihave(
        self, peer: PeerId, topic: str, ids: Iterable[bytes], now: float
    ) -> list[Event]:
        """Request unseen messages, each from one peer a second."""
        if topic not in self._meshes.members:
            return []
        offered = self._control.accept_ids(peer, ids)
        for key in offered:
            if self.is_known(key, now):
                self._ihave.add_holder(peer, key)
        wanted = self._iwant.on_ihave(peer, offered, self, now)
        if not wanted:
            return []
        self._iwant.on_iwant_sent(peer, wanted, now)
        return [SendRpc(peer, Rpc(iwant=[wanted]))]

    def _handle_iwant(self, peer: PeerId, ids: Iterable[bytes]) -> list[Event]:
        """Send requested messages that are still cached, each at most three times."""
        events: list[Event] = []
        for key in self._control.accept_ids(peer, ids):
            frame = self._cache.get(key)
            if frame is not None and self._control.may_resend(peer, key):
                events.append(Forward((peer,), frame))
        return events

    # Heartbeat

    def heartbeat(self, now: float, busy: Container[PeerId] = ()) -> list[Event]:
        """Run one heartbeat: maintain the meshes, send IHAVE, retry IWANT.

        Peers in `busy` have queued messages and get no IHAVE. It would overtake those messages, and
        the peer would request some that are already queued, which makes its queue longer.
        """
        sends = [*self._meshes.maintain(now), *self._send_ihave(busy), *self._retry_iwant(now)]
        self._cache.shift()
        self._ihave.retain(self._peers.reachable, self._cache, self._validating_ids)
        self._control.renew(self._cache)
        self._idontwant.clear()
        broken = self._iwant.broken_promises(self._peers.reachable, self, now)
        self._iwant.expire(now)
        return [*merge_sends(sends), *(Misbehaviour(peer, Cause.BROKEN_PROMISE) for peer in broken)]

    def _send_ihave(self, busy: Container[PeerId]) -> list[SendRpc]:
        """Advertise recent ids to peers outside the mesh, and in small swarms to all peers, once.
        That is the fastest repair after a full queue or a busy validator dropped a message."""
        sends = []
        for topic, ids in self._cache.window().items():
            members = self._meshes.members.get(topic)
            if members is None:
                continue
            peers = list(self._peers.subscribed_to(topic))
            if len(peers) > self._shape.degree_high:
                outside = [peer for peer in peers if peer not in members]
                count = max(self._shape.degree, len(outside) // 4)
                peers = self._rng.sample(outside, min(count, len(outside)))
            for peer in peers:
                if (
                    peer in self._peers.reachable
                    and peer not in busy
                    and self._meshes.is_fit(peer)
                    and (unseen := self._ihave.filter_unseen(peer, ids[-_MAX_IHAVE_IDS:]))
                ):
                    sends.append(SendRpc(peer, Rpc(ihave=[(topic, unseen)])))
        return sends

    def _retry_iwant(self, now: float) -> list[SendRpc]:
        """Request missing messages, and those dropped under load, from other peers that advertised
        them."""
        sends = []
        for peer, keys in self._iwant.pending_iwant(self, now).items():
            if peer in self._peers.reachable:
                self._iwant.mark_requested(keys, now)
                sends.append(SendRpc(peer, Rpc(iwant=[keys])))
        return sends
