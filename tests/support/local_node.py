"""A whole node behind its socket, whose gossip goes into a list.

    async with open_local_node(tmp_path) as node:
        client = node.client()
        await trio.to_thread.run_sync(client.ensure)

`NodeThread` runs it in a thread, for tests of the trainer, which is synchronous.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal

from shoal_ipc import messages as m
from shoal_ipc.client import SOCKET_NAME, NodeClient
from shoal_lab.simulation.network import SimulatedNetwork
from shoal_lab.simulation.parts import SimulatedEnd
from shoal_p2p.gossip.interface import Gossip, PeerScorer
from shoal_p2p.gossip.sequence_numbers import SequenceNumbers
from shoal_p2p.gossip.settings import GossipSettings
from shoal_p2p.intake.ledger import PublisherLedger
from shoal_p2p.ipc.inspector import View
from shoal_p2p.live_node import NodeComponents
from shoal_p2p.net.host import HostSettings
from shoal_p2p.net.identity import Identity
from shoal_p2p.node import Node
from shoal_p2p.parts import Dependencies
from shoal_p2p.peers.outside import wall_ms
from shoal_p2p.reputation.reputation import Reputation
from shoal_p2p.rollouts.outbox import Accepted
from shoal_p2p.store.store import Store
from shoal_tasks.run_memory import save_manifest
from shoal_wire.manifest import Manifest
from shoal_wire.types import RolloutGroup, SignedBatch
from tests.support import factories as make
from tests.support.doubles.gossip import FakeGossip
from tests.support.doubles.worker import InstantWorker
from tests.support.peers import quiet_settings, run_peer

__all__ = ["LocalNode", "NodeThread", "open_local_node", "wall_ms"]


class _End(SimulatedEnd):
    """A network with one node, whose gossip goes into a list."""

    def __init__(self, identity: Identity, settings: HostSettings, listener: FakeGossip) -> None:
        super().__init__(
            SimulatedNetwork(random.Random(0)),
            identity,
            settings,
            rng=random.Random(0),
            first_sequence=1,
        )
        self._listener = listener
        # No peer is connected here, but every deliverer still has its own network.
        self.host.source_of = str  # type: ignore[method-assign,assignment]

    def gossip(
        self, watch: PeerScorer, settings: GossipSettings, numbers: SequenceNumbers
    ) -> Gossip:
        """Gossip that goes into the list."""
        gossip = super().gossip(watch, settings, numbers)
        gossip.publish = self._listener.publish  # type: ignore[method-assign]
        return gossip


async def _echo(options: Mapping[str, Any]) -> dict[str, Any]:
    return {"options": dict(options)}


class LocalNode:
    """One start of a node over `data_dir`. Create another to restart it."""

    def __init__(
        self,
        data_dir: Path,
        *,
        identity: Identity,
        manifest: Manifest,
        gossip: FakeGossip | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.identity = identity
        self.manifest = manifest
        self.gossip = gossip or FakeGossip()
        self.live: NodeComponents
        """The node, once it runs."""

    def __getattr__(self, name: str) -> Any:
        if name in ("store", "buffer", "recent", "link", "pool", "outbox"):
            return getattr(self.live, name)
        raise AttributeError(name)

    @property
    def ledger(self) -> PublisherLedger:
        """The ledger of publishers' sequence numbers."""
        return self.live.peer.ledger

    @property
    def reputation(self) -> Reputation:
        """The reputation of publishers."""
        return self.live.peer.guard.reputation

    @property
    def views(self) -> dict[str, View]:
        """The views that the socket answers with; a test may add some."""
        views: dict[str, View] = self.live.service._views  # type: ignore[assignment]
        return views

    @property
    def socket_path(self) -> Path:
        """The address at which it listens."""
        return self.data_dir / SOCKET_NAME

    def client(self, role: m.Role = m.Role.TRAINER, *, timeout_seconds: float = 20.0) -> NodeClient:
        """Return a blocking client of its socket."""
        return NodeClient(self.socket_path, role=role, timeout_seconds=timeout_seconds)

    async def receive(self, signed: SignedBatch) -> None:
        """Store a batch of another node as if it had been validated, and write it to disk."""
        # Over its own connection, as publishers deliver: unknown peers share quotas by connection.
        delivered_by = signed.delivered_by or signed.publisher
        await self.pool.keep_all([replace(signed, delivered_by=delivered_by)])
        await self.pool.write_all()

    async def receive_groups(self, *numbers: int) -> None:
        """Store a batch of a new publisher, with one group for each of these tasks."""
        await self.receive(make.Author(self.manifest, now_ms=wall_ms()).sign(*numbers))

    async def share(self, *groups: RolloutGroup, key: bytes = b"key") -> Accepted:
        """Publish a batch of the node itself, and store its groups as the service does."""
        own: Accepted = await self.outbox.accept(make.publish(groups, key=key))
        self.pool.keep_own(own.signed)
        return own

    async def withdraw(self, first: SignedBatch, second: SignedBatch) -> None:
        """Record that a publisher signed both under one sequence number."""
        await self.pool.withdraw(make.equivocation(first, second), second.envelope)


@asynccontextmanager
async def open_local_node(
    data_dir: Path,
    *,
    identity: Identity | None = None,
    manifest: Manifest | None = None,
    gossip: FakeGossip | None = None,
) -> AsyncIterator[LocalNode]:
    """Run a local node in this loop; leaving the context is as sudden as a kill."""
    node = LocalNode(
        data_dir,
        identity=identity or make.fresh_identity(),
        manifest=manifest or make.swarm(),
        gossip=gossip,
    )
    save_manifest(data_dir, node.manifest)
    settings = quiet_settings(
        data_dir,
        listen=("/ip4/127.0.0.1/tcp/4001",),
        buffer_bytes=1 << 31,  # room for 16,384 groups of one publisher
        archive_bytes=0,
        seed=1,
    )
    parts = Dependencies(
        network=lambda identity, how: _End(identity, how, node.gossip),
        worker=lambda _families, _patience_s: InstantWorker(),
        # So that tests know the sequence numbers.
        store=lambda path, **how: Store(path, **{**how, "first_sequence": 1}),
    )
    async with run_peer(Node, settings, identity=node.identity, parts=parts, kill=True) as live:
        node.live = live
        node.views["echo"] = _echo
        yield node


class NodeThread:
    """A local node in its own thread. Use it as a context; `restart` is a kill and a start."""

    def __init__(self, data_dir: Path, *, manifest: Manifest | None = None) -> None:
        self._data_dir = data_dir
        self._manifest = manifest or make.swarm()
        self._identity = make.fresh_identity()
        self._life = ExitStack()
        self._portal: BlockingPortal
        self.node: LocalNode
        self.published: list[bytes] = []
        """Published envelopes, over all starts."""

    def __enter__(self) -> NodeThread:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Kill."""
        self.kill()

    def start(self) -> None:
        """Start a node over the same directory and wait until it serves."""
        with ExitStack() as life:
            self._portal = life.enter_context(start_blocking_portal("trio"))
            self.node = life.enter_context(self._portal.wrap_async_context_manager(self._run()))
            self._life = life.pop_all()

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[LocalNode]:
        opened = open_local_node(self._data_dir, identity=self._identity, manifest=self._manifest)
        async with opened as node:
            yield node
        # Only from here on is nothing more published.
        self.published.extend(data for _, data in node.gossip.published)

    def kill(self) -> None:
        """End the node if it runs; everything that was only in memory is lost."""
        self._life.close()

    def restart(self) -> None:
        """Kill and start."""
        self.kill()
        self.start()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function in the node's loop and return its result."""
        return self._portal.call(function, *arguments)
