"""The components of a node that has joined its swarm, and all of their wiring.

member (intake, shards) ─▶ pool ─▶ buffer, store ─▶ service ─▶ socket ─▶ trainer
      ▲ gossip      ▲ exchange (fetch)                  │ publish
      └─────────────┴──── outbox ◀──────────────────────┘
"""

from __future__ import annotations

import random
from typing import Any

import trio

from shoal_base.waits import HOUR_S
from shoal_ipc.answers.form import to_json
from shoal_p2p.buffer.replay import ReplayBuffer
from shoal_p2p.buffer.types import BufferLimits
from shoal_p2p.events import BatchStored, GroupLeased, GroupsStored, GroupVerified, RoundTrained
from shoal_p2p.fetch.backfill import BufferSpace
from shoal_p2p.fetch.client import RolloutClient
from shoal_p2p.fetch.context import FetchContext
from shoal_p2p.fetch.exchange import FetchBook, RolloutExchange
from shoal_p2p.intake.intake import Receivers
from shoal_p2p.intake.ledger import Equivocation
from shoal_p2p.ipc.inspector import views_of
from shoal_p2p.ipc.judge_link import JudgeLink
from shoal_p2p.ipc.node_views import NodeViews
from shoal_p2p.ipc.service import Service, TrainerLink
from shoal_p2p.node_tasks import NodeTasks
from shoal_p2p.peer import PeerNode
from shoal_p2p.peers.met_networks import MetNetworks
from shoal_p2p.rollouts.ledger_file import LEDGER, keep_ledger
from shoal_p2p.rollouts.outbox import Outbox
from shoal_p2p.rollouts.own_numbers import OwnNumbers
from shoal_p2p.rollouts.pool import PoolSettings, RolloutPool
from shoal_p2p.rollouts.recent import RecentRollouts
from shoal_p2p.rollouts.training_stats import TrainingStats
from shoal_p2p.shards.plan import DemandMeter, demand_of
from shoal_p2p.store.archive import ARCHIVE_FILE, Archive
from shoal_p2p.store.store import Store
from shoal_p2p.swarm_node import Demand, SwarmNode
from shoal_p2p.trainer_child import TrainerChild
from shoal_settings.schema import Settings
from shoal_settings.trainer_settings import OVERSAMPLE
from shoal_wire.manifest import Manifest


class NodeComponents:
    """The parts of one node, from the moment its swarm is known."""

    def __init__(
        self,
        peer: PeerNode,
        manifest: Manifest,
        *,
        store: Store,
        child: TrainerChild | None,
    ) -> None:
        """`store` runs already; `child` may be up already, and waits for the socket."""
        settings, parts = peer.settings, peer.parts
        self.peer = peer
        self.manifest = manifest
        self.store = store
        self.child = child
        self.recent = RecentRollouts()
        self.learning = TrainingStats(peer.peer_id)
        self.link = TrainerLink()
        self.archive = Archive(
            settings.data_dir / ARCHIVE_FILE,
            max_bytes=settings.archive_bytes,
            in_thread=parts.in_thread,
            refused=peer.disk.refused,
        )
        self.buffer = ReplayBuffer(
            limits_of(settings), random.Random(settings.seed) if settings.seed else parts.rng
        )
        self._demand = DemandMeter(external=settings.external, oversample=_waste(settings))
        book = FetchBook(
            me=peer.peer_id,
            manifest=manifest,
            ledger=peer.ledger,
            settings=peer.tuning.exchange,
            rng=parts.rng,
            network_of=peer.host.source_of,
        )
        self._met = MetNetworks(peer.host)
        self._own_numbers = OwnNumbers(manifest)
        self.pool = self._pool()
        peer.events.add(self.recent, GroupsStored, GroupVerified, RoundTrained)
        peer.events.add(self._own_numbers, BatchStored)
        peer.events.add(self.learning, GroupLeased, RoundTrained)
        peer.events.add(self.archive, BatchStored)
        self.counters = peer.events.counters
        self.member = SwarmNode(
            peer,
            manifest,
            Receivers(
                keep=self.pool.keep_all,
                on_equivocation=self._on_equivocation,
                announcements=book.wanted,
            ),
            is_open=self.pool.restored,
            draws=Demand(per_s=self._wanted_per_s),
        )
        self.exchange = self._exchange(book)
        self.outbox = self._outbox()
        self.judge = self._judge_link()
        self.tasks = self._node_tasks()
        self.views = self._views()
        self.service = self._service()

    def _pool(self) -> RolloutPool:
        settings = self.peer.settings
        return RolloutPool(
            buffer=self.buffer,
            store=self.store,
            me=self.peer.peer_id,
            manifest=self.manifest,
            settings=PoolSettings(
                max_age_seconds=BUFFER_SECONDS,
                max_store_bytes=2 * settings.buffer_bytes,
                publisher_sampling=settings.publisher_sampling,
            ),
            reputation=self.peer.guard.reputation,
            network_of=self._met.network_of,
            events=self.peer.events,
        )

    def _exchange(self, book: FetchBook) -> RolloutExchange:
        peer, settings = self.peer, self.peer.tuning.exchange
        report = peer.guard.on_verdict
        asker = RolloutClient(
            host=peer.host,
            report=report,
            stats=book.stats,
            answer_seconds=settings.answer_seconds,
        )
        return RolloutExchange(
            host=peer.host,
            means=FetchContext(
                manifest=self.manifest,
                host=peer.host,
                asker=asker,
                ledger=peer.ledger,
                stats=book.stats,
                report=report,
                wall_ms=peer.parts.wall_ms,
                rng=peer.parts.rng,
            ),
            store=self.store,
            book=book,
            intake=self.member.intake,
            events=peer.events,
            space=BufferSpace(
                groups_since=lambda since: self.buffer.room(since=since),
                groups_per_publisher=self.buffer.max_groups_per_publisher,
            ),
            settings=settings,
        )

    async def _on_equivocation(self, pair: Equivocation, second: bytes) -> None:
        """Withdraw the first of two batches of one number, once both are kept for their signer."""
        unwritten = self.pool.unwritten(pair.first)
        await self.exchange.show_to_signer(pair, second, unwritten=unwritten)
        await self.pool.withdraw(pair, second)

    def _outbox(self) -> Outbox:
        return Outbox(
            manifest=self.manifest,
            identity=self.peer.host.identity,
            store=self.store,
            gossip=self.peer.gossip,
            topic=self.member.shards.topic_of,
            wall_ms=self.peer.parts.wall_ms,
            numbers=self._own_numbers,
        )

    def _judge_link(self) -> JudgeLink | None:
        address = self.peer.settings.judge
        if address == "none":
            return None
        return JudgeLink(host=self.peer.host, manifest=self.manifest, address=address)

    def _node_tasks(self) -> NodeTasks:
        return NodeTasks(
            self.member,
            self.manifest,
            learning=self.learning,
            child=self.child,
        )

    def _views(self) -> NodeViews:
        return NodeViews(
            self.member,
            outbox=self.outbox,
            pool=self.pool,
            link=self.link,
            recent=self.recent,
            learning=self.learning,
            child=self.child,
            exchange=self.exchange,
            judge=self.judge,
        )

    def _service(self) -> Service:
        return Service(
            me=self.peer.peer_id,
            manifest=self.manifest,
            pool=self.pool,
            outbox=self.outbox,
            link=self.link,
            views={**self.views.by_name(), **views_of(self.tasks.desk)},
            control=self.peer.guard.control,
            order=self.tasks.desk.order,
            judge=self.judge,
        )

    async def start(self, nursery: trio.Nursery) -> None:
        """Restore the previous state, join the swarm, and start to publish."""
        # Concurrently, so that the node connects to peers; messages wait for it in the intake.
        nursery.start_soon(self.pool.restore, self.peer.ledger)
        await nursery.start(keep_ledger, self.learning, self.peer.state(LEDGER))
        self.exchange.serve()
        await self.tasks.serve()
        await self.member.start(nursery)
        await self.pool.restored.wait()
        await nursery.start(self.pool.run)
        await nursery.start(self.exchange.run)
        await nursery.start(self.outbox.run)
        if self.judge is not None:
            await nursery.start(self.judge.run)
        await nursery.start(self.archive.run, self.manifest)
        await self.tasks.start(nursery)

    async def close(self) -> None:
        """Close all connections, and write pending batches."""
        await self.peer.host.close()
        await self.pool.write_all()

    async def hand_over(self) -> None:
        """Wait until all batches are sent and a peer has fetched each announced one."""
        await self.outbox.drained()
        await self.exchange.wait_until_served(self.outbox.announced)

    async def status(self) -> dict[str, Any]:
        """Return the status view as JSON values."""
        status: dict[str, Any] = to_json(await self.views.status({}))
        return status

    def _wanted_per_s(self) -> float:
        """Return how many external groups the trainer samples per second."""
        return demand_of(self._demand, self.link.status, trio.current_time())


def _waste(settings: Settings) -> int:
    """Return how many external groups a trainer examines at most for each that it wants."""
    places = settings.local + settings.external
    return OVERSAMPLE * places // max(1, settings.external)


BUFFER_SECONDS = HOUR_S
"""Age at which a group leaves the buffer: that of a batch which a swarm's manifest calls stale."""
_GROUP_BYTES = 16 * 1024
"""Bytes of the buffer for each group of its capacity: about four times a group of the embedded
model, so that object overhead of small groups does not fill the memory."""


def limits_of(settings: Settings) -> BufferLimits:
    """Return the buffer's bounds by the settings."""
    max_groups = settings.buffer_bytes // _GROUP_BYTES
    return BufferLimits(
        max_groups=max_groups,
        max_bytes=settings.buffer_bytes,
        max_age_seconds=BUFFER_SECONDS,
        max_groups_per_publisher=max(1, max_groups // 8),
        max_bytes_per_publisher=max(1, settings.buffer_bytes // 4),
    )
