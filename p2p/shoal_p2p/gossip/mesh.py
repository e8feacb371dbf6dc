"""Gossipsub without I/O. Pure: what peers say comes in with the time, events come out.

    receive ──▶ Arrived ──▶ admit ──▶ Validate ──▶ judged ──▶ Judged, Forward
       │                      │
       └▶ control: Send,      └▶ a copy, a forgery, an echo: Charge, Judged
          Forward, Charge
    heartbeat, join, leave, opened ──▶ Send, Charge        publish ──▶ Forward

Gossipsub v1.1 with IDONTWANT of v1.2, and what shoal adds: the application's score is the only
one; a peer that wastes is read more slowly and pays (`flood_gate`, `blame`); an offer is made once,
a broken one is charged, and whoever brought a copy is sent none (`offers`); control has an
allowance (`control`); meshes mix (`meshes`); messages are cached as frames, bounded in bytes
(`message_cache`). There is no fanout: an own message on a topic that was not joined goes to
subscribers drawn anew each time.
The driver of a node is `shoal_p2p.gossip.gossip`, that of a simulation
`shoal_lab.simulation.gossip`.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, NamedTuple

from shoal_base.bounded import FEW
from shoal_base.waits import LEAST_PAUSE_S, RETRY_S
from shoal_p2p.gossip.control import MAX_IDS, ControlBudget
from shoal_p2p.gossip.delivery_lag import DeliveryLag
from shoal_p2p.gossip.duplicate_tracker import COPY, DuplicateTracker
from shoal_p2p.gossip.interface import OVERLOAD
from shoal_p2p.gossip.meshes import Meshes
from shoal_p2p.gossip.message_cache import FrameCache
from shoal_p2p.gossip.offers import IHaveTracker, IWantTracker
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
    merged,
)
from shoal_p2p.gossip.settings import GossipSettings
from shoal_p2p.reputation.scoring import Cause
from shoal_wire.types import PeerId
from shoal_wire.verdict import Outcome, Reason, Verdict, verdict

_MAX_OFFERED = MAX_IDS // 4
"""Ids offered to one peer for one topic: half of what go-libp2p takes, a quarter of what we do."""
MESSAGE_BYTES = 512
"""Most bytes that a message has beside its data: author, key, number, topic and signature."""


class PauseReading(NamedTuple):
    """A peer that is over its rate is not read for a while."""

    seconds: float
    is_to_blame: bool
    """True if the peer pays for it once the grace is over."""


class Mesh:
    """One node's part in gossip. Never raises for what a peer says."""

    def __init__(
        self,
        own: PeerId,
        settings: GossipSettings,
        *,
        score: Callable[[PeerId], float],
        rank: Callable[[PeerId], float] = lambda _peer: 0.0,
        fault_of: Callable[[Message], Reason | None],
        pack: Callable[[Message], Any],
        rng: random.Random,
    ) -> None:
        """`rank` says how useful a peer was; `fault_of` says why a message breaks signing or its
        limits; `pack` makes what `Forward` sends."""
        limits = settings.limits
        self._own = own
        self._shape = settings.mesh
        self._score = score
        self._fault_of = fault_of
        self._pack = pack
        self._rng = rng
        self._peers = PeerTable(limits)
        self._meshes = Meshes(settings.mesh, self._peers, score=score, rank=rank, rng=rng)
        self._networks: dict[PeerId, str | None] = {}
        """The network of each peer that is read, as `inbound_gate.prefix_of` has it."""
        self._cache = FrameCache()
        self._offers = IHaveTracker(MAX_IDS)
        self._wants = IWantTracker(max_ids=MAX_IDS, rng=rng)
        self._unwanted: dict[PeerId, set[bytes]] = {}
        """Messages that a peer has since the last heartbeat asked not to be sent."""
        self._control = ControlBudget()
        self._judging: set[bytes] = set()
        self._blame = DuplicateTracker(ttl_s=limits.seen_ttl_s, max_ids=limits.max_seen_ids)
        self._floods = RateLimiter(limits.flood)
        self._lateness = DeliveryLag()
        self.counts: Counter[str] = Counter()
        """received, duplicate, own_echo, forwarded, unknown_topic; the driver counts its own."""

    # What is known

    def knows(self, key: bytes, now: float) -> bool:
        """True if a message is seen or being judged."""
        return key in self._judging or self._blame.has_seen(key, now)

    def judges(self, key: bytes) -> bool:
        """True if a message is being judged."""
        return key in self._judging

    def ignores(self, peer: PeerId) -> bool:
        """True if nothing that `peer` sends is read (graylisted)."""
        return self._score(peer) < self._shape.graylist_threshold

    def late_s(self, now: float, sent_since: float) -> float | None:
        """Return how many seconds late messages arrive that were sent since then, if it shows."""
        return self._lateness.late_s(now, sent_since)

    @property
    def members(self) -> Mapping[str, Mapping[PeerId, float]]:
        """Members of each joined topic's mesh, with the time since when each is one."""
        return self._meshes.members

    @property
    def subscribers(self) -> Mapping[str, Mapping[PeerId, None]]:
        """Topics with the peers that are subscribed to them."""
        return self._peers.subscribers

    @property
    def topics(self) -> Mapping[PeerId, tuple[str, ...]]:
        """Peers that are subscribed to anything, with their topics."""
        return self._peers.topics

    # Streams

    def opened(
        self,
        peer: PeerId,
        now: float,
        *,
        knows_idontwant: bool = True,
        is_dialled: bool = False,
    ) -> list[Event]:
        """A stream to `peer` is open: say hello, and graft where a mesh is small.

        `is_dialled` where this node made the connection: strangers cannot make it do that.
        """
        self._peers.reachable[peer] = knows_idontwant
        self._meshes.opened(peer, now, is_dialled=is_dialled)
        hello = Rpc(subscriptions=[(topic, True) for topic in self._meshes.members])
        events: list[Event] = [SendRpc(peer, hello)]
        for topic in self._meshes.members:
            if peer in self._peers.of(topic):
                events += self._meshes.met(topic, peer, now)
        return events

    def closed(self, peer: PeerId) -> None:
        """The stream to `peer` is gone."""
        self._peers.reachable.pop(peer, None)
        self._unwanted.pop(peer, None)
        self._meshes.closed(peer)

    def reads(self, peer: PeerId, network: str | None = None) -> None:
        """A stream of `peer` is being read, which comes from `network`."""
        self._networks[peer] = network

    def unreads(self, peer: PeerId) -> None:
        """The stream of `peer` is gone, and with it what we know of its subscriptions."""
        self._networks.pop(peer, None)
        self._peers.forget_subscriptions(peer)
        self._meshes.lose(peer)

    def pause(self, peer: PeerId, now: float) -> PauseReading | None:
        """Return for how long `peer` should not be read now."""
        flow = self._flow(peer, now)
        wait_s = flow.wait_s(now)
        if wait_s <= 0:
            return None
        self.counts["held_back"] += 1
        seconds = min(max(wait_s, LEAST_PAUSE_S), RETRY_S)  # then the debt is looked at again
        return PauseReading(seconds, flow.is_to_blame(now))

    def paused(self, peer: PeerId, pause: PauseReading, now: float) -> list[Event]:
        """Charge what a pause that ends now costs, by the second."""
        self.on_read_paused(peer, pause.seconds, now)
        if not pause.is_to_blame:
            return []
        offences = self._flow(peer, now).held(pause.seconds, now)
        return [Misbehaviour(peer, Cause.FLOOD)] * offences

    def on_read_paused(self, peer: PeerId, seconds: float, now: float) -> None:
        """`peer` was not read for so long: what it has sent may not be here yet."""
        self._wants.on_read_paused(peer, seconds, now)

    def _flow(self, peer: PeerId, now: float) -> PeerRateLimit:
        return self._floods.flow(peer, now, network=self._networks.get(peer))

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
        """Return what follows from an RPC of `peer`, or from a part of one."""
        flow = self._flow(peer, now)
        flow.arrived(len(rpc.messages), rpc.num_bytes, now)
        flow.wasted(rpc.num_left_out, now)
        events: list[Event] = []
        for topic, joined in rpc.subscriptions:
            events += self._subscription(peer, topic, joined, now)
        for message in rpc.messages:
            if self._is_news(peer, message, flow, now):
                events.append(MessageReceived(peer, message))
        if rpc.num_entries:
            events += self._heed(peer, rpc, now)
        return events

    def _subscription(self, peer: PeerId, topic: str, joined: bool, now: float) -> list[SendRpc]:
        if not joined:
            self._peers.unsubscribe(peer, topic)
            self._meshes.lose(peer, [topic])
        elif self._peers.subscribe(peer, topic):
            return self._meshes.met(topic, peer, now)
        return []

    def _is_news(self, peer: PeerId, message: Message, flow: PeerRateLimit, now: float) -> bool:
        self.counts["received"] += 1
        if self.knows(message.id, now):
            # Another's copy may be put off for what we cannot do now: this one came all the same.
            self._wants.came(peer, message.id)
            self._count_copy(peer, message, flow, now)
            return False
        if not any(topic in self._meshes.members for topic in message.topics):
            self.counts["unknown_topic"] += 1
            flow.wasted(COPY, now)
            return False
        return True

    def _count_copy(self, peer: PeerId, message: Message, flow: PeerRateLimit, now: float) -> None:
        self.counts["duplicate"] += 1
        self._offers.note_holder(peer, message.id)
        flow.wasted(self._blame.copied(message.id, peer, now), now)

    def admit(self, peer: PeerId, message: Message, now: float) -> list[Event]:
        """Return `Validate` for a message that is new and authentic, or what it is instead.

        Only an authentic message is marked as being judged: a forged one must not be able to shut
        out the real one.
        """
        if self.knows(message.id, now):
            self._count_copy(peer, message, self._flow(peer, now), now)
            return []
        fault = self._fault_of(message)
        if fault is not None:
            # The forwarder alone: whoever it says the author is may never have seen this.
            self._account(peer, peer, message, verdict(fault), now)
            return [JudgedMessage(peer, None, verdict(fault))]
        if message.author == self._own:
            self.counts["own_echo"] += 1
            self._blame.see(message.id, now)
            return []
        self._judging.add(message.id)
        if message.sent_s is not None:
            self._lateness.waits(message.author, message.sent_s)
        self._blame.copied(message.id, peer, now)
        return [*self._announce_large(peer, message), Validate(peer, message)]

    def _announce_large(self, forwarder: PeerId, message: Message) -> list[SendRpc]:
        """Tell the mesh at once not to send us a large message again (gossipsub v1.2)."""
        if len(message.data) < self._shape.idontwant_bytes:
            return []
        rpc = Rpc(idontwant=[[message.id]])
        return [
            SendRpc(peer, rpc)
            for peer in self._meshes.members.get(message.topics[0], ())
            if peer != forwarder and self._peers.reachable.get(peer)
        ]

    def judged(
        self, forwarder: PeerId, message: Message, judged: Verdict, now: float
    ) -> list[Event]:
        """Turn a verdict into what gossipsub does with the message. The one place."""
        self._judging.discard(message.id)
        if message.sent_s is not None:
            self._lateness.judged(message.author, message.sent_s)
        self._account(forwarder, message.author, message, judged, now)
        self._wants.came(forwarder, message.id)
        if judged.reason not in OVERLOAD:
            self._blame.see(message.id, now)
        elif message.sent_s is not None:
            self._lateness.dropped(message.author, message.sent_s, now)
        events: list[Event] = [JudgedMessage(forwarder, message.author, judged)]
        if judged.outcome is Outcome.ACCEPT:
            self.counts["forwarded"] += 1
            if message.sent_s is not None:
                self._lateness.arrived(message.author, message.sent_s, now)
            for holder in (forwarder, message.author):
                self._offers.note_holder(holder, message.id)
            targets = self._mesh_targets(message)
            events.append(Forward(targets, self._keep(message)))
        return events

    def _account(
        self, forwarder: PeerId, author: PeerId, message: Message, judged: Verdict, now: float
    ) -> None:
        """Count what a judged message wasted, for whoever answers for it."""
        waste = self._blame.judged(
            judged,
            key=message.id,
            content=lambda: hashlib.sha256(message.author.encode() + message.data).digest(),
            author=author,
            forwarder=forwarder,
        )
        flow = self._flow(forwarder, now)
        flow.wasted(waste.of_forwarder, now)
        if waste.of_author:
            self._floods.wasted_by_author(author, waste.of_author, now)
        flow.worked(judged.work_s, now, own_message=forwarder == author)

    def _keep(self, message: Message) -> Any:
        frame = self._pack(message)
        num_bytes = len(message.data) + MESSAGE_BYTES
        self._cache.keep(message.id, message.topics[0], frame, num_bytes)
        return frame

    def _mesh_targets(self, message: Message) -> list[PeerId]:
        """Return who gets a message that was judged: whoever brought a copy meanwhile has it."""
        return [
            peer
            for peer in self._meshes.members.get(message.topics[0], ())
            if not self._offers.is_holder(peer, message.id)
            and message.id not in self._unwanted.get(peer, ())
            and self._meshes.is_fit(peer)
        ]

    def targets(self, topic: str) -> list[PeerId]:
        """Return who gets an own message: the mesh, filled up to its degree at random, for an own
        message must not wait for the mesh."""
        members = self._meshes.members.get(topic, {})
        found = [peer for peer in members if self._meshes.is_fit(peer)]
        others = [
            peer
            for peer in self._peers.of(topic)
            if peer not in members and peer in self._peers.reachable and self._meshes.is_fit(peer)
        ]
        self._rng.shuffle(others)
        return found + others[: max(0, self._shape.degree - len(found))]

    def publish(self, message: Message, now: float) -> Forward:
        """Send an own message."""
        self._blame.see(message.id, now)
        return Forward(self.targets(message.topics[0]), self._keep(message))

    # Control

    def _heed(self, peer: PeerId, rpc: Rpc, now: float) -> list[Event]:
        """Heed the control part of an RPC, within what one peer may ask for."""
        if self._control.spend(peer, rpc):
            return [Misbehaviour(peer, Cause.CONTROL_SPAM)]
        if self._control.is_spent(peer):
            return []
        events: list[Event] = []
        for topic, ids in rpc.ihave[:FEW]:
            events += self._offered(peer, topic, ids, now)
        for ids in rpc.iwant[:FEW]:
            events += self._wanted(peer, ids)
        for topic in rpc.graft[:FEW]:
            events += self._meshes.grafted(topic, peer, now)
        for topic, seconds in rpc.prune[:FEW]:
            self._meshes.pruned(topic, peer, seconds, now)
        for ids in rpc.idontwant[:FEW]:
            unwanted = self._unwanted.setdefault(peer, set())
            unwanted.update(self._control.heed(peer, ids))
        return events

    def _offered(self, peer: PeerId, topic: str, ids: Iterable[bytes], now: float) -> list[Event]:
        """Ask for what we have not seen, of one peer a second."""
        if topic not in self._meshes.members:
            return []
        offered = self._control.heed(peer, ids)
        for key in offered:
            if self.knows(key, now):
                self._offers.note_holder(peer, key)
        wanted = self._wants.offered(peer, offered, self, now)
        if not wanted:
            return []
        self._wants.asked(peer, wanted, now)
        return [SendRpc(peer, Rpc(iwant=[wanted]))]

    def _wanted(self, peer: PeerId, ids: Iterable[bytes]) -> list[Event]:
        """Send what is asked for and still cached, each message at most three times."""
        events: list[Event] = []
        for key in self._control.heed(peer, ids):
            frame = self._cache.frame(key)
            if frame is not None and self._control.may_resend(peer, key):
                events.append(Forward((peer,), frame))
        return events

    # Heartbeat

    def heartbeat(self, now: float, busy: Container[PeerId] = ()) -> list[Event]:
        """Tend the meshes, offer what was said lately, ask for what has not come.

        Peers in `busy` have messages waiting for them. An offer overtakes messages, so such a peer
        would ask for what is on its way already, and the answers would make its queue longer.
        """
        sends = [*self._meshes.tend(now), *self._offer(busy), *self._ask_others(now)]
        self._cache.shift()
        self._offers.keep_only(self._peers.reachable, self._cache, self._judging)
        self._control.renew(self._cache)
        self._unwanted.clear()
        broken = self._wants.broken(self._peers.reachable, self, now)
        self._wants.forget(now)
        return [*merged(sends), *(Misbehaviour(peer, Cause.BROKEN_PROMISE) for peer in broken)]

    def _offer(self, busy: Container[PeerId]) -> list[SendRpc]:
        """Offer recent ids to peers outside the mesh, and in small swarms to all, once: it is the
        quickest repair of a message that a full queue or a busy validator dropped."""
        sends = []
        for topic, ids in self._cache.window().items():
            members = self._meshes.members.get(topic)
            if members is None:
                continue
            peers = list(self._peers.of(topic))
            if len(peers) > self._shape.degree_high:
                outside = [peer for peer in peers if peer not in members]
                count = max(self._shape.degree, len(outside) // 4)
                peers = self._rng.sample(outside, min(count, len(outside)))
            for peer in peers:
                if (
                    peer in self._peers.reachable
                    and peer not in busy
                    and self._meshes.is_fit(peer)
                    and (news := self._offers.news(peer, ids[-_MAX_OFFERED:]))
                ):
                    sends.append(SendRpc(peer, Rpc(ihave=[(topic, news)])))
        return sends

    def _ask_others(self, now: float) -> list[SendRpc]:
        """Ask for what has not come, or was dropped in our own trouble, of who else offered it."""
        sends = []
        for peer, keys in self._wants.pending_iwant(self, now).items():
            if peer in self._peers.reachable:
                self._wants.asked_late(keys, now)
                sends.append(SendRpc(peer, Rpc(iwant=[keys])))
        return sends
