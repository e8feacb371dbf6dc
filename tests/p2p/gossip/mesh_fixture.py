"""A mesh without a driver: the test sets the clock, and peers are only ids."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from shoal_p2p.gossip.mesh import Mesh
from shoal_p2p.gossip.rpc import (
    Event,
    Forward,
    Message,
    MessageReceived,
    Misbehaviour,
    Rpc,
    SendRpc,
    Validate,
)
from shoal_p2p.gossip.settings import GossipSettings
from shoal_p2p.reputation.scoring import Cause
from shoal_wire.types import PeerId
from shoal_wire.verdict import ACCEPT, Reason, Verdict

TOPIC = "/shoal/test"
ME, A, B, C = map(PeerId, ("me", "a", "b", "c"))
E = TypeVar("E")


def a_message(
    number: int = 1, *, author: PeerId = C, topic: str = TOPIC, data: bytes = b""
) -> Message:
    """Return an authentic message."""
    return Message(
        id=b"%s/%d" % (author.encode(), number), author=author, topics=(topic,), data=data
    )


def forgery(of: Message) -> Message:
    """Return a message with the same id and author, but no valid signature."""
    return of._replace(data=b"forged", signed="forged")


class MeshFixture:
    """A mesh, its clock, and peers' scores and ranks."""

    def __init__(
        self,
        settings: GossipSettings | None = None,
        *,
        own: PeerId = ME,
        seed: int = 1,
        pack: Callable[[Message], Any] = lambda message: message,
    ) -> None:
        self.now = 0.0
        self._pack = pack
        self.scores: dict[PeerId, float] = {}
        self.ranks: dict[PeerId, float] = {}
        self.mesh = Mesh(
            own,
            settings or GossipSettings(),
            self,
            rng=random.Random(seed),
        )

    def score(self, peer: PeerId) -> float:
        """Return the score that the test has set."""
        return self.scores.get(peer, 0.0)

    def rank(self, peer: PeerId) -> float:
        """Return the rank that the test has set."""
        return self.ranks.get(peer, 0.0)

    def reject_reason(self, message: Message) -> Reason | None:
        """Refuse a `forgery`."""
        return Reason.BAD_SIGNATURE if message.signed == "forged" else None

    def pack(self, message: Message) -> Any:
        """Return the frame as the test wants it."""
        return self._pack(message)

    def connect(
        self, *peers: PeerId, topics: Sequence[str] = (TOPIC,), is_dialled: bool = False
    ) -> list[Event]:
        """Open streams both ways with `peers`, which are subscribed to `topics`."""
        events: list[Event] = []
        for peer in peers:
            self.mesh.on_reading(peer)
            events += self.mesh.on_stream_opened(peer, self.now, is_dialled=is_dialled)
            events += self.receive(peer, subscriptions=[(topic, True) for topic in topics])
        return events

    def join(self, topic: str = TOPIC) -> list[Event]:
        """Subscribe."""
        return self.mesh.join(topic, self.now)

    def receive(self, peer: PeerId, **parts: Any) -> list[Event]:
        """Deliver an RPC from a peer; new messages are admitted at once."""
        events: list[Event] = []
        for event in self.mesh.receive(peer, Rpc(**parts), self.now):
            if isinstance(event, MessageReceived):
                events += self.mesh.admit(peer, event.message, self.now)
            else:
                events.append(event)
        return events

    def deliver(
        self, peer: PeerId, message: Message, judged: Verdict = ACCEPT, **parts: Any
    ) -> list[Event]:
        """Deliver a message from a peer, and apply a verdict if it is validated."""
        events = self.receive(peer, messages=[message], **parts)
        for one in of(Validate, events):
            events += self.mesh.on_verdict(peer, one.message, judged, self.now)
        return events

    def heartbeat(self, count: int = 1, busy: Iterable[PeerId] = ()) -> list[Event]:
        """Run heartbeats, one second each, and return all their events."""
        events: list[Event] = []
        for _ in range(count):
            self.now += 1.0
            events += self.mesh.heartbeat(self.now, frozenset(busy))
        return events

    @property
    def members(self) -> set[PeerId]:
        """The members of the mesh."""
        return set(self.mesh.members.get(TOPIC, ()))


def of(kind: type[E], events: Iterable[Event]) -> list[E]:
    """Return the events of a kind."""
    return [event for event in events if isinstance(event, kind)]


def charges(events: Iterable[Event]) -> list[tuple[PeerId, Cause]]:
    """Return the charged peers and causes."""
    return [(event.peer, event.cause) for event in of(Misbehaviour, events)]


def sent(events: Iterable[Event], part: str) -> list[tuple[PeerId, Any]]:
    """Return the entries of one part of the RPCs sent, with the peer of each."""
    return [(peer, x) for peer, rpc in of(SendRpc, events) for x in getattr(rpc, part)]


def forwarded(events: Iterable[Event]) -> list[tuple[PeerId, bytes]]:
    """Return the forwarded message ids, with the peer of each."""
    return [(peer, event.frame.id) for event in of(Forward, events) for peer in event.peers]


class MeshNetwork:
    """Meshes connected with latency. All validators accept."""

    latency_s = 0.05

    def __init__(self, names: Iterable[str], seed: int) -> None:
        self.nodes = {
            PeerId(name): MeshFixture(own=PeerId(name), seed=seed + number)
            for number, name in enumerate(names)
        }
        self.charged: list[tuple[PeerId, Cause]] = []
        self.now = 0.0
        self._seed = 1000 * seed
        self._order = itertools.count()
        self._due: list[tuple[float, int, PeerId, PeerId, Rpc]] = []
        for node in self.nodes.values():
            node.join()

    def members_of(self, name: str) -> set[PeerId]:
        """Return the members of a node's mesh."""
        return self.nodes[PeerId(name)].members

    def connect(self, name: str, other: str) -> None:
        """Open streams both ways; the first node dialled."""
        for here, there in ((PeerId(name), PeerId(other)), (PeerId(other), PeerId(name))):
            node = self.nodes[here]
            node.now = self.now
            node.mesh.on_reading(there)
            is_dialled = here == name
            self._perform(here, node.mesh.on_stream_opened(there, self.now, is_dialled=is_dialled))

    def disconnect(self, name: str, other: str) -> None:
        """Close the streams both ways."""
        for here, there in ((PeerId(name), PeerId(other)), (PeerId(other), PeerId(name))):
            mesh = self.nodes[here].mesh
            mesh.on_stream_closed(there)
            mesh.on_reading_ended(there)
        both = {name, other}
        self._due = [entry for entry in self._due if {entry[2], entry[3]} != both]
        heapq.heapify(self._due)

    def restart(self, name: str) -> None:
        """Restart a node with empty state and no connections."""
        for other in self.nodes:
            if other != name:
                self.disconnect(name, other)
        self._seed += 1
        self.nodes[PeerId(name)] = MeshFixture(own=PeerId(name), seed=self._seed)
        self.nodes[PeerId(name)].now = self.now
        self.nodes[PeerId(name)].join()

    def connect_all(self, names: Iterable[str], others: Iterable[str]) -> None:
        """Connect each node of one list with each of another."""
        done = set()
        for name, other in itertools.product(names, list(others)):
            if name != other and frozenset((name, other)) not in done:
                done.add(frozenset((name, other)))
                self.connect(name, other)

    def pass_time(self, seconds: float) -> None:
        """Deliver RPCs and run heartbeats for `seconds`."""
        until = self.now + seconds
        while self.now < until:
            heartbeat = int(self.now) + 1.0
            while self._due and self._due[0][0] <= heartbeat:
                self.now, _, source, sink, rpc = heapq.heappop(self._due)
                node = self.nodes[sink]
                node.now = self.now
                self._perform(sink, node.receive(source, **rpc._asdict()))
            self.now = heartbeat
            for name, node in self.nodes.items():
                self._perform(name, node.mesh.heartbeat(heartbeat))

    def _perform(self, source: PeerId, events: Iterable[Event]) -> None:
        self.charged += charges(events)
        for peer, rpc in of(SendRpc, events):
            due = self.now + self.latency_s
            heapq.heappush(self._due, (due, next(self._order), source, peer, rpc))
