"""Gossip over the simulated network: meshes, forwarding after validation, lazy repair.

The shape of `p2p.gossip.gossip.Gossip` and the rules of its router, in a hundredth of the time: a
node validates before it forwards, forwards to its mesh only, offers recent ids to those outside
it every heartbeat, and publishes to subscribers without being one. Signatures of gossip itself are
a flag; those of the envelopes inside are real.
"""

from __future__ import annotations

import random
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

import trio

from shoal_wire.types import PeerId
from shoal_wire.verdict import Outcome, Reason, Verdict, verdict
from tests.support.simulated_network import SimulatedHost

Validator = Callable[[bytes, PeerId, PeerId], Awaitable[Verdict]]
MessageId = tuple[PeerId, int]

_DEGREE, _LOW, _HIGH = 6, 4, 12
_WINDOW = 3
"""Heartbeats for which an id is offered."""
_CACHE = 5
_SEEN_S = 120.0
_VALIDATOR_S = 2.0
_GOSSIP_THRESHOLD = -10.0
_GRAYLIST = -40.0
_OVERLOAD = frozenset(
    {
        Reason.INTAKE_FULL,
        Reason.WORKER_UNAVAILABLE,
        Reason.VALIDATOR_TIMEOUT,
        Reason.VALIDATOR_FAULT,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One gossip message."""

    author: PeerId
    sequence: int
    topic: str
    data: bytes
    forged: bool = False
    """Its signature does not hold."""

    @property
    def key(self) -> MessageId:
        """What makes it the same message."""
        return self.author, self.sequence


class SimulatedGossip:
    """One node's gossip; tasks run in `nursery`, so that a kill ends them."""

    def __init__(
        self,
        host: SimulatedHost,
        nursery: trio.Nursery,
        rng: random.Random,
        *,
        on_verdict: Callable[[PeerId, PeerId | None, Verdict], None],
        score: Callable[[PeerId], float] = lambda _peer: 0.0,
        heartbeat_s: float = 1.0,
        first_sequence: int = 1,
    ) -> None:
        self._host = host
        self._network = host.network
        self._nursery = nursery
        self._rng = rng
        self._on_verdict = on_verdict
        self._score = score
        self._heartbeat_s = heartbeat_s
        self._sequence = first_sequence
        self._validators: dict[str, Validator] = {}
        self._mesh: dict[str, dict[PeerId, None]] = {}
        self._peer_topics: dict[str, dict[PeerId, None]] = {}
        self._seen: OrderedDict[MessageId, float] = OrderedDict()
        self._judging: set[MessageId] = set()
        self._cache: dict[MessageId, tuple[Message, int]] = {}
        self._beat = 0
        self.counts: Counter[str] = Counter()
        host.gossip = self
        host.add_peer_callbacks(connected=self._greet, disconnected=self._forget)
        # Not in step with the others.
        self._network.call_at(
            trio.current_time() + rng.randrange(4) / 4 * heartbeat_s, self._beat_and_go_on
        )
        self._running = True

    def stop(self) -> None:
        """Beat no more: the node is gone."""
        self._running = False

    # The adapter's interface

    async def subscribe(self, topic: str, validator: Validator) -> None:
        """Join `topic`."""
        await trio.lowlevel.checkpoint()
        self._validators[topic] = validator
        self._mesh.setdefault(topic, {})
        for peer_id in self._host.connected_peers():
            self._tell(peer_id, topic, True)

    async def unsubscribe(self, topic: str) -> None:
        """Leave `topic`."""
        await trio.lowlevel.checkpoint()
        self._validators.pop(topic, None)
        self._mesh.pop(topic, None)
        for peer_id in self._host.connected_peers():
            self._tell(peer_id, topic, False)

    async def publish(self, topic: str, data: bytes) -> int:
        """Send to the mesh, filled up to the degree; return to how many."""
        await trio.lowlevel.checkpoint()
        self._sequence += 1
        message = Message(
            author=self._host.peer_id, sequence=self._sequence, topic=topic, data=data
        )
        self._mark_seen(message.key)
        return self.send(message)

    def send(self, message: Message) -> int:
        """Send any message, also one that is not this node's, as an attacker may."""
        self._cache[message.key] = (message, self._beat)
        mesh = self._mesh.get(message.topic, {})
        others = [
            peer
            for peer in self._peer_topics.get(message.topic, ())
            if peer not in mesh and self._score(peer) >= _GOSSIP_THRESHOLD
        ]
        self._rng.shuffle(others)
        targets = [*mesh, *others[: max(0, _DEGREE - len(mesh))]]
        for peer in targets:
            self._pass_on(peer, message)
        return len(targets)

    def subscribers(self) -> Mapping[str, tuple[PeerId, ...]]:
        """Return every topic with the connected peers that are subscribed."""
        return {topic: tuple(sorted(peers)) for topic, peers in self._peer_topics.items() if peers}

    def topic_peers(self, topic: str) -> tuple[PeerId, ...]:
        """Return the connected peers that are subscribed to `topic`."""
        return tuple(sorted(self._peer_topics.get(topic, ())))

    def mesh(self, topic: str) -> tuple[PeerId, ...]:
        """Return the mesh of a topic."""
        return tuple(self._mesh.get(topic, ()))

    # Peers

    def _greet(self, peer_id: PeerId) -> None:
        for topic in self._validators:
            self._tell(peer_id, topic, True)

    def _forget(self, peer_id: PeerId) -> None:
        for peers in (*self._peer_topics.values(), *self._mesh.values()):
            peers.pop(peer_id, None)

    def _tell(self, peer_id: PeerId, topic: str, joined: bool) -> None:
        me = self._host.peer_id
        self._control(peer_id, lambda gossip: gossip._on_subscription(me, topic, joined))

    def _on_subscription(self, peer_id: PeerId, topic: str, joined: bool) -> None:
        if joined:
            self._peer_topics.setdefault(topic, {})[peer_id] = None
            mesh = self._mesh.get(topic)
            if mesh is not None and len(mesh) < _LOW:
                self._graft(peer_id, topic)
        else:
            self._peer_topics.get(topic, {}).pop(peer_id, None)
            self._mesh.get(topic, {}).pop(peer_id, None)

    def _graft(self, peer_id: PeerId, topic: str) -> None:
        if self._score(peer_id) < _GOSSIP_THRESHOLD:
            return
        self._mesh[topic][peer_id] = None
        me = self._host.peer_id
        self._control(peer_id, lambda gossip: gossip._on_graft(me, topic))

    def _prune(self, peer_id: PeerId, topic: str) -> None:
        self._mesh[topic].pop(peer_id, None)
        me = self._host.peer_id
        self._control(peer_id, lambda gossip: gossip._mesh.get(topic, {}).pop(me, None))

    def _on_graft(self, peer_id: PeerId, topic: str) -> None:
        if topic not in self._mesh or self._score(peer_id) < _GOSSIP_THRESHOLD:
            me = self._host.peer_id
            self._control(peer_id, lambda gossip: gossip._mesh.get(topic, {}).pop(me, None))
        else:
            self._mesh[topic][peer_id] = None

    def _control(self, peer_id: PeerId, action: Callable[[SimulatedGossip], object]) -> None:
        """Carry a control message; these are small and repeated, so loss spares them."""
        network = self._network
        me = self._host.peer_id
        due = trio.current_time() + network.latency(me, peer_id)

        def arrive() -> None:
            host = network.host(peer_id)
            if host is not None and host.is_connected(me) and network.reaches(me, peer_id):
                action(host.gossip)

        network.call_at(due, arrive)

    # Messages

    def _pass_on(self, peer_id: PeerId, message: Message) -> None:
        me = self._host.peer_id
        self._network.send(me, peer_id, lambda host: host.gossip._on_message(message, me))

    def _on_message(self, message: Message, forwarder: PeerId) -> None:
        self.counts["received"] += 1
        if self._score(forwarder) < _GRAYLIST:
            return
        if self._knows(message.key):
            self.counts["duplicate"] += 1
        elif message.topic not in self._validators:
            self.counts["unknown_topic"] += 1
        elif message.forged:
            self._on_verdict(forwarder, None, verdict(Reason.BAD_SIGNATURE))
        elif message.author == self._host.peer_id:
            self._mark_seen(message.key)
        else:
            self._judging.add(message.key)
            self._nursery.start_soon(self._judge, message, forwarder)

    async def _judge(self, message: Message, forwarder: PeerId) -> None:
        judged: Verdict | None = None
        validator = self._validators.get(message.topic)
        if validator is None:
            judged = verdict(Reason.LEFT_TOPIC)
        else:
            with trio.move_on_after(_VALIDATOR_S):
                judged = await validator(message.data, message.author, forwarder)
        judged = judged or verdict(Reason.VALIDATOR_TIMEOUT)
        self._judging.discard(message.key)
        self._on_verdict(forwarder, message.author, judged)
        if judged.reason not in _OVERLOAD:
            self._mark_seen(message.key)
        if judged.outcome is Outcome.ACCEPT:
            self._cache[message.key] = (message, self._beat)
            for peer in list(self._mesh.get(message.topic, ())):
                if peer not in (forwarder, message.author):
                    self._pass_on(peer, message)

    def _knows(self, key: MessageId) -> bool:
        if key in self._judging:
            return True
        at = self._seen.get(key)
        return at is not None and trio.current_time() - at < _SEEN_S

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
        horizon = trio.current_time() - _SEEN_S
        while self._seen and next(iter(self._seen.values())) < horizon:
            self._seen.popitem(last=False)
        self._network.call_at(trio.current_time() + self._heartbeat_s, self._beat_and_go_on)

    def _keep_mesh(self, topic: str) -> None:
        mesh, subscribed = self._mesh[topic], self._peer_topics.get(topic, {})
        for peer in [p for p in mesh if p not in subscribed]:
            del mesh[peer]
        for peer in [p for p in mesh if self._score(p) < _GOSSIP_THRESHOLD]:
            self._prune(peer, topic)
        if len(mesh) < _LOW:
            outside = [peer for peer in subscribed if peer not in mesh]
            self._rng.shuffle(outside)
            for peer in outside[: _DEGREE - len(mesh)]:
                self._graft(peer, topic)
        elif len(mesh) > _HIGH:
            surplus = list(mesh)
            self._rng.shuffle(surplus)
            for peer in surplus[: len(mesh) - _DEGREE]:
                self._prune(peer, topic)

    def _offer(self) -> None:
        me = self._host.peer_id
        old = [key for key, (_, beat) in self._cache.items() if self._beat - beat > _CACHE]
        for key in old:
            del self._cache[key]
        by_topic: dict[str, list[MessageId]] = {}
        for key, (message, beat) in self._cache.items():
            if self._beat - beat <= _WINDOW and message.topic in self._mesh:
                by_topic.setdefault(message.topic, []).append(key)
        for topic, keys in by_topic.items():
            peers = list(self._peer_topics.get(topic, ()))
            if len(peers) > _HIGH:
                outside = [peer for peer in peers if peer not in self._mesh[topic]]
                count = max(_DEGREE, len(outside) // 4)
                peers = self._rng.sample(outside, min(count, len(outside)))
            for peer in peers:
                self._control(peer, lambda gossip, k=keys: gossip._on_offer(k, me))  # type: ignore[misc]

    def _on_offer(self, keys: Iterable[MessageId], peer_id: PeerId) -> None:
        me = self._host.peer_id
        wanted = [key for key in keys if not self._knows(key)]
        if wanted:
            self._control(peer_id, lambda gossip: gossip._on_want(wanted, me))

    def _on_want(self, keys: Iterable[MessageId], peer_id: PeerId) -> None:
        for key in keys:
            cached = self._cache.get(key)
            if cached is not None:
                self._pass_on(peer_id, cached[0])
