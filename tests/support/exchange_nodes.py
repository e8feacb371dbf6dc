"""Nodes that gossip and fetch, for tests: real host, gossip, store, pool, outbox and exchange; no
discovery, socket or trainer, and an instant task worker.

async with open_exchange(tmp_path, 3) as nodes:
    await nodes[1].meet(nodes[0])
    await nodes[0].share(7)
    await until(lambda: nodes[1].heard() == {7})
"""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from p2p.buffer.replay import ReplayBuffer
from p2p.fetch.backfill import BackfillSettings
from p2p.fetch.exchange import ExchangeSettings, RolloutExchange
from p2p.fetch.gaps import GapLimits
from p2p.gossip.gossip import Gossip
from p2p.intake.intake import Intake
from p2p.intake.ledger import PublisherLedger
from p2p.net.host import HostSettings, Libp2pHost
from p2p.net.identity import Identity
from p2p.rollouts.outbox import Outbox
from p2p.rollouts.pool import RolloutPool
from p2p.store.store import OwnBatch, Store
from shoal_wire.manifest import Manifest
from shoal_wire.types import PeerId, RolloutGroup
from shoal_wire.verdict import Reason, Verdict
from tests.support import factories as make
from tests.support.local_node import limits, wall_ms
from tests.support.node_swarm import InstantWorker
from tests.support.nodes import LOOPBACK, fresh_identity, until

if TYPE_CHECKING:
    from trio_typing import TaskStatus

_keys = itertools.count(1)
_GROUP_BYTES = 19_200
"""What 8000 characters of `noise` take on the wire."""

QUICK = ExchangeSettings(
    gaps=GapLimits(grace_seconds=0.2, retry_seconds=0.3),
    backfill=BackfillSettings(
        first_jitter_seconds=0.05, again_seconds=0.2, every_seconds=3600.0, tick_seconds=0.02
    ),
    answer_seconds=2.0,
)
NO_BACKFILL = replace(QUICK, backfill=BackfillSettings(first_jitter_seconds=3600.0))


def noise(num_chars: int, seed: int = 0) -> str:
    """Return text that hardly compresses: about two bytes a character on the wire."""
    rng = random.Random(seed)
    return "".join(chr(rng.randrange(0x800, 0xD800)) for _ in range(num_chars))


def big_groups(first: int, num_bytes: int) -> list[RolloutGroup]:
    """Return groups, from task `first` on, that take about `num_bytes` on the wire."""
    count = max(1, round(num_bytes / _GROUP_BYTES))
    return [make.group(first + i, (noise(8000, seed=first + i), "7")) for i in range(count)]


class ExchangeNode:
    """One node. Start with ``await nursery.start(node.run)``."""

    def __init__(
        self,
        data_dir: Path,
        manifest: Manifest,
        *,
        identity: Identity | None = None,
        settings: ExchangeSettings = QUICK,
    ) -> None:
        data_dir.mkdir(exist_ok=True)
        self.manifest = manifest
        self.identity = identity or fresh_identity()
        self.host = Libp2pHost(identity=self.identity, settings=HostSettings(listen=(LOOPBACK,)))
        self.gossip = Gossip(host=self.host, on_verdict=self._report)
        self.verdicts: list[tuple[PeerId, PeerId | None, Verdict]] = []
        self.ledger = PublisherLedger()
        self.buffer = ReplayBuffer(limits(), random.Random(0))
        self.store = Store(data_dir / "node.db", peer_id=self.peer_id, wall_ms=wall_ms)
        self.exchange = RolloutExchange(
            host=self.host,
            manifest=manifest,
            ledger=self.ledger,
            store=self.store,
            intake=lambda: self.intake,
            shards=lambda: frozenset(range(manifest.rules.shard_count)),
            wanted_groups=lambda: 10_000,
            report=self._report,
            wall_ms=wall_ms,
            settings=settings,
        )
        self.pool = RolloutPool(
            buffer=self.buffer,
            store=self.store,
            me=self.peer_id,
            manifest=manifest,
            max_age_seconds=3600.0,
            max_store_bytes=1 << 30,
            wall_ms=wall_ms,
            on_kept=self.exchange.kept,
            on_withdrawn=self.exchange.withdrawn,
        )
        self.outbox = Outbox(
            manifest=manifest,
            peer_id=self.peer_id,
            signer=self.identity,
            store=self.store,
            gossip=self.gossip,
            wall_ms=wall_ms,
        )
        self.intake = Intake(
            context=make.context(manifest, self.peer_id),
            questions=InstantWorker(),
            ledger=self.ledger,
            keep=self.pool.keep_external,
            accuse=self.pool.withdraw,
            wall_ms=wall_ms,
            listener=self.exchange,
        )
        self.deaf = False
        """Whether what is gossiped gets lost on its way to this node."""

    @property
    def peer_id(self) -> PeerId:
        """The node's peer id."""
        return self.host.peer_id

    @property
    def address(self) -> str:
        """One full multiaddress."""
        return self.host.listen_addrs()[0]

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.store.run)
            await nursery.start(self.host.run)
            try:
                await self.pool.restore(self.ledger)
                await nursery.start(self.intake.run)
                self.exchange.serve()
                for topic in self.manifest.topics():
                    await self.gossip.subscribe(topic, self._validate)
                await nursery.start(self.exchange.run)
                await nursery.start(self.outbox.run)
                task_status.started()
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await self.host.close()

    async def meet(self, *others: ExchangeNode) -> None:
        """Connect, and wait until each is in the other's mesh on every topic."""
        for other in others:
            await self.host.dial(other.address)
        for other in others:
            await until(lambda other=other: self._hears(other) and other._hears(self))

    def _hears(self, other: ExchangeNode) -> bool:
        topic = self.manifest.topic(self.manifest.shard_of(other.peer_id))
        return any(m.peer_id == other.peer_id for m in self.gossip.mesh().get(topic, ()))

    async def share(self, *groups: int | RolloutGroup) -> OwnBatch:
        """Publish a batch with these groups, or a group for each of these tasks."""
        made = [make.group(g) if isinstance(g, int) else g for g in groups]
        request = make.publish(made, key=b"e%d" % next(_keys))
        own = await self.outbox.accept(request)
        assert own.envelope is not None
        self.pool.keep_own(own.envelope)
        return own

    async def store_batch(self, envelope: bytes) -> None:
        """Have another's batch as if it had come long ago: nobody is told."""
        from p2p.intake.validation import reopen_batch

        signed = reopen_batch(envelope, max_bytes=self.manifest.rules.max_batch_bytes)
        self.ledger.remember(signed.publisher, signed.batch.sequence, signed.batch_id, 0.0)
        await self.pool.keep_external(signed)

    def heard(self) -> set[int]:
        """Return the tasks of others' groups that have entered the buffer."""
        first = make.coordinates_at(0).seed
        return {
            view.entry.group.group.task.seed - first
            for view in self.buffer.residents()
            if not view.entry.own
        }

    def counts(self) -> dict[str, Any]:
        """Return what `shoal debug fetch` shows."""
        return self.exchange.view()

    def blamed(self, peer: PeerId) -> list[Reason]:
        """Return why `peer` was rejected, as signer or as the only one at fault."""
        return [
            judged.reason
            for _, signer, judged in self.verdicts
            if signer == peer and judged.outcome == "reject"
        ]

    async def _validate(self, data: bytes, author: PeerId, forwarder: PeerId) -> Verdict:
        if self.deaf:
            return Verdict(outcome="ignore", reason=Reason.DUPLICATE)  # type: ignore[arg-type]
        return await self.intake.validate(data, author, forwarder)

    def _report(self, forwarder: PeerId, author: PeerId | None, judged: Verdict) -> None:
        self.verdicts.append((forwarder, author, judged))


@asynccontextmanager
async def open_node(
    data_dir: Path, manifest: Manifest, **options: Any
) -> AsyncIterator[ExchangeNode]:
    """Run one node; leaving is as sudden as a kill."""
    node = ExchangeNode(data_dir, manifest, **options)
    async with trio.open_nursery() as nursery:
        await nursery.start(node.run)
        yield node
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_exchange(
    folder: Path,
    count: int,
    *,
    settings: Sequence[ExchangeSettings] | ExchangeSettings = QUICK,
    **rules: Any,
) -> AsyncIterator[list[ExchangeNode]]:
    """Run `count` nodes of one swarm, not yet connected."""
    manifest = make.swarm(**rules)
    each = [settings] * count if isinstance(settings, ExchangeSettings) else list(settings)
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                open_node(folder / f"n{number}", manifest, settings=each[number])
            )
            for number in range(count)
        ]
