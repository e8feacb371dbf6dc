"""A node on the simulated network: `Node` itself, with a trainer that samples and publishes.

Real: the whole node, from the host's callbacks to the replies of its socket's service, with the
store's SQL and files. Simulated: host and gossip (`shoal_lab.simulation`), the task worker, and the
trainer, which calls the service as one on the socket would.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import trio

from shoal_bootstrap.peer import BootstrapPeer
from shoal_ipc import messages as m
from shoal_lab.simulation.host import SimulatedHost
from shoal_lab.simulation.network import SimulatedNetwork
from shoal_lab.simulation.parts import NoSocket, SimulatedEnd, UnflushedStore, at_once
from shoal_p2p.fetch.backfill import BackfillSettings
from shoal_p2p.fetch.exchange import ExchangeSettings
from shoal_p2p.gossip.gossip import Libp2pGossip
from shoal_p2p.gossip.interface import Gossip, PeerScorer
from shoal_p2p.gossip.rate_limiter import FloodLimits
from shoal_p2p.gossip.sequence_numbers import SequenceNumbers
from shoal_p2p.gossip.settings import GossipLimits, GossipSettings, MeshSettings
from shoal_p2p.intake.ledger import LedgerLimits
from shoal_p2p.intake.validation import Validator
from shoal_p2p.ipc.inspector import InspectorService
from shoal_p2p.live_node import NodeComponents
from shoal_p2p.net.host import HostSettings, Libp2pHost
from shoal_p2p.net.identity import Identity
from shoal_p2p.node import Node
from shoal_p2p.parts import Dependencies, Limits, Network
from shoal_p2p.peers.discovery import DiscoverySettings
from shoal_p2p.shards.keeper import ShardSettings
from shoal_p2p.shards.plan import ShardLimits
from shoal_p2p.store.statements import External
from shoal_p2p.store.store import Store
from shoal_settings.schema import Settings
from shoal_wire.digests import group_id
from shoal_wire.types import BatchId, PeerId, RolloutGroup
from tests.support import factories as make
from tests.support.doubles.worker import InstantWorker
from tests.support.streamed_host import StreamedHost

if TYPE_CHECKING:
    from trio_typing import TaskStatus

RIGHT = "7"
"""The answer that earns a reward."""

HOLDER = "trainer"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """Settings that the nodes of one simulation share."""

    round_s: float = 20.0
    local: int = 2
    external: int = 4
    fixed_shards: int | None = None
    target_peers: int = 8
    want_peers: int = 6
    """Period of each shard, in seconds."""
    heartbeat_s: float = 1.0
    tick_s: float = 1.0
    """Period of the shard keeper, in seconds."""
    discovery_s: float | None = None
    """Period of peer exchange; None is that of the shard keeper."""
    backfill_s: float = 60.0
    """Period of requesting listings from peers, in seconds."""
    buffer_groups: int = 400
    """The buffer has a group for each 16 KiB, and an eighth of them for one publisher."""
    ledger: LedgerLimits = field(
        default_factory=lambda: LedgerLimits(groups_per_second=4.0, burst_groups=128.0)
    )
    shards: ShardLimits = field(default_factory=ShardLimits)
    flood: FloodLimits = field(default_factory=FloodLimits)
    streamed: bool = False
    """True to run the real gossip and requests, over byte streams (`streamed_host`)."""


class Observer:
    """Events that the simulation observes; see `World`. The node's own tasks call these, and an
    exception would disturb the node, so they raise none."""

    def accepted(self, node: SimulatedNode, batch_id: BatchId, publisher: PeerId) -> None:
        """An external batch has passed validation."""

    def published(self, node: SimulatedNode, envelope: bytes, num_groups: int) -> None:
        """The node has published."""

    def drew(self, node: SimulatedNode, publisher: PeerId) -> None:
        """The trainer has sampled an external group."""

    def banned(self, node: SimulatedNode, peer_id: PeerId) -> None:
        """The node has banned a peer."""


class _Store(UnflushedStore):
    """The store, which reports validated batches."""

    watcher: SimulatedNode

    async def add_all(self, rows: Sequence[External]) -> None:
        """Report a batch that passed validation, and store it."""
        for batch_id, publisher, *_ in rows:
            self.watcher.observer.accepted(self.watcher, batch_id, publisher)
        await super().add_all(rows)


class _End(SimulatedEnd):
    """A node's end of the network, which reports its bans and its shards."""

    def __init__(self, node: SimulatedNode, identity: Identity, settings: HostSettings) -> None:
        super().__init__(
            node.network,
            identity,
            settings,
            rng=node.rng,
            first_sequence=node.wall_ms(),
            make_host=StreamedHost if node.settings.streamed else SimulatedHost,
        )
        self._node = node
        ban = self.host.ban

        def ban_and_tell(peer_id: PeerId, *, seconds: float) -> None:
            node.observer.banned(node, peer_id)
            ban(peer_id, seconds=seconds)

        self.host.ban = ban_and_tell  # type: ignore[method-assign]

    def gossip(
        self, watch: PeerScorer, settings: GossipSettings, numbers: SequenceNumbers
    ) -> Gossip:
        """Gossip that records when topics are joined and left."""
        node, host = self._node, self.host
        gossip: Gossip
        if isinstance(host, StreamedHost):
            gossip = Libp2pGossip(
                host=cast(Libp2pHost, host), scorer=watch, settings=settings, rng=node.rng
            )
        else:
            gossip = super().gossip(watch, settings, numbers)
        subscribe, unsubscribe = gossip.subscribe, gossip.unsubscribe

        async def join(topic: str, validator: Validator) -> None:
            node.joined[topic] = trio.current_time()
            await subscribe(topic, validator)

        async def leave(topic: str) -> None:
            node.joined.pop(topic, None)
            node.left.append((topic, trio.current_time()))
            await unsubscribe(topic)

        gossip.subscribe, gossip.unsubscribe = join, leave  # type: ignore[method-assign]
        return gossip


def rewards_of(group: RolloutGroup) -> tuple[float, ...]:
    """Return the simulated verifier's reward for a group."""
    return tuple(float(completion.text == RIGHT) for completion in group.completions)


class SimulatedNode:
    """One start of a node or bootstrap peer. A restart is another object over the same folder."""

    def __init__(
        self,
        *,
        network: SimulatedNetwork,
        identity: Identity,
        folder: Path,
        address: str,
        bootstrap: tuple[str, ...],
        rng: random.Random,
        wall_ms: Callable[[], int],
        settings: NodeSettings,
        observer: Observer,
        useful: bool = True,
        life: int = 1,
    ) -> None:
        """Without `bootstrap` addresses, it is a bootstrap peer itself and does not train."""
        self.network = network
        self.identity = identity
        self.rng = rng
        self.wall_ms = wall_ms
        self.observer = observer
        self.useful = useful
        self.life = life
        self.rounds = 0
        self.drawn = 0
        self.joined: dict[str, float] = {}
        """Subscribed topics, and since when."""
        self.left: list[tuple[str, float]] = []
        self.worker = InstantWorker()
        self._is_bootstrap = not bootstrap
        self.settings = settings
        self._of = _settings_of(settings, folder, address, bootstrap)
        self._live: NodeComponents | None = None

    @property
    def peer_id(self) -> PeerId:
        """The node's id."""
        return self.identity.peer_id

    @property
    def live(self) -> NodeComponents:
        """The node itself, once it has joined."""
        assert self._live is not None, "not joined yet, or a bootstrap"
        return self._live

    def listens_to(self, publisher: PeerId) -> bool:
        """Return whether a publisher's batches belong to a shard of this node."""
        member = self.live.member
        return member.manifest.is_of(publisher, member.shards.shards)

    @property
    def has_joined(self) -> bool:
        """True if it is a node that has joined."""
        return self._live is not None

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled, which is as sudden as a kill."""
        ready = trio.Event()

        def on_ready(live: Any) -> None:
            if not self._is_bootstrap:
                self._live = live
            ready.set()

        life: Any = (BootstrapPeer if self._is_bootstrap else Node)(
            identity=self.identity,
            settings=self._of,
            on_ready=on_ready,
            parts=self._parts(),
            tuning=_tuning_of(self.settings, self._of),
            socket=NoSocket,
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(life.run)
            await ready.wait()
            if not self._is_bootstrap:
                nursery.start_soon(self._train, self.live.service)
            task_status.started()

    def _parts(self) -> Dependencies:
        def network(identity: Identity, settings: HostSettings) -> Network:
            return _End(self, identity, settings)

        def store(path: Path, **how: Any) -> Store:
            made = _Store(path, **how)
            made.watcher = self
            return made

        return Dependencies(
            network=network,
            worker=lambda _families, _patience_s: self.worker,
            store=store,
            in_thread=at_once,
            wall_ms=self.wall_ms,
            rng=self.rng,
        )

    # The trainer

    async def _train(self, service: InspectorService) -> None:
        hello = m.Hello(ipc_version=m.IPC_VERSION, role=m.Role.TRAINER, pid=1)
        assert isinstance(await service.hello(HOLDER, hello), m.HelloReply)
        while True:
            await trio.sleep(self.settings.round_s * self.rng.uniform(0.75, 1.25))
            self.rounds += 1
            await self._share(service)
            await self._draw(service)
            await self._ask(service, m.TrainerStatus(json=json.dumps(self._status())))

    async def _ask(self, service: InspectorService, body: m.Body) -> m.Body:
        answer = await service.handle(HOLDER, m.Role.TRAINER, body)
        assert not isinstance(answer, m.Failure), answer.reason
        return answer

    async def _share(self, service: InspectorService) -> None:
        groups = [
            make.group(self.rng.randrange(1 << 28), self._texts())
            for _ in range(self.settings.local)
        ]
        key = f"{self.life}-{self.rounds}".encode()
        batch = make.publish(groups, key=key, round=self.rounds)
        answer = await service.handle(HOLDER, m.Role.TRAINER, batch)
        if isinstance(answer, m.Failure) and answer.retryable:
            return  # the swarm is behind: a trainer publishes the newest later
        assert isinstance(answer, m.PublishReply), answer
        assert answer.is_new
        envelope = await self.live.store.envelope_part(answer.batch_id, 0, 1 << 20)
        assert envelope is not None
        self.observer.published(self, envelope, len(groups))
        own = [
            m.GroupReport(
                group_id=group_id(group), publisher=self.peer_id, rewards=rewards_of(group)
            )
            for group in groups
        ]
        await self._ask(service, m.Report(groups=tuple(own)))

    def _texts(self) -> tuple[str, ...]:
        if not self.useful:
            return ("no", "idea")
        return (RIGHT if self.rng.random() < 0.7 else "8", "9")

    async def _draw(self, service: InspectorService) -> None:
        sample = m.Sample(num_external=self.settings.external, lease_seconds=60.0)
        answer = await self._ask(service, sample)
        assert isinstance(answer, m.SampleReply)
        drawn = list(answer.groups)
        reports = []
        for group in drawn:
            self.drawn += 1
            self.observer.drew(self, group.publisher)
            reports.append(
                m.GroupReport(
                    group_id=group.group_id,
                    publisher=group.publisher,
                    rewards=rewards_of(group.group),
                )
            )
        await self._ask(service, m.Report(groups=tuple(reports)))
        await self._ask(service, m.Report(consumed_ids=tuple(g.group_id for g in drawn)))

    def _status(self) -> dict[str, object]:
        return {
            "round": self.rounds,
            "external_sampled": self.drawn,
            "groups_external_used": self.drawn,
        }


def _settings_of(
    settings: NodeSettings, folder: Path, address: str, bootstrap: tuple[str, ...]
) -> Settings:
    fixed = settings.fixed_shards
    return Settings(
        data_dir=folder,
        listen=(address,),
        bootstrap=bootstrap,
        role="observe",
        mdns=False,
        archive_bytes=0,
        external=settings.external,
        target_peers=settings.target_peers,
        subscribe_shards="auto" if fixed is None or not bootstrap else str(fixed),
        buffer_bytes=settings.buffer_groups * 16 * 1024,
    )


def _tuning_of(settings: NodeSettings, of: Settings) -> Limits:
    discovery_s = settings.tick_s if settings.discovery_s is None else settings.discovery_s
    return Limits(
        discovery=DiscoverySettings(target_peers=of.target_peers, backoff_first_s=discovery_s / 2),
        shards=ShardSettings(
            want_peers=settings.want_peers,
            tick_s=settings.tick_s,
            look_every_s=5 * settings.tick_s,
            mix_every_s=10 * settings.tick_s,
            keep_connections=settings.target_peers,
        ),
        shard_limits=settings.shards,
        exchange=ExchangeSettings(backfill=BackfillSettings(every_seconds=settings.backfill_s)),
        gossip=GossipSettings(
            mesh=MeshSettings(heartbeat_s=settings.heartbeat_s),
            limits=GossipLimits(flood=settings.flood),
        ),
        ledger=settings.ledger,
    )


def host_of(node: SimulatedNode) -> SimulatedHost:
    """Return a running node's host."""
    host = node.network.host(node.peer_id)
    assert isinstance(host, SimulatedHost)
    return host
