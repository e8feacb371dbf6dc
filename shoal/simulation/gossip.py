"""Gossip over the simulated network: meshes, forwarding after validation, lazy repair.

`p2p.gossip.interface.Gossip` in a hundredth of the time of the real one, with the settings of that
one: a node validates before it forwards, forwards to its mesh only, offers recent ids to those
outside it every heartbeat, and publishes to subscribers without being one. Signatures of gossip
itself are a flag; those of the envelopes inside are real.
"""

from __future__ import annotations

import hashlib
import logging
import random
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable

import trio

from p2p.gossip.blame import COPY, BlameBook
from p2p.gossip.flood_gate import FloodGate, SenderFlow
from p2p.gossip.gossip import GossipSettings
from p2p.gossip.interface import (
    OVERLOAD,
    GossipStats,
    MeshPeer,
    OversizeError,
    Watch,
)
from p2p.intake.validation import Validator
from p2p.standing.scoring import Cause
from shoal.simulation.host import SimulatedHost
from shoal.simulation.message import Message, MessageId
from shoal_wire.types import PeerId
from shoal_wire.verdict import Outcome, Reason, Verdict, verdict

logger = logging.getLogger(__name__)

_OFFERED_BEATS = 3
"""Heartbeats for which an id is offered."""
_CACHED_BEATS = 5
_MAX_HELD = 4096
"""Messages of a peer that is not read; where TCP would hold it back, the oldest are lost."""
_LEAST_WAIT_S = 0.05
"""Some grains of the network's time, or a debt of almost nothing would hold that still."""
_MESSAGE_BYTES = 270
"""Topic, author, key, number and signature of one message, as docs/benchmarks.md has measured."""
_CONTROL_BYTES = 100
_ID_BYTES = 48
_ASK_AGAIN_S = 1.0
"""What is offered is asked of one peer a second."""


class SimulatedGossip:
    """One host's gossip; it lives as long as the host runs."""

    def __init__(
        self,
        host: SimulatedHost,
        rng: random.Random,
        *,
        watch: Watch,
        settings: GossipSettings | None = None,
        first_sequence: int = 1,
    ) -> None:
        """`first_sequence` must be above every number of an earlier life."""
        self._host = host
        self._network = host.network
        self._rng = rng
        self._watch = watch
        self._settings = settings or GossipSettings()
        self._shape = self._settings.mesh
        self._sequence = first_sequence
        self._validators: dict[str, Validator] = {}
        self._mesh: dict[str, dict[PeerId, float]] = {}
        """Members of each topic's mesh, and since when."""
        self._peer_topics: dict[str, dict[PeerId, None]] = {}
        self._topics_of: dict[PeerId, tuple[str, ...]] = {}
        self._topics: tuple[str, ...] = ()
        self._seen: OrderedDict[MessageId, float] = OrderedDict()
        self._judging: set[MessageId] = set()
        self._validating = trio.CapacityLimiter(self._settings.max_validating)
        self._cache: dict[MessageId, tuple[Message, int, int]] = {}
        """Messages, with the beat in which each came and the hops it had made."""
        self._asked: dict[MessageId, float] = {}
        self._beat = 0
        self._running = False
        limits = self._settings.limits
        self._floods = FloodGate(limits.flood)
        self._blame = BlameBook(ttl_s=limits.seen_ttl_s, max_ids=limits.max_seen_ids)
        self._held: dict[PeerId, deque[tuple[Message, int]]] = {}
        """What peers have sent that are not read for now."""
        self._verdicts: Counter[Reason] = Counter()
        self.counts: Counter[str] = Counter()
        self.hops: Counter[int] = Counter()
        """Valid messages, by how many connections each came over."""
        host.gossip = self
        host.attach(self)
        host.add_peer_callbacks(connected=self._greet, disconnected=self._forget)

    def start(self) -> None:
        """Begin to beat, not in step with the others."""
        self._running = True
        first_s = self._rng.randrange(4) / 4 * self._shape.heartbeat_s
        self._network.call_at(trio.current_time() + first_s, self._beat_and_go_on)

    def stop(self) -> None:
        """Beat no more: the node is gone."""
        self._running = False

    # The interface

    async def subscribe(self, topic: str, validator: Validator) -> None:
        """Join `topic`."""
        await trio.lowlevel.checkpoint()
        self._validators[topic] = validator
        self._topics = tuple(self._validators)
        self._mesh.setdefault(topic, {})
        for peer_id in self._host.connected_peers():
            self._tell(peer_id, topic, True)

    async def unsubscribe(self, topic: str) -> None:
        """Leave `topic`."""
        await trio.lowlevel.checkpoint()
        self._validators.pop(topic, None)
        self._topics = tuple(self._validators)
        self._mesh.pop(topic, None)
        for peer_id in self._host.connected_peers():
            self._tell(peer_id, topic, False)

    async def publish(self, topic: str, data: bytes) -> int:
        """Send to the mesh, filled up to the degree; return to how many."""
        limit = self._settings.limits.max_message_bytes
        if len(data) > limit:
            raise OversizeError(f"{len(data)} bytes, one gossip message holds {limit}")
        await trio.lowlevel.checkpoint()
        self._sequence += 1
        message = Message(
            author=self._host.peer_id, sequence=self._sequence, topic=topic, data=data
        )
        self._mark_seen(message.key)
        return self.send(message)

    def send(self, message: Message) -> int:
        """Send any message, also one that is not this node's, as an attacker may."""
        self._cache[message.key] = (message, self._beat, 0)
        mesh = self._mesh.get(message.topic, {})
        targets = [peer for peer in mesh if self._is_worth_telling(peer)]
        others = [
            peer
            for peer in self._peer_topics.get(message.topic, ())
            if peer not in mesh and self._is_worth_telling(peer)
        ]
        self._rng.shuffle(others)
        targets += others[: max(0, self._shape.degree - len(targets))]
        for peer in targets:
            self._pass_on(peer, message)
        return len(targets)

    def mesh(self) -> dict[str, list[MeshPeer]]:
        """Return each topic's mesh, the oldest member first."""
        now = trio.current_time()
        return {
            topic: [
                MeshPeer(peer_id=peer, since_s=now - since)
                for peer, since in sorted(members.items(), key=lambda item: item[1])
            ]
            for topic, members in self._mesh.items()
        }

    def topics(self) -> tuple[str, ...]:
        """Return the topics this node is subscribed to."""
        return self._topics

    def topic_peers(self, topic: str) -> tuple[PeerId, ...]:
        """Return the connected peers that are subscribed to `topic`."""
        return tuple(sorted(self._peer_topics.get(topic, ())))

    def subscribers(self) -> dict[str, tuple[PeerId, ...]]:
        """Return every topic with the connected peers that are subscribed."""
        return {topic: tuple(sorted(peers)) for topic, peers in self._peer_topics.items() if peers}

    def peer_topics(self, peer_id: PeerId) -> tuple[str, ...]:
        """Return the topics `peer_id` is subscribed to."""
        return self._topics_of.get(peer_id, ())

    def stats(self) -> GossipStats:
        """Return the counters."""
        return GossipStats(pubsub=dict(self.counts), verdicts=dict(self._verdicts))

    def _is_worth_telling(self, peer_id: PeerId) -> bool:
        return self._score(peer_id) >= self._shape.gossip_threshold

    def _is_unread(self, peer_id: PeerId) -> bool:
        return self._score(peer_id) < self._shape.graylist_threshold

    def _score(self, peer_id: PeerId) -> float:
        try:
            return self._watch.score(peer_id)
        except Exception:  # the node's code, in the network's task
            logger.exception("the score function failed")
            return 0.0

    # Peers

    def _greet(self, peer_id: PeerId) -> None:
        me, topics = self._host.peer_id, self._topics
        if topics:
            self._control(peer_id, lambda gossip: gossip._on_greeting(me, topics), len(topics))

    def _forget(self, peer_id: PeerId) -> None:
        for topic in self._topics_of.pop(peer_id, ()):
            del self._peer_topics[topic][peer_id]
        for members in self._mesh.values():
            members.pop(peer_id, None)

    def _tell(self, peer_id: PeerId, topic: str, joined: bool) -> None:
        me = self._host.peer_id
        self._control(peer_id, lambda gossip: gossip._on_subscription(me, topic, joined))

    def _on_greeting(self, peer_id: PeerId, topics: tuple[str, ...]) -> None:
        for topic in topics:
            self._on_subscription(peer_id, topic, True)

    def _on_subscription(self, peer_id: PeerId, topic: str, joined: bool) -> None:
        if joined:
            self._peer_topics.setdefault(topic, {})[peer_id] = None
            if topic not in (known := self._topics_of.get(peer_id, ())):
                self._topics_of[peer_id] = (*known, topic)
            mesh = self._mesh.get(topic)
            if mesh is not None and len(mesh) < self._shape.degree_low:
                self._graft(peer_id, topic)
        else:
            self._peer_topics.get(topic, {}).pop(peer_id, None)
            known = self._topics_of.get(peer_id, ())
            self._topics_of[peer_id] = tuple(other for other in known if other != topic)
            self._mesh.get(topic, {}).pop(peer_id, None)

    def _graft(self, peer_id: PeerId, topic: str) -> None:
        if not self._is_worth_telling(peer_id):
            return
        self._mesh[topic][peer_id] = trio.current_time()
        me = self._host.peer_id
        self._control(peer_id, lambda gossip: gossip._on_graft(me, topic))

    def _prune(self, peer_id: PeerId, topic: str) -> None:
        self._mesh[topic].pop(peer_id, None)
        me = self._host.peer_id
        self._control(peer_id, lambda gossip: gossip._mesh.get(topic, {}).pop(me, None))

    def _on_graft(self, peer_id: PeerId, topic: str) -> None:
        if topic not in self._mesh or not self._is_worth_telling(peer_id):
            me = self._host.peer_id
            self._control(peer_id, lambda gossip: gossip._mesh.get(topic, {}).pop(me, None))
        else:
            self._mesh[topic].setdefault(peer_id, trio.current_time())

    def _control(
        self, peer_id: PeerId, action: Callable[[SimulatedGossip], object], num_ids: int = 0
    ) -> None:
        """Carry a control message; these are small and repeated, so loss spares them."""
        network = self._network
        me = self._host.peer_id
        network.bytes_of[me] += _CONTROL_BYTES + num_ids * _ID_BYTES
        due = trio.current_time() + network.latency(me, peer_id)

        def arrive() -> None:
            host = network.host(peer_id)
            if host is None or not host.is_connected(me) or not network.reaches(me, peer_id):
                return
            gossip: SimulatedGossip | None = host.gossip
            if gossip is not None and not gossip._is_unread(me):
                action(gossip)

        network.call_at(due, arrive)

    # Messages

    def _pass_on(self, peer_id: PeerId, message: Message, hops: int = 0) -> None:
        me = self._host.peer_id
        self._network.send(
            me,
            peer_id,
            lambda host: host.gossip._on_message(message, me, hops + 1),
            num_bytes=len(message.data) + _MESSAGE_BYTES,
        )

    def _on_message(self, message: Message, forwarder: PeerId, hops: int = 1) -> None:
        held = self._held.get(forwarder)
        if held is not None:
            held.append((message, hops))
        elif not self._is_unread(forwarder):
            now = trio.current_time()
            flow = self._floods.flow(forwarder.encode(), now)
            flow.arrived(1, len(message.data), now)
            self._read(message, forwarder, flow, hops)
            if flow.wait_s(now) > 0:
                self._held[forwarder] = deque(maxlen=_MAX_HELD)
                self._hold_back(forwarder)

    def _hold_back(self, forwarder: PeerId) -> None:
        """Read nothing of a peer for a while; each second for waste is charged."""
        now = trio.current_time()
        flow = self._floods.flow(forwarder.encode(), now)
        wait_s, for_waste = flow.wait_s(now), flow.is_to_blame(now)
        wait_s = min(1.0, max(_LEAST_WAIT_S, wait_s))

        def go_on() -> None:
            for _ in range(flow.held(wait_s, trio.current_time()) if for_waste else 0):
                self._watch.on_behaviour(forwarder, Cause.FLOOD)
            if flow.wait_s(trio.current_time()) > 0:
                self._hold_back(forwarder)
                return
            for message, hops in self._held.pop(forwarder, ()):
                self._on_message(message, forwarder, hops)

        self.counts["held_back"] += 1
        self._network.call_at(now + wait_s, go_on)

    def _read(self, message: Message, forwarder: PeerId, flow: SenderFlow, hops: int) -> None:
        now, sender = trio.current_time(), forwarder.encode()
        self.counts["received"] += 1
        if self._knows(message.key, now):
            self.counts["duplicate"] += 1
            flow.wasted(self._blame.copied(message.name, sender, now), now)
        elif message.topic not in self._validators:
            self.counts["unknown_topic"] += 1
            flow.wasted(COPY, now)
        elif len(message.data) > self._settings.limits.max_message_bytes:
            self._account(message, forwarder, forwarder, verdict(Reason.OVERSIZE_MESSAGE))
            self._report(forwarder, None, verdict(Reason.OVERSIZE_MESSAGE))
        elif message.forged:
            self._account(message, forwarder, forwarder, verdict(Reason.BAD_SIGNATURE))
            self._report(forwarder, None, verdict(Reason.BAD_SIGNATURE))
        elif message.author == self._host.peer_id:
            self.counts["own_echo"] += 1
            self._mark_seen(message.key)
        else:
            self._blame.copied(message.name, sender, now)
            self._judging.add(message.key)
            self._host.start_soon(self._take, message, forwarder, hops)

    def _account(
        self, message: Message, forwarder: PeerId, author: PeerId, judged: Verdict
    ) -> None:
        """Count what a judged message wasted, for whoever answers for it."""
        now = trio.current_time()
        waste = self._blame.judged(
            judged,
            key=message.name,
            content=lambda: hashlib.sha256(message.author.encode() + message.data).digest(),
            author=author.encode(),
            forwarder=forwarder.encode(),
        )
        flow = self._floods.flow(forwarder.encode(), now)
        flow.worked(judged.work_s, now, own_message=forwarder == author)
        if waste.of_forwarder:
            flow.wasted(waste.of_forwarder, now)
        if waste.of_author:
            self._floods.wasted_by_author(author.encode(), waste.of_author, now)

    async def _take(self, message: Message, forwarder: PeerId, hops: int) -> None:
        judged = await self._judge(message, forwarder)
        self._judging.discard(message.key)
        self._account(message, forwarder, message.author, judged)
        if not self._report(forwarder, message.author, judged):
            return
        if judged.reason not in OVERLOAD:
            self._mark_seen(message.key)
        if judged.outcome is Outcome.ACCEPT:
            self.counts["forwarded"] += 1
            self.hops[hops] += 1
            self._cache[message.key] = (message, self._beat, hops)
            for peer in list(self._mesh.get(message.topic, ())):
                if peer not in (forwarder, message.author) and self._is_worth_telling(peer):
                    self._pass_on(peer, message, hops)

    async def _judge(self, message: Message, forwarder: PeerId) -> Verdict:
        validator = self._validators.get(message.topic)
        if validator is None:
            return verdict(Reason.LEFT_TOPIC)
        try:
            with trio.move_on_after(self._settings.validator_deadline_s):
                async with self._validating:
                    return await validator(message.data, message.author, forwarder)
        except Exception:  # the validator is the node's code over a stranger's bytes
            logger.exception("the validator of %s failed", message.topic)
            return verdict(Reason.VALIDATOR_FAULT)
        return verdict(Reason.BUSY)

    def _report(self, forwarder: PeerId, author: PeerId | None, judged: Verdict) -> bool:
        """Tell the watch; False if that failed, which costs this message only."""
        try:
            self._watch.on_verdict(forwarder, author, judged)
        except Exception:  # the node's code, in the network's task
            self.counts["fault"] += 1
            logger.exception("message from %s failed", forwarder)
            return False
        self._verdicts[judged.reason] += 1
        return True

    def _knows(self, key: MessageId, now: float) -> bool:
        if key in self._judging:
            return True
        at = self._seen.get(key)
        return at is not None and now - at < self._settings.limits.seen_ttl_s

    def _mark_seen(self, key: MessageId) -> None:
        self._seen[key] = trio.current_time()
        self._seen.move_to_end(key)

    # Heartbeat

    def _beat_and_go_on(self) -> None:
        if not self._running:
            return
        self._beat += 1
        for topic in self._mesh:
            self._keep_mesh(topic)
        if self._cache:
            self._offer()
        now = trio.current_time()
        self._asked = {key: at for key, at in self._asked.items() if now - at < _ASK_AGAIN_S}
        horizon = now - self._settings.limits.seen_ttl_s
        while self._seen and next(iter(self._seen.values())) < horizon:
            self._seen.popitem(last=False)
        self._network.call_at(now + self._shape.heartbeat_s, self._beat_and_go_on)

    def _keep_mesh(self, topic: str) -> None:
        mesh, subscribed = self._mesh[topic], self._peer_topics.get(topic, {})
        for peer in [p for p in mesh if p not in subscribed]:
            del mesh[peer]
        for peer in [p for p in mesh if not self._is_worth_telling(p)]:
            self._prune(peer, topic)
        if len(mesh) < self._shape.degree_low:
            outside = [peer for peer in subscribed if peer not in mesh]
            self._rng.shuffle(outside)
            for peer in outside[: self._shape.degree - len(mesh)]:
                self._graft(peer, topic)
        elif len(mesh) > self._shape.degree_high:
            surplus = list(mesh)
            self._rng.shuffle(surplus)
            for peer in surplus[: len(mesh) - self._shape.degree]:
                self._prune(peer, topic)

    def _offer(self) -> None:
        me = self._host.peer_id
        horizon = self._beat - _CACHED_BEATS
        old = [key for key, (_, beat, _) in self._cache.items() if beat < horizon]
        for key in old:
            del self._cache[key]
        by_topic: dict[str, list[MessageId]] = {}
        for key, (message, beat, _) in self._cache.items():
            if self._beat - beat <= _OFFERED_BEATS and message.topic in self._mesh:
                by_topic.setdefault(message.topic, []).append(key)
        for topic, keys in by_topic.items():
            peers = list(self._peer_topics.get(topic, ()))
            if len(peers) > self._shape.degree_high:
                outside = [peer for peer in peers if peer not in self._mesh[topic]]
                count = max(self._shape.degree, len(outside) // 4)
                peers = self._rng.sample(outside, min(count, len(outside)))
            for peer in filter(self._is_worth_telling, peers):
                self._control(
                    peer,
                    lambda gossip, t=topic, k=keys: gossip._on_offer(t, k, me),  # type: ignore[misc]
                    len(keys),
                )

    def _on_offer(self, topic: str, keys: Iterable[MessageId], peer_id: PeerId) -> None:
        if topic not in self._mesh:
            return
        me, now = self._host.peer_id, trio.current_time()
        wanted = [
            key
            for key in keys
            if not self._knows(key, now)
            and now - self._asked.get(key, -_ASK_AGAIN_S) >= _ASK_AGAIN_S
        ]
        if wanted:
            self._asked.update(dict.fromkeys(wanted, now))
            self._control(peer_id, lambda gossip: gossip._on_want(wanted, me), len(wanted))

    def _on_want(self, keys: Iterable[MessageId], peer_id: PeerId) -> None:
        for key in keys:
            cached = self._cache.get(key)
            if cached is not None:
                message, _, hops = cached
                self._pass_on(peer_id, message, hops)
