"""The same network twice: libp2p on loopback, and `shoal_lab.simulation` in virtual time.

    async with open_world(RealWorld) as world:
        alice, bob = await world.talkers(2)
        await alice.dial(bob)
        await until(lambda: alice.host.is_connected(bob.peer_id))

Everything that a world opens ends with it.
"""

from __future__ import annotations

import itertools
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import trio
from libp2p.pubsub.pb import rpc_pb2

from shoal_lab.simulation.gossip import SimulatedGossip
from shoal_lab.simulation.host import SimulatedHost
from shoal_lab.simulation.message import forged, say
from shoal_lab.simulation.network import SimulatedNetwork
from shoal_p2p.gossip.gossip import Libp2pGossip
from shoal_p2p.gossip.interface import Gossip, PeerScorer
from shoal_p2p.gossip.rpc import Rpc
from shoal_p2p.gossip.settings import GossipSettings, MeshSettings
from shoal_p2p.net.host import HostSettings, Libp2pHost
from shoal_p2p.net.identity import Identity
from shoal_p2p.net.interface import Host
from shoal_wire.types import PeerId
from tests.conformance.talkers import Talker, connect
from tests.support.network import HostilePeer, at_port, open_relay, signed_by
from tests.support.nodes import LOOPBACK, RecordingWatch, fresh_identity

BEAT_S = 0.05
QUICK = GossipSettings(mesh=MeshSettings(heartbeat_s=BEAT_S))
"""IHAVE is sent twenty times a second, so that a test can wait for its absence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cable:
    """A link to a host that can be cut without notice to either end."""

    address: str
    pull: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Saying:
    """A message of any author, sent by a peer that follows no rules."""

    author: Identity
    number: int
    topic: str
    data: bytes
    forged: bool = False


class World(ABC):
    """Hosts on one network."""

    rest_s: float
    """Longer than a message is advertised."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery

    @abstractmethod
    def make_host(self, *, identity: Identity | None = None, listen: str | None = None) -> Host:
        """Return a host that does not run yet, by default with its own address."""

    @abstractmethod
    def make_gossip(self, host: Host, watch: PeerScorer, settings: GossipSettings) -> Gossip:
        """Return gossip for a host that does not run yet."""

    @abstractmethod
    async def cable(self, host: Host) -> Cable:
        """Put a cable in front of a running host."""

    @abstractmethod
    async def send(self, sender: Host, target: PeerId, saying: Saying) -> None:
        """Let a host without gossip send `saying` to a peer that it is connected to."""

    async def start(self, host: Host) -> None:
        """Run a host until the world ends."""
        await self._nursery.start(host.run)

    async def rest(self) -> None:
        """Wait long enough for a test that nothing arrives."""
        await trio.sleep(self.rest_s)

    async def host(self) -> Host:
        """Run a host."""
        host = self.make_host()
        await self.start(host)
        return host

    async def hosts(self, count: int) -> list[Host]:
        """Run `count` hosts."""
        return [await self.host() for _ in range(count)]

    async def pair(self) -> list[Host]:
        """Run two hosts; the first has dialled the second."""
        one, two = await self.hosts(2)
        await connect(one, two)
        return [one, two]

    async def talker(self, settings: GossipSettings = QUICK) -> Talker:
        """Run a host with gossip."""
        host, watch = self.make_host(), RecordingWatch()
        gossip = self.make_gossip(host, watch, settings)
        await self.start(host)
        return Talker(host=host, gossip=gossip, watch=watch)

    async def talkers(self, count: int, settings: GossipSettings = QUICK) -> list[Talker]:
        """Run `count` hosts with gossip, all connected to each other."""
        talkers = [await self.talker(settings) for _ in range(count)]
        for one, other in itertools.combinations(talkers, 2):
            await one.dial(other)
        return talkers

    async def chain(self, settings: GossipSettings = QUICK) -> list[Talker]:
        """Run three hosts in a row: the first and the last are connected only to the middle one."""
        first, middle, last = [await self.talker(settings) for _ in range(3)]
        await first.dial(middle)
        await last.dial(middle)
        return [first, middle, last]


class RealWorld(World):
    """libp2p over loopback."""

    rest_s = 4 * BEAT_S

    def make_host(self, *, identity: Identity | None = None, listen: str | None = None) -> Host:
        """Return a libp2p host."""
        settings = HostSettings(listen=(LOOPBACK if listen is None else listen,))
        return Libp2pHost(identity=identity or fresh_identity(), settings=settings)

    def make_gossip(self, host: Any, watch: PeerScorer, settings: GossipSettings) -> Gossip:
        """Return gossipsub."""
        return Libp2pGossip(host=host, scorer=watch, settings=settings)

    async def cable(self, host: Any) -> Cable:
        """Put a TCP relay in front of `host`, which can stop forwarding."""
        relay = await self._nursery.start(_serve_relay, host)
        return Cable(address=at_port(host, relay.port), pull=relay.pull_cable)

    async def send(self, sender: Any, target: PeerId, saying: Saying) -> None:
        """Write an RPC to a pubsub stream."""
        message = signed_by(saying.author, saying.topic, saying.data, saying.number)
        if saying.forged:
            message.signature = bytes(64)
        await HostilePeer(sender, target).send_rpc(rpc_pb2.RPC(publish=[message]))


async def _serve_relay(host: Libp2pHost, *, task_status: Any) -> None:
    async with open_relay(host) as relay:
        task_status.started(relay)
        await trio.sleep_forever()


class SimulatedWorld(World):
    """Hosts in memory, for tests marked `virtual_time`."""

    rest_s = 40 * BEAT_S

    def __init__(self, nursery: trio.Nursery) -> None:
        super().__init__(nursery)
        self._network = SimulatedNetwork(random.Random(0))
        self._numbers = itertools.count(1)
        nursery.start_soon(self._network.run)

    def make_host(self, *, identity: Identity | None = None, listen: str | None = None) -> Host:
        """Return a simulated host."""
        if listen is None:
            listen = f"/ip4/10.0.0.{next(self._numbers)}/tcp/4001"
        return SimulatedHost(self._network, identity or fresh_identity(), listen)

    def make_gossip(self, host: Any, watch: PeerScorer, settings: GossipSettings) -> Gossip:
        """Return simulated gossip."""
        rng = random.Random(host.peer_id)
        return SimulatedGossip(host, rng, scorer=watch, settings=settings)

    async def cable(self, host: Host) -> Cable:
        """Return the only link to `host`; cutting it separates the host from all others."""
        alone = host.peer_id

        def pull() -> None:
            self._network.partition(lambda peer_id: int(peer_id == alone))

        return Cable(address=host.listen_addrs()[0], pull=pull)

    async def send(self, sender: Host, target: PeerId, saying: Saying) -> None:
        """Put a message on the network."""
        await trio.lowlevel.checkpoint()
        message = say(saying.author.peer_id, saying.number, saying.topic, saying.data)
        rpc, source = Rpc(messages=[forged(message) if saying.forged else message]), sender.peer_id
        self._network.send(source, target, lambda host: host.gossip.take(rpc, source))


@asynccontextmanager
async def open_world(kind: type[World]) -> AsyncIterator[World]:
    """Create a world, and end everything that it runs."""
    async with trio.open_nursery() as nursery:
        yield kind(nursery)
        nursery.cancel_scope.cancel()
