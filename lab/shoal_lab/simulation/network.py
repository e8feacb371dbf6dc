"""A network in memory, under Trio's clock: latency, loss, broken links, partitions. Seeded.

    network = SimulatedNetwork(random.Random(seed))
    await nursery.start(network.run)

Connections behave like TCP: data arrives in order, or the connection ends. `loss` models losses
above TCP, in full queues. A connection across a partition stays until its pings fail. Nothing here
depends on the order of a set, so one seed gives one run.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from abc import abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import trio

from shoal_base.ranges import Range, Ranged, Seconds, SecondsOrZero, Share
from shoal_lab.simulation.clock import GRAINS_A_SECOND
from shoal_lab.simulation.requests import SimulatedServer
from shoal_p2p.net.connections import Direction
from shoal_p2p.net.host import ListenError
from shoal_p2p.net.interface import Host
from shoal_wire.types import PeerId

if TYPE_CHECKING:
    from trio_typing import TaskStatus

_FIRST_FREE_PORT = 49_152  # first of the dynamic ports (RFC 6335)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings(Ranged):
    """Latency and loss of every link."""

    least_latency_s: SecondsOrZero = 0.005
    most_latency_s: Annotated[float, Range("s", "least_latency_s", 3600)] = 0.08
    """Latency one way, sampled for each pair of hosts."""
    jitter: Share = 0.2
    """Share of the latency by which a message may be delayed."""
    loss: Share = 0.0
    """Share of gossip messages lost in queues."""
    ping_s: Seconds = 15.0
    """Seconds after which a silent connection is cut."""


@dataclass(slots=True, eq=False)
class SimulatedLink:
    """One end of a connection."""

    direction: Direction
    since: float
    latency_s: float
    """Latency one way, without jitter."""
    last_due: float = 0.0
    """Time when the latest message sent from this end arrives: the next comes no earlier."""
    waiting: dict[trio.CancelScope, None] = field(default_factory=dict)
    """Cancel scopes of the callers that wait for an answer over it."""


class NetworkEnd(Host):
    """A host on the network, as the network and the other hosts use it: `SimulatedHost`."""

    address: str
    """The address at which it listens."""
    own_addresses: tuple[str, ...]
    gossip: Any = None
    """The `SimulatedGossip` on this host, where it has one."""

    @abstractmethod
    def link(self, peer_id: PeerId) -> SimulatedLink | None:
        """Return this end of the connection to a peer."""

    @abstractmethod
    def server(self, protocol_id: str) -> SimulatedServer | None:
        """Return what answers the requests of a protocol."""

    @abstractmethod
    def welcomes(self, peer_id: PeerId) -> bool:
        """True if `peer_id` may connect."""

    @abstractmethod
    def offers_room(self) -> bool:
        """Return whether a dialer is admitted; a refusal is counted and reported."""

    @abstractmethod
    def start_soon(self, task: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        """Run `task` for as long as the host runs; not at all when it does not."""

    @abstractmethod
    def on_connected(self, peer_id: PeerId, direction: Direction) -> None:
        """Add a connection."""

    @abstractmethod
    def on_disconnected(self, peer_id: PeerId) -> None:
        """Remove a connection."""


class SimulatedNetwork:
    """Delivers the hosts' data. Start with ``await nursery.start(network.run)``."""

    def __init__(self, rng: random.Random, links: LinkSettings | None = None) -> None:
        self.links = links or LinkSettings()
        self.rng = rng
        self.num_messages = 0
        self.bytes_of: Counter[PeerId] = Counter()
        """Bytes that each host has sent: payloads of gossip and requests, and gossip's framing."""
        self._hosts: dict[PeerId, NetworkEnd] = {}
        self._addresses: dict[str, NetworkEnd] = {}
        """Hosts by the address at which they listen."""
        self._side: dict[PeerId, int] = {}
        """The part of a partitioned network that each host is in."""
        self._latency: dict[tuple[PeerId, PeerId], float] = {}
        self._grains: list[int] = []
        self._actions: dict[int, list[Callable[[], None]]] = {}
        self._wake = trio.Event()
        self._next = -1
        self._ports = itertools.count(_FIRST_FREE_PORT)
        self.time: Callable[[], float] = trio.current_time
        """Returns the time; while the network runs, without looking up Trio's clock each time."""

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Deliver for ever."""
        self.time = trio.lowlevel.current_clock().current_time
        task_status.started()
        while True:
            now = self.time()
            while self._grains and self._grains[0] / GRAINS_A_SECOND <= now:
                for action in self._actions.pop(heapq.heappop(self._grains)):
                    action()
            self._next = self._grains[0] if self._grains else -1
            self._wake = trio.Event()
            with trio.move_on_at(self._next / GRAINS_A_SECOND if self._grains else math.inf):
                await self._wake.wait()

    def call_at(self, when: float, action: Callable[[], None]) -> None:
        """Call `action` in the network's task at `when`, or up to a grain later."""
        grain = math.ceil(when * GRAINS_A_SECOND)
        actions = self._actions.get(grain)
        if actions is not None:
            actions.append(action)
            return
        self._actions[grain] = [action]
        heapq.heappush(self._grains, grain)
        if grain < self._next or self._next < 0:
            self._wake.set()

    def free_address(self, transport: str) -> str:
        """Return `transport`, with a port for port 0. Raises ListenError if it is taken."""
        if transport.endswith("/tcp/0"):
            return f"{transport[:-1]}{next(self._ports)}"
        if transport in self._addresses:
            raise ListenError(f"cannot listen on {transport}: it is taken")
        return transport

    def add(self, host: NetworkEnd) -> None:
        """Make a host reachable; it replaces a host with the same id."""
        if (old := self._hosts.get(host.peer_id)) is not None:
            self.remove(old)
        self._hosts[host.peer_id] = host
        self._addresses[host.address] = host

    def remove(self, host: NetworkEnd) -> None:
        """Remove a host, as with kill -9: its peers see their connections end."""
        if self._hosts.get(host.peer_id) is host:
            for peer_id in host.connected_peers():
                self.disconnect(host.peer_id, peer_id)
            del self._hosts[host.peer_id]
            if self._addresses.get(host.address) is host:
                del self._addresses[host.address]

    def host(self, peer_id: PeerId) -> NetworkEnd | None:
        """Return a host that is up."""
        return self._hosts.get(peer_id)

    # Faults

    def partition(self, side_of: Callable[[PeerId], int]) -> None:
        """Let nothing pass between hosts of different sides."""
        self._side = {peer_id: side_of(peer_id) for peer_id in self._hosts}
        cut = [
            (one, other)
            for one, host in self._hosts.items()
            for other in host.connected_peers()
            if one < other and not self.reaches(one, other)
        ]
        for one, other in cut:
            self.call_at(
                trio.current_time() + self.links.ping_s,
                lambda a=one, b=other: self._cut_if_silent(a, b),  # type: ignore[misc]
            )

    def heal(self) -> None:
        """End the partition."""
        self._side = {}

    def reaches(self, one: PeerId, other: PeerId) -> bool:
        """True if the partition does not separate these two."""
        return not self._side or self._side.get(one, 0) == self._side.get(other, 0)

    def break_connections(self, share: float) -> int:
        """Break each connection with probability `share`; return how many."""
        pairs = [
            (one, other)
            for one, host in self._hosts.items()
            for other in host.connected_peers()
            if one < other
        ]
        broken = [pair for pair in pairs if self.rng.random() < share]
        for one, other in broken:
            self.disconnect(one, other)
        return len(broken)

    def _cut_if_silent(self, one: PeerId, other: PeerId) -> None:
        if not self.reaches(one, other):
            self.disconnect(one, other)

    # Called by hosts

    def latency(self, one: PeerId, other: PeerId) -> float:
        """Return the latency of a link, one way, without jitter."""
        key = (one, other) if one < other else (other, one)
        if key not in self._latency:
            self._latency[key] = self.rng.uniform(
                self.links.least_latency_s, self.links.most_latency_s
            )
        return self._latency[key]

    def connect(self, one: PeerId, other: PeerId) -> None:
        """Open a connection between two hosts that are up; `one` has dialled."""
        here, there = self._hosts[one], self._hosts[other]
        here.on_connected(other, Direction.OUT)
        there.on_connected(one, Direction.IN)
        if not here.is_connected(other):  # by a callback of its own, before there was another end
            self.disconnect(one, other)

    def disconnect(self, one: PeerId, other: PeerId) -> None:
        """End a connection for both sides, if there is one."""
        for here, there in ((one, other), (other, one)):
            host = self._hosts.get(here)
            if host is not None:
                host.on_disconnected(there)

    def send(
        self,
        source: PeerId,
        target: PeerId,
        deliver: Callable[[NetworkEnd], None],
        *,
        num_bytes: int = 0,
    ) -> None:
        """Carry one message over a connection, in order; it is lost with the connection."""
        self.num_messages += 1
        self.bytes_of[source] += num_bytes
        if not self.reaches(source, target) or self.rng.random() < self.links.loss:
            return
        late = 1 + self.rng.random() * self.links.jitter
        sender, receiver = self._hosts.get(source), self._hosts.get(target)
        link = None if sender is None else sender.link(target)
        if link is None or receiver is None:
            return
        link.last_due = due = max(self.time() + link.latency_s * late, link.last_due)

        def arrive() -> None:
            # A removed host has no connections; a newer one under its id is a different host.
            if receiver.is_connected(source):
                deliver(receiver)

        self.call_at(due, arrive)
