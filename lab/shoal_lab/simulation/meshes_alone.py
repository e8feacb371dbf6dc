"""A swarm of meshes alone: the traffic of gossip itself, without nodes, streams or signatures.

    swarm = MeshSwarm(64, seed=1)
    swarm.run(60.0)                      virtual seconds
    swarm.bytes_of["copy"]

Every mesh is `shoal_p2p.gossip.mesh.Mesh`, and control is encoded as on the wire. Each node is
connected to `DIALS` nodes of its choice and to those that chose it, publishes at an even pace, and
takes `JUDGE_S` to validate a message. A node's other traffic (requests, pings, shards) is missing.
Each frame has the overhead of noise and yamux.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from shoal_p2p.gossip.codec import encode
from shoal_p2p.gossip.mesh import Mesh
from shoal_p2p.gossip.rpc import Event, Forward, Message, MessageReceived, Rpc, SendRpc, Validate
from shoal_p2p.gossip.settings import GossipSettings
from shoal_wire.types import PeerId
from shoal_wire.verdict import ACCEPT, Reason

TOPIC = "/shoal/1/" + 64 * "0" + "/rollouts/0"
DIALS = 8
"""Peers that each node dials (`peers.targets`)."""
JUDGE_S = 0.01
LATENCY_S = (0.005, 0.08)
"""Latency one way, sampled for each pair, as in `LinkSettings`."""
MESSAGE_BYTES = 270
"""Topic, author, key, number and signature of a message (docs/contributing/benchmarks.md)."""
FRAME_BYTES = 30
"""Yamux's header, noise's length and tag."""


class _Impartial:
    """A driver that rates all peers alike, and takes every message as authentic."""

    def score(self, _peer: PeerId) -> float:
        return 0.0

    rank = score

    def reject_reason(self, _message: Message) -> Reason | None:
        return None

    def pack(self, message: Message) -> Any:
        return message


class MeshSwarm:
    """The meshes, their messages in flight, and their costs."""

    def __init__(
        self,
        num_nodes: int,
        *,
        seed: int,
        data_bytes: int = 2048,
        every_s: float = 16.0,
        settings: GossipSettings | None = None,
        latency_s: tuple[float, float] = LATENCY_S,
    ) -> None:
        """Each node publishes `data_bytes` every `every_s` seconds."""
        self.now = 0.0
        self.bytes_of: Counter[str] = Counter()
        """Bytes of all nodes by kind: first, copy, or the kind of control."""
        self.frames_of: Counter[str] = Counter()
        self.published = 0
        self.is_quiet = False
        """True once publishing has stopped."""
        self.delays_s: list[float] = []
        """Delay of each delivery, in seconds."""
        self._rng = random.Random(seed)
        self._data = bytes(data_bytes)
        self._every_s = every_s
        self._latency_s = latency_s
        self._settings = settings or GossipSettings()
        self._latencies: dict[tuple[PeerId, PeerId], float] = {}
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.meshes = {name: self._mesh(name) for name in map(_name, range(num_nodes))}
        self._connect()
        for name, mesh in self.meshes.items():
            self._perform(name, mesh.join(TOPIC, 0.0))
            self._in(self._rng.random(), partial(self._beat, name))
            self._in(10 + self._rng.random() * every_s, partial(self._publish, name))

    @property
    def delivered(self) -> float:
        """Share of the due deliveries that arrived."""
        return len(self.delays_s) / max(1, self.published * (len(self.meshes) - 1))

    def run(self, seconds: float) -> None:
        """Let virtual time pass."""
        until = self.now + seconds
        while self._due and self._due[0][0] <= until:
            self.now, _, action = heapq.heappop(self._due)
            action()
        self.now = until

    def forget(self) -> None:
        """Reset the counts, after the swarm's start."""
        self.bytes_of.clear()
        self.frames_of.clear()
        self.delays_s.clear()
        self.published = 0

    def _mesh(self, name: PeerId) -> Mesh:
        return Mesh(
            name,
            self._settings,
            _Impartial(),
            rng=random.Random(self._rng.random()),
        )

    def _connect(self) -> None:
        names = list(self.meshes)
        pairs = {
            (min(name, other), max(name, other))
            for name in names
            for other in self._rng.sample(names, min(DIALS + 1, len(names)))
            if other != name
        }
        for pair in sorted(pairs):
            self._latencies[pair] = self._rng.uniform(*self._latency_s)
            for one, other in (pair, pair[::-1]):
                self.meshes[one].on_reading(other)
                self._perform(one, self.meshes[one].on_stream_opened(other, 0.0))

    def _in(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now + seconds, next(self._order), action))

    def _beat(self, name: PeerId) -> None:
        self._perform(name, self.meshes[name].heartbeat(self.now))
        self._in(self._settings.mesh.heartbeat_s, partial(self._beat, name))

    def _publish(self, name: PeerId) -> None:
        if self.is_quiet:
            return
        self.published += 1
        number = self.published.to_bytes(8, "big")
        message = Message(
            id=_id(name) + number, author=name, topics=(TOPIC,), data=self._data, sent_s=self.now
        )
        self._perform(name, [self.meshes[name].publish(message, self.now)])
        self._in(self._every_s, partial(self._publish, name))

    def _perform(self, name: PeerId, events: Iterable[Event]) -> None:
        for event in events:
            match event:
                case SendRpc(peer, rpc):
                    self._control(name, peer, rpc)
                case Forward(peers, message):
                    for peer in peers:
                        self._message(name, peer, message)
                case MessageReceived(peer, message):
                    self._perform(name, self.meshes[name].admit(peer, message, self.now))
                case Validate(peer, message):
                    self._in(JUDGE_S, partial(self._judged, name, peer, message))

    def _judged(self, name: PeerId, peer: PeerId, message: Message) -> None:
        self.delays_s.append(self.now - (message.sent_s or 0.0))
        self._perform(name, self.meshes[name].on_verdict(peer, message, ACCEPT, self.now))

    def _message(self, name: PeerId, peer: PeerId, message: Message) -> None:
        def arrive() -> None:
            mesh = self.meshes[peer]
            kind = "copy" if mesh.is_known(message.id, self.now) else "first"
            self._count(kind, len(message.data) + MESSAGE_BYTES)
            rpc = Rpc(messages=(message,), num_bytes=len(message.data) + MESSAGE_BYTES)
            self._perform(peer, mesh.receive(name, rpc, self.now))

        self._in(self._latency(name, peer), arrive)

    def _control(self, name: PeerId, peer: PeerId, rpc: Rpc) -> None:
        if rpc.num_entries or rpc.subscriptions:
            kinds = [kind for kind in _KINDS if getattr(rpc, kind)]
            self._count("+".join(kinds), len(encode(rpc)))
            self._in(
                self._latency(name, peer),
                lambda: self._perform(peer, self.meshes[peer].receive(name, rpc, self.now)),
            )

    def _count(self, kind: str, num_bytes: int) -> None:
        self.bytes_of[kind] += num_bytes + FRAME_BYTES
        self.frames_of[kind] += 1

    def _latency(self, one: PeerId, other: PeerId) -> float:
        return self._latencies[min(one, other), max(one, other)]


_KINDS = ("subscriptions", "ihave", "iwant", "graft", "prune", "idontwant")


def _name(number: int) -> PeerId:
    return PeerId(f"node{number:06}")


def _id(name: PeerId) -> bytes:
    """Return 38 bytes, as a peer id has."""
    return name.encode().ljust(38, b"-")
