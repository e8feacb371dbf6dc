"""The node: wires the components, and nothing else knows them all.

    store ─▶ trainer child (loading) ─▶ core (host, discovery, manifest) ─▶ pool
        ─▶ join (worker, intake, topics) ─▶ outbox ─▶ socket ─▶ … ─▶ shut down

One root nursery. The end of the trainer's rounds, a signal, or another manifest ends the node;
everything else it survives.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import trio

from p2p.buffer.replay import ReplayBuffer
from p2p.buffer.types import BufferLimits
from p2p.fetch.exchange import ExchangeSettings, RolloutExchange
from p2p.intake.ledger import Equivocation
from p2p.ipc.judge_link import JudgeLink
from p2p.ipc.node_views import NodeViews
from p2p.ipc.server import SOCKET_NAME, IpcServer
from p2p.ipc.service import Service, TrainerLink
from p2p.net.identity import Identity
from p2p.peer import PeerCore, wall_ms
from p2p.peers.manifest_source import Found
from p2p.rollouts.outbox import Outbox
from p2p.rollouts.pool import RolloutPool
from p2p.rollouts.recent import RecentRollouts
from p2p.shards.plan import DemandMeter, demand_of
from p2p.store.archive import ARCHIVE_FILE, Archive, Archived
from p2p.store.store import Store
from p2p.trainer_child import ChildState, TrainerChild
from shoal_settings.loader import to_flags
from shoal_settings.schema import Settings
from shoal_wire.types import SignedBatch

log = logging.getLogger(__name__)

STORE_FILE = "node.db"
_FLUSH_SECONDS = 5.0
_SOLO_SECONDS = 15.0


class NodeEnd(StrEnum):
    """Why a node has ended."""

    FINISHED = "finished"
    """The trainer completed its rounds."""
    STOPPED = "stopped"
    """It was told to."""
    MISCONFIGURED = "misconfigured"
    """The trainer refused its settings."""
    MANIFEST_CHANGED = "manifest_changed"
    """A bootstrap turned out to be of another swarm; start again with its manifest."""


class Node:
    """One node, from start to end. Make a new one to start again."""

    def __init__(
        self,
        *,
        identity: Identity,
        settings: Settings,
        on_ready: Callable[[Node], None] = lambda _node: None,
        exchange: ExchangeSettings | None = None,
    ) -> None:
        self._identity = identity
        self._exchange_settings = exchange
        self._settings = settings
        self._on_ready = on_ready
        self._end = NodeEnd.STOPPED
        self._stop = trio.Event()
        data_dir = settings.data_dir
        self.core = PeerCore(identity=identity, settings=settings, data_dir=data_dir)
        self.store = Store(
            data_dir / STORE_FILE,
            peer_id=identity.peer_id,
            wall_ms=wall_ms,
            # If the database is lost and the key is not, numbers must not repeat.
            first_sequence=wall_ms(),
        )
        self.link = TrainerLink()
        self.last_status: dict[str, Any] = {}
        """The status at the end, once the trainer has stopped."""
        self.recent = RecentRollouts()
        self.archive = Archive(data_dir / ARCHIVE_FILE, max_bytes=settings.archive_bytes)
        self.buffer = ReplayBuffer(_limits(settings), random.Random(settings.seed or None))
        self._demand = DemandMeter(external=settings.external, oversample=settings.oversample)
        self.child = None if settings.no_trainer else TrainerChild(to_flags(settings, "trainer"))
        self._trainer_scope = trio.CancelScope()
        self._trainer_ended = trio.Event()
        self.judge: JudgeLink | None = None
        self.exchange: RolloutExchange
        self.pool: RolloutPool
        self.outbox: Outbox
        self.views: NodeViews

    def stop(self) -> None:
        """Ask the node to end; it closes in order and returns."""
        self._stop.set()

    async def run(self) -> NodeEnd:
        """Run until the end; return why.

        Raises:
            ListenError, ManifestError, StoreError, SocketPathError: it cannot start.
        """
        async with trio.open_nursery() as nursery:
            await nursery.start(self.store.run)
            if self.child is not None:
                # First of all: it takes seconds to import torch, and waits for the socket.
                nursery.start_soon(self._run_trainer, self.child)
            found = await self.core.connect(nursery)
            self._make_parts()
            await self.pool.restore(self.core.ledger)
            await nursery.start(self.pool.run)
            self.exchange.serve()
            await self.core.join(
                nursery,
                keep=self.pool.keep_external,
                accuse=self._accuse,
                listener=self.exchange,
                wanted_per_s=self._wanted_per_s,
            )
            await nursery.start(self.exchange.run)
            await nursery.start(self.outbox.run)
            if self.judge is not None:
                await nursery.start(self.judge.run)
            await nursery.start(self._socket().run)
            await nursery.start(self.archive.run, self.core.manifest)
            nursery.start_soon(self._watch_manifest, found)
            nursery.start_soon(self._say_who_is_there)
            self._on_ready(self)
            await self._stop.wait()
            await self._shut_down()
            nursery.cancel_scope.cancel()
        return self._end

    def _make_parts(self) -> None:
        core, settings = self.core, self._settings
        self.exchange = RolloutExchange(
            host=core.host,
            manifest=core.manifest,
            ledger=core.ledger,
            store=self.store,
            intake=lambda: core.intake,
            shards=lambda: frozenset(core.shards.shards),
            wanted_groups=self._room,
            report=core.on_verdict,
            wall_ms=wall_ms,
            settings=self._exchange_settings,
        )
        self.pool = RolloutPool(
            buffer=self.buffer,
            store=self.store,
            me=core.peer_id,
            manifest=core.manifest,
            max_age_seconds=settings.buffer_seconds,
            max_store_bytes=2 * settings.buffer_bytes,
            wall_ms=wall_ms,
            on_group=lambda group: self.recent.add(group, received_ms=wall_ms()),
            reputation=core.guard.reputation,
            draws=settings.draws,
            on_kept=self._kept,
            on_withdrawn=self.exchange.withdrawn,
        )
        self.outbox = Outbox(
            manifest=core.manifest,
            peer_id=core.peer_id,
            signer=self._identity,
            store=self.store,
            gossip=core.gossip,
            wall_ms=wall_ms,
        )
        if settings.judge != "none":
            self.judge = JudgeLink(host=core.host, manifest=core.manifest, address=settings.judge)
        self.views = NodeViews(
            core,
            outbox=self.outbox,
            pool=self.pool,
            recent=self.recent,
            link=self.link,
            child=self.child,
            exchange=self.exchange,
            judge=self.judge,
        )

    def _kept(self, signed: SignedBatch, received_ms: int) -> None:
        """A batch is on disk: others may ask for it, and the archive keeps it."""
        self.exchange.kept(signed, received_ms)
        self.archive.keep(
            Archived(
                batch_id=signed.batch_id,
                own=signed.publisher == self.core.peer_id,
                received_ms=received_ms,
                envelope=signed.envelope,
            )
        )

    def _room(self) -> int:
        """Return how many groups of others the buffer could still take."""
        stats = self.buffer.stats(trio.current_time())
        return stats.capacity_groups - stats.groups

    def _wanted_per_s(self) -> float:
        """Return how many groups of others the trainer draws a second."""
        return demand_of(self._demand, self.link.status, trio.current_time())

    def _socket(self) -> IpcServer:
        service = Service(
            me=self.core.peer_id,
            manifest=self.core.manifest,
            pool=self.pool,
            outbox=self.outbox,
            recent=self.recent,
            link=self.link,
            views=self.views.by_name(),
            control=self.core.guard.control,
            judge=self.judge,
        )
        return IpcServer(self._settings.data_dir / SOCKET_NAME, service)

    async def _run_trainer(self, child: TrainerChild) -> None:
        """Run the trainer until it ends for good, which may end the node, or is stopped."""
        try:
            with self._trainer_scope:
                await child.run()
            if child.state is ChildState.MISCONFIGURED:
                self._end = NodeEnd.MISCONFIGURED
                self._stop.set()
            elif child.state is ChildState.FINISHED and not self._settings.stay:
                self._end = NodeEnd.FINISHED
                self._stop.set()
        finally:
            self._trainer_ended.set()

    async def _shut_down(self) -> None:
        """The trainer writes its last checkpoint; what is unsent goes out; then the host closes."""
        if self.child is not None:
            self._trainer_scope.cancel()
            await self._trainer_ended.wait()
        # Taken while the peers are still there: these are the numbers people compare.
        self.last_status = await self.views.status({})
        with trio.move_on_after(_FLUSH_SECONDS):
            if self.core.host.connected_peers():
                await self.outbox.drained()
                await self.exchange.handed_over(self.outbox.announced)
        await self.core.host.close()

    async def _watch_manifest(self, found: Found) -> None:
        manifest = await self.core.source.watch(found)
        log.warning(
            "the bootstrap's swarm is %s (%s): joining it", manifest.swarm_name, manifest.short_name
        )
        self._end = NodeEnd.MANIFEST_CHANGED
        self._stop.set()

    async def _say_who_is_there(self) -> None:
        """Say when the node trains alone and when it does no longer."""
        alone: bool | None = None
        await trio.sleep(min(1.0, _SOLO_SECONDS))
        while True:
            solo = self.core.discovery.solo
            if solo and alone is not True:
                when = "yet" if alone is None else "any more"
                log.info("nobody else is here %s: training alone, and looking for peers", when)
            elif not solo and alone is not False:
                log.info("connected to %d peer(s)", len(self.core.host.connected_peers()))
            alone = solo
            await trio.sleep(1.0)

    async def _accuse(self, pair: Equivocation, envelope: bytes) -> None:
        """Withdraw the first of two batches with one number, and keep both as evidence."""
        await self.pool.withdraw(pair, envelope)


def _limits(settings: Settings) -> BufferLimits:
    return BufferLimits(
        max_groups=settings.buffer_groups,
        max_bytes=settings.buffer_bytes,
        max_age_seconds=settings.buffer_seconds,
        max_groups_per_publisher=min(settings.publisher_groups, settings.buffer_groups),
        max_bytes_per_publisher=max(1, settings.buffer_bytes // 4),
        own_max_groups=settings.buffer_groups,
        own_max_bytes=settings.buffer_bytes,
    )
