"""A mesh by itself, with a clock that the test sets and peers that are only names."""

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


def said(number: int = 1, *, author: PeerId = C, topic: str = TOPIC, data: bytes = b"") -> Message:
    """Return an authentic message."""
    return Message(
        id=b"%s/%d" % (author.encode(), number), author=author, topics=(topic,), data=data
    )


def forgery(of: Message) -> Message:
    """Return a message in the same name that nobody has signed."""
    return of._replace(data=b"forged", signed="forged")


class Bench:
    """A mesh, the time, and what its driver was asked for."""

    def __init__(
        self,
        settings: GossipSettings | None = None,
        *,
        own: PeerId = ME,
        seed: int = 1,
        pack: Callable[[Message], Any] = lambda message: message,
    ) -> None:
        self.now = 0.0
        self.scores: dict[PeerId, float] = {}
        self.ranks: dict[PeerId, float] = {}
        self.mesh = Mesh(
            own,
            settings or GossipSettings(),
            score=lambda peer: self.scores.get(peer, 0.0),
            rank=lambda peer: self.ranks.get(peer, 0.0),
            fault_of=lambda message: Reason.BAD_SIGNATURE if message.signed == "forged" else None,
            pack=pack,
            rng=random.Random(seed),
        )

    def meet(
        self, *peers: PeerId, topics: Sequence[str] = (TOPIC,), is_dialled: bool = False
    ) -> list[Event]:
        """Open streams both ways with `peers`, which are subscribed to `topics`."""
        events: list[Event] = []
        for peer in peers:
            self.mesh.reads(peer)
            events += self.mesh.opened(peer, self.now, is_dialled=is_dialled)
            events += self.say(peer, subscriptions=[(topic, True) for topic in topics])
        return events

    def join(self, topic: str = TOPIC) -> list[Event]:
        """Subscribe."""
        return self.mesh.join(topic, self.now)

    def say(self, peer: PeerId, **parts: Any) -> list[Event]:
        """Let a peer say something; what arrived is admitted at once."""
        events: list[Event] = []
        for event in self.mesh.receive(peer, Rpc(**parts), self.now):
            if isinstance(event, MessageReceived):
                events += self.mesh.admit(peer, event.message, self.now)
            else:
                events.append(event)
        return events

    def bring(
        self, peer: PeerId, message: Message, judged: Verdict = ACCEPT, **parts: Any
    ) -> list[Event]:
        """Let a peer send a message, and give a verdict on it if that is asked for."""
        events = self.say(peer, messages=[message], **parts)
        for one in of(Validate, events):
            events += self.mesh.judged(peer, one.message, judged, self.now)
        return events

    def beat(self, count: int = 1, busy: Iterable[PeerId] = ()) -> list[Event]:
        """Let heartbeats pass, a second each; return what all of them asked for."""
        events: list[Event] = []
        for _ in range(count):
            self.now += 1.0
            events += self.mesh.heartbeat(self.now, frozenset(busy))
        return events

    @property
    def members(self) -> set[PeerId]:
        """Who is in the mesh."""
        return set(self.mesh.members.get(TOPIC, ()))


def of(kind: type[E], events: Iterable[Event]) -> list[E]:
    """Return the events of a kind."""
    return [event for event in events if isinstance(event, kind)]


def charges(events: Iterable[Event]) -> list[tuple[PeerId, Cause]]:
    """Return who is charged with what."""
    return [(event.peer, event.cause) for event in of(Misbehaviour, events)]


def sent(events: Iterable[Event], part: str) -> list[tuple[PeerId, Any]]:
    """Return whom a part of an RPC was sent to, and its entries."""
    return [(peer, x) for peer, rpc in of(SendRpc, events) for x in getattr(rpc, part)]


def forwarded(events: Iterable[Event]) -> list[tuple[PeerId, bytes]]:
    """Return whom which message goes to."""
    return [(peer, event.frame.id) for event in of(Forward, events) for peer in event.peers]


class Swarm:
    """Meshes whose RPCs take a while to arrive. All validators accept."""

    latency_s = 0.05

    def __init__(self, names: Iterable[str], seed: int) -> None:
        self.benches = {
            PeerId(name): Bench(own=PeerId(name), seed=seed + number)
            for number, name in enumerate(names)
        }
        self.charged: list[tuple[PeerId, Cause]] = []
        self.now = 0.0
        self._seed = 1000 * seed
        self._order = itertools.count()
        self._due: list[tuple[float, int, PeerId, PeerId, Rpc]] = []
        for bench in self.benches.values():
            bench.join()

    def mesh_of(self, name: str) -> set[PeerId]:
        """Return the members of somebody's mesh."""
        return self.benches[PeerId(name)].members

    def connect(self, name: str, other: str) -> None:
        """Open streams both ways; the first dialled."""
        for here, there in ((PeerId(name), PeerId(other)), (PeerId(other), PeerId(name))):
            bench = self.benches[here]
            bench.now = self.now
            bench.mesh.reads(there)
            is_dialled = here == name
            self._perform(here, bench.mesh.opened(there, self.now, is_dialled=is_dialled))

    def disconnect(self, name: str, other: str) -> None:
        """End the streams both ways."""
        for here, there in ((PeerId(name), PeerId(other)), (PeerId(other), PeerId(name))):
            mesh = self.benches[here].mesh
            mesh.closed(there)
            mesh.unreads(there)
        both = {name, other}
        self._due = [entry for entry in self._due if {entry[2], entry[3]} != both]
        heapq.heapify(self._due)

    def restart(self, name: str) -> None:
        """Start somebody again, who remembers nobody; nobody is connected to it."""
        for other in self.benches:
            if other != name:
                self.disconnect(name, other)
        self._seed += 1
        self.benches[PeerId(name)] = Bench(own=PeerId(name), seed=self._seed)
        self.benches[PeerId(name)].now = self.now
        self.benches[PeerId(name)].join()

    def connect_all(self, names: Iterable[str], others: Iterable[str]) -> None:
        """Connect those of one list with those of another."""
        done = set()
        for name, other in itertools.product(names, list(others)):
            if name != other and frozenset((name, other)) not in done:
                done.add(frozenset((name, other)))
                self.connect(name, other)

    def pass_time(self, seconds: float) -> None:
        """Deliver and beat."""
        until = self.now + seconds
        while self.now < until:
            beat = int(self.now) + 1.0
            while self._due and self._due[0][0] <= beat:
                self.now, _, source, sink, rpc = heapq.heappop(self._due)
                bench = self.benches[sink]
                bench.now = self.now
                self._perform(sink, bench.say(source, **rpc._asdict()))
            self.now = beat
            for name, bench in self.benches.items():
                self._perform(name, bench.mesh.heartbeat(beat))

    def _perform(self, source: PeerId, events: Iterable[Event]) -> None:
        self.charged += charges(events)
        for peer, rpc in of(SendRpc, events):
            due = self.now + self.latency_s
            heapq.heappush(self._due, (due, next(self._order), source, peer, rpc))
