"""Injected dependencies of a peer, and its limits.

    Dependencies  network, task worker, store, threads, clock, randomness: real unless given
    Limits        bounds and timeouts of the components, from the settings unless given

`Node` and every other peer accept both as arguments, so that a simulation runs the production code.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import trio

from shoal_base.ranges import Ranged, Seconds, SecondsOrZero
from shoal_base.waits import SHORT_DEADLINE_S
from shoal_p2p.fetch.exchange import ExchangeSettings
from shoal_p2p.gossip.gossip import Libp2pGossip
from shoal_p2p.gossip.interface import Gossip, PeerScorer
from shoal_p2p.gossip.sequence_numbers import SequenceNumbers
from shoal_p2p.gossip.settings import GossipSettings
from shoal_p2p.intake.ledger import LedgerLimits
from shoal_p2p.intake.verifier_scheduler import QuestionSource
from shoal_p2p.net.host import HostSettings, Libp2pHost
from shoal_p2p.net.identity import Identity
from shoal_p2p.net.interface import Host
from shoal_p2p.net.relay_server import RelayLimits, RelayServer
from shoal_p2p.peers.address_policy import AddressPolicy
from shoal_p2p.peers.discovery import DiscoverySettings
from shoal_p2p.peers.hole_punch import HolePunch
from shoal_p2p.peers.outside import wall_ms
from shoal_p2p.peers.port_mapping import MappingState, PortMapping
from shoal_p2p.peers.relay_client import RelayClient, RelayUse
from shoal_p2p.reputation.conn_manager import max_peers_for
from shoal_p2p.shards.keeper import ShardSettings
from shoal_p2p.shards.plan import ShardLimits
from shoal_p2p.store.store import Store
from shoal_p2p.threads import InThread
from shoal_settings.schema import Settings
from shoal_tasks.limits import WorkerLimits
from shoal_tasks.spec import FamilySpec
from shoal_tasks.types import (
    Play,
    PlayRequest,
    ScoreRequest,
    ScoreResult,
    TaskCoordinates,
    TaskItem,
)
from shoal_tasks.worker.trio_client import TrioTaskWorker
from shoal_wire.types import PeerId

if TYPE_CHECKING:
    from trio_typing import TaskStatus


class Running(Protocol):
    """A part with a task of its own."""

    async def run(self, *, task_status: TaskStatus[Any] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled; started means ready."""


class Worker(QuestionSource, Running, Protocol):
    """The task worker: it regenerates questions and scores answers."""

    @property
    def report(self) -> Any:
        """The latest worker process's description of itself; None before the first was ready."""

    async def questions(self, tasks: Sequence[TaskCoordinates]) -> list[str]:
        """Return one question per task. Raises TaskError."""

    async def items(self, tasks: Sequence[TaskCoordinates]) -> list[TaskItem]:
        """Return question and answer of each task. Raises TaskError."""

    async def draw_for_judge(self, rng: random.Random) -> tuple[TaskCoordinates, str]:
        """Return a held-out task and its question. Raises TaskError."""

    async def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        """Return one result per request. Raises TaskError."""

    async def play(self, requests: Sequence[PlayRequest]) -> list[Play]:
        """Return environments' answers to the beginnings of games. Raises TaskError."""


class Relays(Running, Protocol):
    """Keeps a peer reachable that cannot be dialled directly."""

    @property
    def relays(self) -> tuple[PeerId, ...]:
        """The relays with a reservation for this peer."""

    def look_again(self) -> None:
        """Check again whether peers can dial this one, after a change."""


class Punches(Running, Protocol):
    """Upgrades relayed connections to direct ones."""

    @property
    def counts(self) -> tuple[int, int]:
        """Number of upgraded relayed peers, and of all attempts."""

    @property
    def is_symmetric_nat(self) -> bool:
        """True if the router is known to be a symmetric NAT."""


class MapsPort(Running, Protocol):
    """Has a router forward a port to this machine."""

    @property
    def state(self) -> MappingState:
        """Progress of the forwarding."""

    @property
    def place(self) -> str:
        """The transport address that the router says leads here; empty for none."""

    @property
    def error(self) -> str:
        """The reason if no router forwards; empty if one does."""


class Network(Protocol):
    """One peer's end of the network, and what is built on it."""

    @property
    def host(self) -> Host:
        """Connections."""

    def gossip(
        self, watch: PeerScorer, settings: GossipSettings, numbers: SequenceNumbers
    ) -> Gossip:
        """Return gossip over the host; to be called once, before the host runs."""

    def relays(self, use: RelayUse, *, preferred: tuple[PeerId, ...]) -> Relays:
        """Return the client of relays; `preferred` are asked first."""

    def punches(self, address_policy: AddressPolicy) -> Punches:
        """Return the service that makes relayed connections direct."""

    def port_mapping(self, *, wanted: bool, on_reached: Callable[[], None]) -> MapsPort:
        """Return the service that requests a forwarded port; `wanted` by the user."""

    def relay(self, limits: RelayLimits) -> RelayServer:
        """Return a relay for others."""


class Libp2pNetwork:
    """The real one."""

    def __init__(self, identity: Identity, settings: HostSettings) -> None:
        self.host = Libp2pHost(identity=identity, settings=settings)

    def gossip(
        self, watch: PeerScorer, settings: GossipSettings, numbers: SequenceNumbers
    ) -> Gossip:
        """Return gossipsub over the host."""
        return Libp2pGossip(host=self.host, scorer=watch, settings=settings, numbers=numbers)

    def relays(self, use: RelayUse, *, preferred: tuple[PeerId, ...]) -> Relays:
        """Return the client of circuit relays."""
        return RelayClient(host=self.host, use=use, preferred=preferred)

    def punches(self, address_policy: AddressPolicy) -> Punches:
        """Return hole punching as libp2p has it."""
        return HolePunch(host=self.host, address_policy=address_policy)

    def port_mapping(self, *, wanted: bool, on_reached: Callable[[], None]) -> MapsPort:
        """Return port mapping by UPnP."""
        return PortMapping(host=self.host, wanted=wanted, on_reached=on_reached)

    def relay(self, limits: RelayLimits) -> RelayServer:
        """Return a circuit relay."""
        return RelayServer(self.host, limits)


def real_worker(families: Sequence[FamilySpec], patience_seconds: float) -> Worker:
    """Return a task worker in a sandboxed process of its own."""
    return TrioTaskWorker(
        families,
        limits=WorkerLimits(request_timeout_seconds=SHORT_DEADLINE_S),
        patience_seconds=patience_seconds,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """Makers of the parts, and what all of them share. The defaults are the real ones."""

    network: Callable[[Identity, HostSettings], Network] = Libp2pNetwork
    worker: Callable[[Sequence[FamilySpec], float], Worker] = real_worker
    """``worker(families, patience_seconds)``."""
    store: Callable[..., Store] = Store
    in_thread: InThread = trio.to_thread.run_sync
    """Runs blocking calls. A simulation has no threads: virtual time does not wait for them."""
    wall_ms: Callable[[], int] = wall_ms
    rng: random.Random = field(default_factory=random.Random)


REAL = Dependencies()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(Ranged):
    """Bounds and timeouts that are not settings."""

    discovery: DiscoverySettings
    shards: ShardSettings
    shard_limits: ShardLimits = field(default_factory=ShardLimits)
    exchange: ExchangeSettings = field(default_factory=ExchangeSettings)
    gossip: GossipSettings = field(default_factory=GossipSettings)
    ledger: LedgerLimits = field(default_factory=LedgerLimits)
    bootstrap_s: SecondsOrZero = 10.0
    """Maximum wait for a bootstrap at the start before continuing alone, in seconds."""
    siblings_s: Seconds = 10.0
    """Pause between two searches for peers with sibling data directories."""

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """Return the limits of a peer with these settings."""
        return cls(
            # Otherwise outbound connections would fill a small node.
            discovery=DiscoverySettings(
                target_peers=min(
                    settings.target_peers, max(1, max_peers_for(settings.max_connections) // 2)
                )
            ),
            shards=ShardSettings(keep_connections=settings.target_peers),
        )
