"""Real libp2p nodes on loopback, many in one Trio loop.

async with open_test_swarm(tmp_path, 3) as nodes:
    await join(nodes, "/t")
    await nodes[0].gossip.publish("/t", b"hello")
    await until(lambda: nodes[1].received("/t"))
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import trio
from libp2p.custom_types import TProtocol
from libp2p.identity.identify.identify import ID as IDENTIFY_ID
from libp2p.identity.identify.pb.identify_pb2 import Identify
from libp2p.peer.id import ID
from libp2p.utils.varint import read_varint_prefixed_bytes_limited

from shoal_p2p.gossip.gossip import Libp2pGossip
from shoal_p2p.gossip.settings import GossipSettings
from shoal_p2p.net.host import HostSettings, Libp2pHost
from shoal_p2p.net.identity import Identity, load_or_create_identity
from shoal_p2p.net.swarm import SwarmSettings
from shoal_wire.types import PeerId
from shoal_wire.verdict import ACCEPT, Verdict
from tests.support.doubles.gossip import RecordingWatch
from tests.support.doubles.identities import fresh_identity

LOOPBACK = "/ip4/127.0.0.1/tcp/0"
PATIENCE_S = 20.0
"""Maximum wait of a test for something that must happen; not a measurement."""


async def until(condition: Callable[[], object], *, patience_s: float = PATIENCE_S) -> None:
    """Wait until `condition` holds. Raises trio.TooSlowError after the time limit."""
    with trio.fail_after(patience_s):
        while not condition():  # noqa: ASYNC110 - the state is in libraries that signal nothing
            await trio.sleep(0.01)


async def echo(_peer_id: PeerId, request: bytes) -> bytes:
    """Answer a request with its own bytes."""
    await trio.lowlevel.checkpoint()
    return request


@dataclass(slots=True, kw_only=True)
class Delivery:
    """One message as a validator saw it."""

    data: bytes
    author: PeerId
    forwarder: PeerId


@dataclass(slots=True, kw_only=True)
class TestNode:
    """A running host with gossip that accepts and records everything."""

    __test__ = False

    host: Libp2pHost
    gossip: Libp2pGossip
    watch: RecordingWatch
    deliveries: dict[str, list[Delivery]] = field(default_factory=dict)
    judge: Verdict = ACCEPT
    """The verdict of the recording validator."""

    @property
    def verdicts(self) -> list[tuple[PeerId, PeerId | None, Verdict]]:
        """Verdicts reported by gossip: forwarder, author, verdict."""
        return self.watch.verdicts

    @property
    def peer_id(self) -> PeerId:
        """The node's peer id."""
        return self.host.peer_id

    @property
    def address(self) -> str:
        """One full multiaddress of the node."""
        return self.host.listen_addrs()[0]

    async def subscribe(self, topic: str) -> None:
        """Join `topic` with the recording validator."""
        log = self.deliveries.setdefault(topic, [])

        async def record(data: bytes, author: PeerId, forwarder: PeerId) -> Verdict:
            log.append(Delivery(data=data, author=author, forwarder=forwarder))
            return self.judge

        await self.gossip.subscribe(topic, record)

    def received(self, topic: str) -> list[bytes]:
        """Return the data delivered so far, in order."""
        return [delivery.data for delivery in self.deliveries.get(topic, [])]


@asynccontextmanager
async def running(host: Libp2pHost) -> AsyncIterator[Libp2pHost]:
    """Run a host; it is closed in order at the end."""
    async with trio.open_nursery() as nursery:
        await nursery.start(host.run)
        try:
            yield host
        finally:
            with trio.CancelScope(shield=True):
                await host.close()


@asynccontextmanager
async def open_test_host(
    tmp_path: Path | None = None,
    *,
    identity: Identity | None = None,
    listen: str = LOOPBACK,
    swarm: SwarmSettings | None = None,
    agent: str = "",
) -> AsyncIterator[Libp2pHost]:
    """Run a host; its identity is stored in `tmp_path`, if given."""
    if identity is None:
        identity = (
            load_or_create_identity(tmp_path / "identity.key") if tmp_path else fresh_identity()
        )
    settings = HostSettings(listen=(listen,), swarm=swarm or SwarmSettings(), agent=agent)
    async with running(Libp2pHost(identity=identity, settings=settings)) as host:
        yield host


@asynccontextmanager
async def open_test_node(
    *,
    identity: Identity | None = None,
    listen: str = LOOPBACK,
    settings: GossipSettings | None = None,
    swarm: SwarmSettings | None = None,
) -> AsyncIterator[TestNode]:
    """Run a host with gossip."""
    host = Libp2pHost(
        identity=identity or fresh_identity(),
        settings=HostSettings(listen=(listen,), swarm=swarm or SwarmSettings()),
    )
    watch = RecordingWatch()
    gossip = Libp2pGossip(host=host, settings=settings, scorer=watch)
    async with running(host):
        yield TestNode(host=host, gossip=gossip, watch=watch)


@asynccontextmanager
async def open_test_swarm(
    count: int, *, settings: GossipSettings | None = None
) -> AsyncIterator[list[TestNode]]:
    """Run `count` nodes, not yet connected."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(open_test_node(settings=settings)) for _ in range(count)
        ]


async def connect_all(nodes: Iterable[TestNode]) -> None:
    """Connect every node to every other."""
    for one, other in itertools.combinations(nodes, 2):
        await other.host.dial(one.address)


async def join(nodes: list[TestNode], topic: str) -> None:
    """Connect all nodes, subscribe all to `topic`, wait until every node is in every mesh."""
    await connect_all(nodes)
    for node in nodes:
        await node.subscribe(topic)
    await until(lambda: all(is_meshed(node, nodes, topic) for node in nodes))


def is_meshed(node: TestNode, nodes: list[TestNode], topic: str) -> bool:
    """Return whether the mesh of `node` contains all other `nodes`."""
    members = {member.peer_id for member in node.gossip.mesh().get(topic, [])}
    return {other.peer_id for other in nodes} - {node.peer_id} <= members


async def protocols_of(address: str) -> set[str]:
    """Connect to a peer and return the protocols that it reports."""
    async with open_test_host() as host:
        peer = ID.from_base58(await host.dial(address))
        library = cast("Any", host.libp2p_host)
        stream = await library.new_stream(peer, [TProtocol(IDENTIFY_ID)])
        report = Identify.FromString(await read_varint_prefixed_bytes_limited(stream, 1 << 16))
        return set(report.protocols)
