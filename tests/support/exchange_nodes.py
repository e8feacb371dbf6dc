"""Whole nodes that gossip and fetch, without discovery, and with an instant task worker.

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
from typing import Any

import trio

from shoal_ipc.answers.form import to_json
from shoal_p2p.fetch.backfill import BackfillSettings
from shoal_p2p.fetch.exchange import ExchangeSettings
from shoal_p2p.fetch.gaps import GapLimits
from shoal_p2p.gossip.interface import Gossip
from shoal_p2p.gossip.sequence_numbers import SequenceNumbers
from shoal_p2p.gossip.settings import GossipSettings
from shoal_p2p.intake.validation import Validator
from shoal_p2p.live_node import NodeComponents
from shoal_p2p.net.host import HostSettings
from shoal_p2p.net.identity import Identity
from shoal_p2p.node import Node
from shoal_p2p.parts import Dependencies, Libp2pNetwork, Limits
from shoal_p2p.peers.discovery import DiscoverySettings
from shoal_p2p.shards.keeper import ShardSettings
from shoal_settings.schema import Settings
from shoal_tasks.run_memory import save_manifest
from shoal_wire.manifest import Manifest
from shoal_wire.types import PeerId, RolloutGroup, SignedBatch
from shoal_wire.verdict import Outcome, Reason, Verdict
from tests.support import factories as make
from tests.support.doubles.worker import InstantWorker
from tests.support.nodes import fresh_identity, until
from tests.support.peers import quiet_settings, run_peer

_keys = itertools.count(1)
_GROUP_BYTES = 19_200
"""Bytes on the wire of 8000 characters of `noise`."""

QUICK = ExchangeSettings(
    gaps=GapLimits(grace_seconds=0.2, retry_seconds=0.3),
    backfill=BackfillSettings(
        first_jitter_seconds=0.05, again_seconds=0.2, every_seconds=3600.0, tick_seconds=0.02
    ),
    answer_seconds=2.0,
)
NO_BACKFILL = replace(QUICK, backfill=BackfillSettings(first_jitter_seconds=3600.0))


def noise(num_chars: int, seed: int = 0) -> str:
    """Return text that hardly compresses: about two bytes per character on the wire."""
    rng = random.Random(seed)
    return "".join(chr(rng.randrange(0x800, 0xD800)) for _ in range(num_chars))


def big_groups(first: int, num_bytes: int) -> list[RolloutGroup]:
    """Return groups, starting with task `first`, of about `num_bytes` on the wire."""
    count = max(1, round(num_bytes / _GROUP_BYTES))
    return [make.group(first + i, (noise(8000, seed=first + i), "7")) for i in range(count)]


class _Network(Libp2pNetwork):
    """The real network, with reception that can be switched off, and a record of every verdict."""

    def __init__(self, identity: Identity, settings: HostSettings) -> None:
        super().__init__(identity, settings)
        self.deaf = False
        self.verdicts: list[tuple[PeerId, PeerId | None, Verdict]] = []

    def gossip(self, watch: Any, settings: GossipSettings, numbers: SequenceNumbers) -> Gossip:
        """Gossip whose validators receive nothing while this is deaf."""
        judge = watch.on_verdict

        def record(forwarder: PeerId, author: PeerId | None, judged: Verdict) -> None:
            self.verdicts.append((forwarder, author, judged))
            judge(forwarder, author, judged)

        watch.on_verdict = record
        gossip = super().gossip(watch, settings, numbers)
        subscribe = gossip.subscribe

        async def subscribe_with_ear(topic: str, validator: Validator) -> None:
            await subscribe(topic, self._with_ear(validator))

        gossip.subscribe = subscribe_with_ear  # type: ignore[method-assign]
        return gossip

    def _with_ear(self, validator: Validator) -> Validator:
        async def validate(data: bytes, author: PeerId, forwarder: PeerId) -> Verdict:
            if self.deaf:
                return Verdict(outcome=Outcome.IGNORE, reason=Reason.DUPLICATE)
            return await validator(data, author, forwarder)

        return validate


class ExchangeNode:
    """One running node, with operations for tests."""

    def __init__(self, live: NodeComponents) -> None:
        self.live = live
        self.network: _Network = live.peer.network  # type: ignore[assignment]
        self.manifest, self.host, self.gossip = live.manifest, live.peer.host, live.peer.gossip
        self.ledger, self.buffer = live.peer.ledger, live.buffer
        self.exchange, self.pool, self.outbox = live.exchange, live.pool, live.outbox

    @property
    def deaf(self) -> bool:
        """True if gossip to this node is lost."""
        return self.network.deaf

    @deaf.setter
    def deaf(self, deaf: bool) -> None:
        self.network.deaf = deaf

    @property
    def verdicts(self) -> list[tuple[PeerId, PeerId | None, Verdict]]:
        """Every verdict: forwarder, author, verdict."""
        return self.network.verdicts

    @property
    def peer_id(self) -> PeerId:
        """The node's peer id."""
        return self.host.peer_id

    @property
    def identity(self) -> Identity:
        """The node's identity."""
        return self.host.identity

    @property
    def address(self) -> str:
        """One full multiaddress."""
        return self.host.listen_addrs()[0]

    async def meet(self, *others: ExchangeNode) -> None:
        """Connect, and wait until both are in each other's mesh on every topic."""
        for other in others:
            await self.host.dial(other.address)
        for other in others:
            await until(lambda other=other: self._hears(other) and other._hears(self))

    def _hears(self, other: ExchangeNode) -> bool:
        topic = self.manifest.topic(self.manifest.shard_of(other.peer_id))
        return any(m.peer_id == other.peer_id for m in self.gossip.mesh().get(topic, ()))

    async def share(self, *groups: int | RolloutGroup) -> SignedBatch:
        """Publish a batch with these groups, or with one group for each of these tasks."""
        made = [make.group(g) if isinstance(g, int) else g for g in groups]
        request = make.publish(made, key=b"e%d" % next(_keys))
        own = await self.outbox.accept(request)
        assert own.signed is not None
        self.pool.keep_own(own.signed)
        return own.signed

    async def store_batch(self, envelope: bytes) -> None:
        """Store another node's batch as if it had arrived long ago, without announcing it."""
        from shoal_p2p.intake.validation import reopen_batch

        signed = reopen_batch(envelope, max_bytes=self.manifest.rules.max_batch_bytes)
        self.ledger.remember(signed.publisher, signed.batch.sequence, signed.batch_id, 0.0)
        await self.pool.keep_all([signed])
        await self.pool.write_all()

    def received_numbers(self) -> set[int]:
        """Return the tasks of external groups that have entered the buffer."""
        first = make.coordinates_at(0).seed
        return {entry.group.group.task.seed - first for entry in self.buffer.external_groups()}

    def counts(self) -> Any:
        """Return the output of `shoal debug fetch`, as JSON values."""
        return to_json(self.exchange.view())

    def blamed(self, peer: PeerId) -> list[Reason]:
        """Return why `peer` was rejected, as publisher or as the only one responsible."""
        return [
            judged.reason
            for _, signer, judged in self.verdicts
            if signer == peer and judged.outcome == "reject"
        ]


def _tuning(settings: ExchangeSettings, of: Settings) -> Limits:
    """Peer discovery is off: the test decides who is connected."""
    return replace(
        Limits.of(of),
        exchange=settings,
        discovery=DiscoverySettings(target_peers=0),
        shards=ShardSettings(want_peers=0, mix_every_s=86_400.0, keep_connections=1000),
    )


@asynccontextmanager
async def open_node(
    data_dir: Path,
    manifest: Manifest,
    *,
    identity: Identity | None = None,
    settings: ExchangeSettings = QUICK,
) -> AsyncIterator[ExchangeNode]:
    """Run one node over `data_dir`; leaving the context is as sudden as a kill."""
    await trio.Path(data_dir).mkdir(exist_ok=True)
    save_manifest(data_dir, manifest)
    of = quiet_settings(
        data_dir,
        subscribe_shards=str(manifest.rules.shard_count),
        buffer_bytes=1 << 31,  # room for 16,384 groups of one publisher
        archive_bytes=0,
    )
    async with run_peer(
        Node,
        of,
        identity=identity or fresh_identity(),
        parts=Dependencies(network=_Network, worker=lambda _families, _patience_s: InstantWorker()),
        tuning=_tuning(settings, of),
        kill=True,
    ) as live:
        yield ExchangeNode(live)


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
