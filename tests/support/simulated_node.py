"""A node's own logic on the simulated network: everything of ours is real and unmodified.

Real: discovery, peer exchange, shard plan and keeper, intake, validation, ledger, reputation, the
fetching of what was missed, outbox, pool, buffer, and the store's SQL. Simulated: the host, gossip,
the task worker, the store's thread (which would not wait for virtual time) and the trainer.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import trio

from p2p.buffer.replay import ReplayBuffer
from p2p.buffer.types import BufferLimits, Pool
from p2p.fetch.exchange import RolloutExchange
from p2p.intake.intake import Intake
from p2p.intake.ledger import Equivocation, LedgerLimits, PublisherLedger
from p2p.intake.validation import ValidationContext
from p2p.net.address import parse_peer_address
from p2p.net.host import Libp2pHost
from p2p.net.identity import Identity
from p2p.peers import exchange as peer_services
from p2p.peers.discovery import Discovery, DiscoverySettings
from p2p.rollouts.outbox import Outbox
from p2p.rollouts.pool import RolloutPool
from p2p.shards.directory import ShardDirectory
from p2p.shards.keeper import ShardKeeper, ShardSettings
from p2p.shards.plan import ShardLimits, ShardPlan
from p2p.standing.reputation import Reputation
from p2p.store.statements import Failed, StoreCore
from p2p.store.store import Store
from shoal_tasks.types import TaskCoordinates
from shoal_wire.digests import question_digest
from shoal_wire.manifest import Manifest
from shoal_wire.rules import BatchRules
from shoal_wire.types import Digest, PeerId, RolloutGroup, SignedBatch
from shoal_wire.verdict import Verdict
from tests.support import factories as make
from tests.support.simulated_gossip import SimulatedGossip
from tests.support.simulated_network import SimulatedHost, SimulatedNetwork

if TYPE_CHECKING:
    from trio_typing import TaskStatus

T = TypeVar("T")

RIGHT = "7"
"""The answer that earns a reward."""


_BUFFER = BufferLimits(
    max_groups=400,
    max_bytes=1 << 20,
    max_age_seconds=1800.0,
    max_groups_per_publisher=60,
    max_bytes_per_publisher=1 << 18,
    own_max_groups=100,
    own_max_bytes=1 << 18,
)
_LEDGER = LedgerLimits(groups_per_second=4.0, burst_groups=128.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """What the nodes of one simulation have in common."""

    round_s: float = 20.0
    local: int = 2
    external: int = 4
    fixed_shards: int | None = None
    target_peers: int = 8
    want_peers: int = 6
    """Of each shard."""
    heartbeat_s: float = 1.0
    tick_s: float = 1.0
    """Of the shard keeper and of peer exchange."""
    buffer: BufferLimits = _BUFFER
    ledger: LedgerLimits = _LEDGER
    shards: ShardLimits = field(default_factory=ShardLimits)


class Observer:
    """What the simulation wants to know of a node; see `World`."""

    def accepted(self, node: SimulatedNode, signed: SignedBatch) -> None:
        """A batch of another has passed validation."""

    def published(self, node: SimulatedNode, envelope: bytes, num_groups: int) -> None:
        """The node has published."""

    def drew(self, node: SimulatedNode, publisher: PeerId) -> None:
        """The trainer has drawn a group of another."""

    def banned(self, node: SimulatedNode, peer_id: PeerId) -> None:
        """The node has cut a peer off."""


class SimulatedStore(Store):
    """The real store without its thread: virtual time would not wait for one."""

    core: StoreCore

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open, and close when cancelled."""
        self.core = self._open()
        try:
            task_status.started()
            await trio.sleep_forever()
        finally:
            self.core.close()

    async def _submit(self, call: Callable[[StoreCore], T], *, durable: bool = False) -> T:
        await trio.lowlevel.checkpoint()
        (outcome,) = self.core.commit([call], durable=False)
        if isinstance(outcome, Failed):
            raise outcome.error
        return cast("T", outcome.value)


class FakeWorker:
    """Questions from their coordinates, at once."""

    async def question_digests(self, tasks: list[TaskCoordinates]) -> list[Digest]:
        """Return one digest a task."""
        await trio.lowlevel.checkpoint()
        return [question_digest(make.fake_question(task)) for task in tasks]


def rewards_of(group: RolloutGroup) -> list[float]:
    """Return what a verifier gives a group of the simulation."""
    return [float(completion.text == RIGHT) for completion in group.completions]


class SimulatedNode:
    """One life of a node. A restart is another object over the same folder."""

    def __init__(
        self,
        *,
        network: SimulatedNetwork,
        identity: Identity,
        manifest: Manifest,
        rules: BatchRules,
        folder: Path,
        address: str,
        bootstrap: tuple[str, ...],
        rng: random.Random,
        wall_ms: Callable[[], int],
        settings: NodeSettings,
        observer: Observer,
        publishes: bool = True,
        useful: bool = True,
        life: int = 1,
    ) -> None:
        self.identity = identity
        self.useful = useful
        self.life = life
        self.rounds = 0
        self.num_external = 0
        self.joined: dict[int, float] = {}
        self.left: list[tuple[int, float]] = []
        self.started_at = trio.current_time()
        self._publishes = publishes
        self._bootstrap = bootstrap
        self._manifest = manifest
        self._rng = rng
        self._settings = settings
        self._observer = observer
        self._network = network
        self.host = SimulatedHost(network, identity.peer_id, address)
        # The services ask nothing of a host that the simulated one lacks.
        served = cast("Libp2pHost", self.host)
        self.reputation = Reputation()
        self.ledger = PublisherLedger(settings.ledger)
        self.directory = ShardDirectory()
        self.buffer = ReplayBuffer(settings.buffer, rng)
        self.store = SimulatedStore(
            folder / "node.db",
            peer_id=identity.peer_id,
            wall_ms=wall_ms,
            first_sequence=wall_ms(),
        )
        self.discovery = Discovery(
            host=self.host,
            bootstrap=bootstrap,
            fetch_peers=lambda peer: peer_services.fetch_peers(served, peer),
            settings=DiscoverySettings(
                target_peers=settings.target_peers, backoff_first_s=settings.tick_s / 2
            ),
            rng=rng,
            wall_ms=wall_ms,
        )
        peer_services.serve_peers(served, lambda: self.discovery.book, self.directory)
        self.exchange = RolloutExchange(
            host=served,
            manifest=manifest,
            ledger=self.ledger,
            store=self.store,
            intake=lambda: self.intake,
            shards=lambda: frozenset(self.shards.shards),
            wanted_groups=self._room,
            report=self._on_verdict,
            wall_ms=wall_ms,
            rng=rng,
        )
        self.pool = RolloutPool(
            buffer=self.buffer,
            store=self.store,
            me=identity.peer_id,
            manifest=manifest,
            max_age_seconds=settings.buffer.max_age_seconds,
            max_store_bytes=1 << 22,
            wall_ms=wall_ms,
            on_kept=self.exchange.kept,
            on_withdrawn=self.exchange.withdrawn,
        )
        self.intake = Intake(
            context=ValidationContext(rules=rules, me=identity.peer_id),
            questions=FakeWorker(),
            ledger=self.ledger,
            keep=self._keep,
            accuse=self._accuse,
            wall_ms=wall_ms,
            listener=self.exchange,
        )
        self._wall_ms = wall_ms
        self.gossip: SimulatedGossip
        self.outbox: Outbox
        self.shards: ShardKeeper

    @property
    def peer_id(self) -> PeerId:
        """The node's id."""
        return self.identity.peer_id

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Live until cancelled, which is as sudden as a kill."""
        self._network.add(self.host)
        try:
            async with trio.open_nursery() as nursery:
                self._make_parts(nursery)
                await nursery.start(self.store.run)
                await self.pool.restore(self.ledger)
                await nursery.start(self.discovery.run)
                await nursery.start(self.pool.run)
                await nursery.start(self.intake.run)
                self.exchange.serve()
                await nursery.start(self.shards.run)
                if self._publishes:
                    await nursery.start(self.exchange.run)
                await nursery.start(self.outbox.run)
                if self._publishes:
                    nursery.start_soon(self._train)
                task_status.started()
        finally:
            self.gossip.stop()
            self._network.remove(self.host)

    def _make_parts(self, nursery: trio.Nursery) -> None:
        settings, me = self._settings, self.peer_id
        self.gossip = SimulatedGossip(
            self.host,
            nursery,
            self._rng,
            on_verdict=self._on_verdict,
            score=lambda peer: self.reputation.score(peer, trio.current_time()),
            heartbeat_s=settings.heartbeat_s,
            first_sequence=self._wall_ms(),
        )
        self.outbox = Outbox(
            manifest=self._manifest,
            peer_id=me,
            signer=self.identity,
            store=self.store,
            gossip=self.gossip,
            wall_ms=self._wall_ms,
        )
        fixed = settings.fixed_shards if self._publishes else 0
        num_shards = self._manifest.rules.shard_count
        self.shards = ShardKeeper(
            me=me,
            host=self.host,
            gossip=_Recording(self),
            manifest=self._manifest,
            plan=ShardPlan(
                num_shards=num_shards,
                rng=self._rng,
                fixed=1 if num_shards == 1 else fixed,
                limits=settings.shards,
            ),
            directory=self.directory,
            validate=self.intake.validate,
            ask=partial(peer_services.fetch_peers, cast("Libp2pHost", self.host)),
            publishes=self._publishes,
            wanted_per_s=lambda: settings.external / settings.round_s,
            settings=ShardSettings(
                want_peers=settings.want_peers,
                tick_s=settings.tick_s,
                look_every_s=5 * settings.tick_s,
                mix_every_s=10 * settings.tick_s,
                keep_connections=settings.target_peers,
            ),
            keep=frozenset(parse_peer_address(address).peer_id for address in self._bootstrap),
            rng=self._rng,
        )

    async def _keep(self, signed: SignedBatch) -> None:
        self._observer.accepted(self, signed)
        self.shards.note_received(signed)
        self.num_external += len(signed.batch.groups)
        await self.pool.keep_external(signed)

    def _room(self) -> int:
        stats = self.buffer.stats(trio.current_time())
        return stats.capacity_groups - stats.groups

    async def _accuse(self, pair: Equivocation, statement: bytes) -> None:
        await self.pool.withdraw(pair, statement)

    def _on_verdict(self, forwarder: PeerId, author: PeerId | None, judged: Verdict) -> None:
        """As `PeerCore`, whose host is the real one."""
        now = trio.current_time()
        self.reputation.judge(judged, signer=author, forwarder=forwarder, now=now)
        for peer_id in (forwarder, author):
            if peer_id is None:
                continue
            seconds = self.reputation.ban_due(peer_id, now)
            if seconds is not None:
                self._observer.banned(self, peer_id)
                self.host.ban(peer_id, seconds=seconds)

    # The trainer

    async def _train(self) -> None:
        while True:
            await trio.sleep(self._settings.round_s * self._rng.uniform(0.75, 1.25))
            self.rounds += 1
            await self._share()
            await self._draw()

    async def _share(self) -> None:
        groups = [
            make.group(self._rng.randrange(1 << 28), self._texts())
            for _ in range(self._settings.local)
        ]
        key = f"{self.life}-{self.rounds}".encode()
        own = await self.outbox.accept(make.publish(groups, key=key, round=self.rounds))
        assert own.is_new
        assert own.envelope is not None
        self.pool.keep_own(own.envelope)
        self._observer.published(self, own.envelope, len(groups))

    def _texts(self) -> tuple[str, ...]:
        if not self.useful:
            return ("no", "idea")
        return (RIGHT if self._rng.random() < 0.7 else "8", "9")

    async def _draw(self) -> None:
        now, sampling = trio.current_time(), self.reputation.sampling
        publishers = self._publishers(now)
        drawn = self.buffer.lease(
            self._settings.external,
            pool=Pool.EXTERNAL,
            holder="trainer",
            now=now,
            lease_seconds=60.0,
            weights=self.reputation.sampling_weights(publishers, now),
        )
        for entry in drawn:
            group = entry.group
            self._observer.drew(self, group.publisher)
            sampling.report(
                group.group_id,
                publisher=group.publisher,
                family=group.group.task.family,
                rewards=rewards_of(group.group),
                own=False,
                now=now,
            )
        await self.pool.settle("trainer", [entry.group.group_id for entry in drawn], ())

    def _publishers(self, now: float) -> list[PeerId]:
        stats = self.buffer.stats(now)
        return [row.peer_id for row in stats.per_publisher if not row.own]


class _Recording:
    """Gossip as the shard keeper sees it, with a note of when which shard was joined and left."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node

    def _shard(self, topic: str) -> int:
        shard = self._node._manifest.shard_of_topic(topic)
        assert shard is not None
        return shard

    async def subscribe(self, topic: str, validator: Any) -> None:
        self._node.joined[self._shard(topic)] = trio.current_time()
        await self._node.gossip.subscribe(topic, validator)

    async def unsubscribe(self, topic: str) -> None:
        shard = self._shard(topic)
        self._node.joined.pop(shard, None)
        self._node.left.append((shard, trio.current_time()))
        await self._node.gossip.unsubscribe(topic)

    def subscribers(self) -> Any:
        return self._node.gossip.subscribers()
