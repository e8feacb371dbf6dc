"""Combines all parts of `/shoal/rollouts/1`: serving batches to peers and fetching theirs.

intake ─ announced, accepted ─▶ BatchFetch, GapRepair ─┐
Backfill ──────────────────────▶ BatchFetch ───────────┴─▶ RolloutClient ─▶ peers ─▶ intake
pool ─ event ─▶ BatchIndex ─▶ RolloutServer ─▶ peers
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

import trio

from shoal_base.ranges import Ranged, Seconds
from shoal_base.waits import REPLY_S
from shoal_ipc.answers.node import Fetch
from shoal_p2p.events import (
    BatchAccepted,
    BatchStored,
    BatchWithdrawn,
    EventSink,
    ShardsChanged,
)
from shoal_p2p.fetch.backfill import Backfill, BackfillSettings, BufferSpace
from shoal_p2p.fetch.batch_index import BatchIndex
from shoal_p2p.fetch.batches import BatchFetch
from shoal_p2p.fetch.context import FetchContext
from shoal_p2p.fetch.duplicate_identity import DuplicateIdentityCheck
from shoal_p2p.fetch.gap_repair import GapDetector, GapRepair
from shoal_p2p.fetch.gaps import GapLimits
from shoal_p2p.fetch.pending_fetches import PendingFetches
from shoal_p2p.fetch.pull import PullLimits
from shoal_p2p.fetch.pull_queue import PullJob, QueueLimits
from shoal_p2p.fetch.retry_budget import ChaseLimits
from shoal_p2p.fetch.server import SERVE_LIMITS, RolloutServer, ServeLimits
from shoal_p2p.fetch.stats import FetchStats
from shoal_p2p.intake.intake import Intake
from shoal_p2p.intake.ledger import Equivocation, PublisherLedger
from shoal_p2p.net.interface import Host
from shoal_p2p.net.request import RequestLimits
from shoal_p2p.store.store import Store
from shoal_wire.limits import MAX_REQUEST_BYTES, ROLLOUTS_PROTOCOL
from shoal_wire.manifest import Manifest
from shoal_wire.types import BatchId, PeerId
from shoal_wire.verdict import Verdict

if TYPE_CHECKING:
    from trio_typing import TaskStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeSettings(Ranged):
    """Limits and deadlines of every part."""

    serve: ServeLimits = field(default_factory=ServeLimits)
    queue: QueueLimits = field(default_factory=QueueLimits)
    pull: PullLimits = field(default_factory=PullLimits)
    gaps: GapLimits = field(default_factory=GapLimits)
    chase: ChaseLimits = field(default_factory=ChaseLimits)
    backfill: BackfillSettings = field(default_factory=BackfillSettings)
    answer_seconds: Seconds = REPLY_S
    streams: RequestLimits = SERVE_LIMITS


class FetchBook:
    """State that intake and pool update, and fetchers and server read. Built before all of them."""

    def __init__(
        self,
        *,
        me: PeerId,
        manifest: Manifest,
        ledger: PublisherLedger,
        settings: ExchangeSettings | None = None,
        rng: random.Random | None = None,
        network_of: Callable[[PeerId], str] = lambda _peer: "",
    ) -> None:
        """`network_of` returns the IP network of a peer's connection; empty without one."""
        settings = settings or ExchangeSettings()
        self.stats = FetchStats()
        self.wanted = PendingFetches(
            me=me,
            manifest=manifest,
            ledger=ledger,
            stats=self.stats,
            limits=settings.queue,
            network_of=network_of,
        )
        self.gaps = GapDetector(
            ledger=ledger,
            stats=self.stats,
            rng=rng or random.Random(),
            limits=settings.gaps,
            chase=settings.chase,
        )
        self.shelf = BatchIndex(manifest)


class RolloutExchange:
    """Serves and fetches batches. Call `serve` before joining topics, then run it."""

    def __init__(
        self,
        *,
        host: Host,
        means: FetchContext,
        store: Store,
        book: FetchBook,
        intake: Intake,
        events: EventSink,
        space: BufferSpace,
        settings: ExchangeSettings | None = None,
    ) -> None:
        """`space` is the buffer's capacity."""
        settings = settings or ExchangeSettings()
        self._host = host
        self._intake = intake
        self._streams = settings.streams
        self._book = book
        self.shelf = book.shelf
        self.duplicate_identity = DuplicateIdentityCheck(
            host=host, asker=means.asker, own=store, rng=means.rng
        )
        self._server = RolloutServer(
            shelf=book.shelf,
            store=store,
            is_pending=book.wanted.is_pending,
            report=means.report,
            stats=book.stats,
            wall_ms=means.wall_ms,
            network_of=host.source_of,
            limits=settings.serve,
        )
        self._fetch = BatchFetch(
            means=means, wanted=book.wanted, take=self._take, limits=settings.pull
        )
        self._repair = GapRepair(
            means=means,
            fetch=self._fetch,
            watch=book.gaps,
        )
        self._backfill = Backfill(
            means=means,
            fetch=self._fetch,
            space=space,
            settings=settings.backfill,
        )
        events.add(book.gaps, BatchAccepted, ShardsChanged)
        events.add(book.shelf, BatchStored, BatchWithdrawn)
        events.add(self._backfill, ShardsChanged)
        self._counters = events.counters

    def serve(self) -> None:
        """Start answering the requests of peers."""
        self._host.set_request_handler(
            ROLLOUTS_PROTOCOL,
            self._server.answer,
            max_request_bytes=MAX_REQUEST_BYTES,
            limits=self._streams,
            on_sent=self._server.on_sent,
        )

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Fetch announced, missing and listed batches until cancelled."""
        async with trio.open_nursery() as nursery:
            for part in (self._fetch, self._repair, self._backfill, self.duplicate_identity):
                await nursery.start(part.run)
            task_status.started()

    async def show_to_signer(
        self, pair: Equivocation, second: bytes, *, unwritten: bytes | None
    ) -> None:
        """Store the two batches of one number for their signer (`RolloutServer.show_to_signer`)."""
        await self._server.show_to_signer(pair, second, unwritten=unwritten)

    async def wait_until_served(self, batch_ids: Iterable[BatchId]) -> None:
        """Wait until a peer has fetched each of these announced batches."""
        for batch_id in batch_ids:
            await self._server.wait_until_served(batch_id)

    def view(self) -> Fetch:
        """Return the counters."""
        stats, queue = self._book.stats, self._book.wanted.queue
        return Fetch(
            **{one.name: getattr(stats, one.name) for one in fields(stats)},
            batches=self._counters.batches,
            groups=self._counters.groups,
            gaps_open=len(self._book.gaps.gaps),
            announced_waiting=queue.num_waiting,
            announced_running=queue.num_running,
            servable_batches=len(self.shelf),
        )

    async def _take(self, envelope: bytes, job: PullJob, provider: PeerId) -> Verdict:
        return await self._intake.validate_fetched(
            envelope,
            publisher=job.publisher,
            sequence=job.sequence,
            num_groups=job.num_groups,
            source=job.source,
            provider=provider,
            key=job.key,
        )
