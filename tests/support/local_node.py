"""The part of a node behind its socket, for tests: all real but gossip, which is a list.

async with open_local_node(tmp_path) as node:
    client = node.client()
    await trio.to_thread.run_sync(client.ensure)

`NodeThread` runs the same in a thread, for tests of the trainer, which is synchronous.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import trio

from p2p.buffer.replay import ReplayBuffer
from p2p.buffer.types import BufferLimits
from p2p.intake.ledger import PublisherLedger
from p2p.ipc.inspector import View
from p2p.ipc.server import SOCKET_NAME, IpcServer
from p2p.ipc.service import Service, TrainerLink
from p2p.net.identity import Identity
from p2p.rollouts.outbox import Outbox
from p2p.rollouts.pool import RolloutPool
from p2p.rollouts.recent import RecentRollouts
from p2p.standing.reputation import Reputation
from p2p.store.store import Store
from shoal_ipc import messages as m
from shoal_ipc.client import NodeClient
from shoal_wire.manifest import Manifest
from shoal_wire.types import SignedBatch
from tests.support import factories as make

T = TypeVar("T")

_START_SECONDS = 30.0


def wall_ms() -> int:
    """Return the wall clock in milliseconds."""
    return int(time.time() * 1000)


class FakeGossip:
    """Somebody to publish to: `peers` hear it, and what they heard is kept in order."""

    def __init__(self, peers: int = 1) -> None:
        self.peers = peers
        self.published: list[tuple[str, bytes]] = []

    async def publish(self, topic: str, data: bytes) -> int:
        """Keep what is published, if anybody hears it."""
        await trio.lowlevel.checkpoint()
        if self.peers:
            self.published.append((topic, data))
        return self.peers


def limits(**changes: float) -> BufferLimits:
    """Return roomy limits of a buffer."""
    values: dict[str, float] = {
        "max_groups": 10_000,
        "max_bytes": 1 << 26,
        "max_age_seconds": 3600.0,
        "max_groups_per_publisher": 10_000,
        "max_bytes_per_publisher": 1 << 26,
        "own_max_groups": 10_000,
        "own_max_bytes": 1 << 26,
    }
    return BufferLimits(**{**values, **changes})  # type: ignore[arg-type]


async def _echo(options: Mapping[str, Any]) -> dict[str, Any]:
    return {"options": dict(options)}


class LocalNode:
    """One start of a node over `data_dir`. Make another to start it again."""

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
        self.store = Store(data_dir / "node.db", peer_id=identity.peer_id, wall_ms=wall_ms)
        self.buffer = ReplayBuffer(limits(), random.Random(0))
        self.recent = RecentRollouts()
        self.link = TrainerLink()
        self.ledger = PublisherLedger()
        self.views: dict[str, View] = {"echo": _echo}
        self.reputation = Reputation()
        self.pool = RolloutPool(
            buffer=self.buffer,
            store=self.store,
            me=identity.peer_id,
            manifest=manifest,
            max_age_seconds=3600.0,
            max_store_bytes=1 << 30,
            wall_ms=wall_ms,
            reputation=self.reputation,
            on_group=self.recent.add,
        )
        self.outbox = Outbox(
            manifest=manifest,
            peer_id=identity.peer_id,
            signer=identity,
            store=self.store,
            gossip=self.gossip,
            wall_ms=wall_ms,
        )

    @property
    def socket_path(self) -> Path:
        """Where it listens."""
        return self.data_dir / SOCKET_NAME

    def client(self, role: m.Role = m.Role.TRAINER, *, timeout_seconds: float = 20.0) -> NodeClient:
        """Return a blocking client of its socket."""
        return NodeClient(self.socket_path, role=role, timeout_seconds=timeout_seconds)

    async def run(self, *, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.store.run)
            await self.pool.restore(self.ledger)
            await nursery.start(self.outbox.run)
            service = Service(
                me=self.identity.peer_id,
                manifest=self.manifest,
                pool=self.pool,
                outbox=self.outbox,
                recent=self.recent,
                link=self.link,
                views=self.views,
            )
            await nursery.start(IpcServer(self.socket_path, service).run)
            task_status.started()

    async def receive(self, signed: SignedBatch) -> None:
        """Take in a batch of another node as if it had been validated."""
        await self.pool.keep_external(signed)


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
    async with trio.open_nursery() as nursery:
        await nursery.start(node.run)
        yield node
        nursery.cancel_scope.cancel()


class NodeThread:
    """A local node in a thread of its own. Use as a context; `restart` is a kill and a start."""

    def __init__(self, data_dir: Path, *, manifest: Manifest | None = None) -> None:
        self._data_dir = data_dir
        self._manifest = manifest or make.swarm()
        self._identity = make.fresh_identity()
        self._thread: threading.Thread | None = None
        self._token: trio.lowlevel.TrioToken
        self._scope: trio.CancelScope
        self.node: LocalNode
        self.published: list[bytes] = []
        """Envelopes that went out, over all starts."""

    def __enter__(self) -> NodeThread:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Kill."""
        self.kill()

    def start(self) -> None:
        """Start a node over the same directory and wait until it serves."""
        ready = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._main, ready), daemon=True)
        self._thread.start()
        if not ready.wait(_START_SECONDS):
            raise AssertionError("the node did not start")

    def kill(self) -> None:
        """End the node; what was only in memory is lost."""
        if self._thread is not None:
            self._token.run_sync_soon(self._scope.cancel)
            self._thread.join(_START_SECONDS)
            self._thread = None
            self.published += [data for _, data in self.node.gossip.published]

    def restart(self) -> None:
        """Kill and start."""
        self.kill()
        self.start()

    def call(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Run an async function in the node's loop and return its result."""
        return trio.from_thread.run(function, *arguments, trio_token=self._token)

    async def _main(self, ready: threading.Event) -> None:
        node = LocalNode(self._data_dir, identity=self._identity, manifest=self._manifest)
        with trio.CancelScope() as self._scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(node.run)
                self._token = trio.lowlevel.current_trio_token()
                self.node = node
                ready.set()
