"""A swarm in virtual time: members that join and leave, attackers, and permanent invariants.

    report = simulate(seed, Plan(...), folder, script)

Every failure names its seed, and equal seeds give equal runs: set SHOAL_SIM_SEED to repeat one.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import os
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from shoal_base.collector import NEW_CONTAINERS
from shoal_lab.simulation import host as simulated_host
from shoal_lab.simulation.clock import deterministic, jumping_clock
from shoal_lab.simulation.network import LinkSettings, SimulatedNetwork
from shoal_p2p.buffer.replay import ReplayBuffer
from shoal_p2p.intake import validation
from shoal_p2p.net import address, inbound_gate, private_networks
from shoal_p2p.net.identity import Identity, identity_from_seed
from shoal_p2p.peers import discovery, peer_book, services, targets
from shoal_tasks.run_memory import save_manifest
from shoal_wire import digests, peers
from shoal_wire import manifest as wire_manifest
from shoal_wire.manifest import Manifest
from shoal_wire.types import BatchId, PeerId
from tests.support import factories as make
from tests.support.simulated_attackers import attacker
from tests.support.simulated_node import NodeSettings, Observer, SimulatedNode

EPOCH_MS = 1_700_000_000_000
_PURE = (
    *(
        (module, name)
        for name in ("open_envelope", "decode_batch", "parse_peer_address")
        for module in (validation, services, discovery, simulated_host)
        if hasattr(module, name)
    ),
    (validation, "parse_batch"),
    # A node knows the names around it; this process has those of all nodes.
    (wire_manifest, "_path_of"),
    (wire_manifest, "_shards_of"),
    (address, "_canonical"),
    (address, "_peer_id"),
    (private_networks, "_private_block"),
    (inbound_gate, "ip_of"),
    (inbound_gate, "_network"),
    (peers, "_entry"),
    (peers, "_peer"),
    (peer_book, "_network_of"),
    (services, "_canonical"),
    (services, "_peer_addresses"),
    (targets, "dialable"),
)
_MOST_KEPT = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The size and composition of a swarm."""

    honest: int = 20
    liars: int = 0
    shards: int = 1
    node: NodeSettings = field(default_factory=NodeSettings)
    links: LinkSettings = field(default_factory=LinkSettings)
    skew_s: float = 0.0
    """Maximum clock error."""
    attackers: tuple[str, ...] = ()
    """Names of `simulated_attackers.ATTACKS`."""
    attack_s: float = 4.0
    """Mean time between two acts of an attacker."""
    measure_after_s: float = 0.0
    arrive_s: float = 0.0
    """Members join at random times up to this after the bootstrap peer; 0: one after the other."""


@dataclass(slots=True, eq=False)
class Member:
    """A member with a key; `node` while it is up."""

    name: str
    identity: Identity
    folder: Path
    address: str
    skew_ms: int
    kind: str
    node: SimulatedNode | None = None
    scope: trio.CancelScope | None = None
    down: trio.Event = field(default_factory=trio.Event)
    lives: int = 0

    @property
    def peer_id(self) -> PeerId:
        """The member's id."""
        return self.identity.peer_id


@dataclass(slots=True, eq=False)
class Publication:
    """An honest batch, and its expected receivers."""

    batch_id: BatchId
    publisher: PeerId
    topic: str
    at: float
    listeners: tuple[SimulatedNode, ...]


class World(Observer):
    """The swarm, with a record of all events in it."""

    def __init__(self, seed: int, plan: Plan, folder: Path) -> None:
        self.seed = seed
        self.plan = plan
        self.rng = random.Random(f"{seed}/world")
        self.manifest = _manifest(plan.shards)
        self.network = SimulatedNetwork(random.Random(f"{seed}/network"), plan.links)
        self._taken: set[str] = set()
        """Addresses of members."""
        self.members = [
            self._member(f"{kind}{number}", kind, folder)
            for kind, count in (("bootstrap", 1), ("honest", plan.honest), ("liar", plan.liars))
            for number in range(count)
        ]
        self._kind_of = {member.peer_id: member.kind for member in self.members}
        self.valid: dict[BatchId, PeerId] = {}
        """Every valid batch that was created."""
        self.received: dict[BatchId, dict[SimulatedNode, float]] = {}
        self.publications: list[Publication] = []
        self.draws: list[tuple[float, str]] = []
        self.bans: Counter[tuple[str, str]] = Counter()
        self.latencies: list[float] = []
        self.envelopes: deque[bytes] = deque(maxlen=32)
        """Recent bytes on the wire, for attackers."""
        self.attackers = [attacker(self, name, n) for n, name in enumerate(plan.attackers)]
        self.failures: list[str] = []
        self._trace = hashlib.sha256()
        self._nursery: trio.Nursery

    # Members

    def _member(self, name: str, kind: str, folder: Path) -> Member:
        rng = random.Random(f"{self.seed}/{name}")
        home = folder / name
        home.mkdir(parents=True)
        save_manifest(home, self.manifest)
        return Member(
            name=name,
            identity=identity_from_seed(rng.randbytes(32)),
            folder=home,
            address=self._free_address(rng),
            skew_ms=int(1000 * rng.uniform(-self.plan.skew_s, self.plan.skew_s)),
            kind=kind,
        )

    def _free_address(self, rng: random.Random) -> str:
        """Return an unused address: of ten thousand random ones, two would be equal."""
        while (address := "/ip4/10.{}.{}.{}/tcp/4001".format(*rng.randbytes(3))) in self._taken:
            continue
        self._taken.add(address)
        return address

    def of_kind(self, *kinds: str) -> list[Member]:
        """Return the members of these kinds."""
        return [member for member in self.members if member.kind in kinds]

    def up(self, *kinds: str) -> list[SimulatedNode]:
        """Return the running nodes of these kinds."""
        return [m.node for m in self.of_kind(*kinds) if m.node is not None]

    @property
    def bootstrap(self) -> str:
        """The bootstrap's full address."""
        (member,) = self.of_kind("bootstrap")
        return f"{member.address}/p2p/{member.peer_id}"

    def wall_ms(self, skew_ms: int = 0) -> int:
        """Return a wall clock that is wrong by `skew_ms`."""
        return EPOCH_MS + int(1000 * trio.current_time()) + skew_ms

    async def start(self, member: Member, *, also: tuple[str, ...] = ()) -> None:
        """Start a member that is down, over its data; `also` are further bootstrap addresses."""
        member.lives += 1
        is_bootstrap = member.kind == "bootstrap"
        node = SimulatedNode(
            network=self.network,
            identity=member.identity,
            folder=member.folder,
            address=member.address,
            bootstrap=() if is_bootstrap else (*also, self.bootstrap),
            rng=random.Random(f"{self.seed}/{member.name}/{member.lives}"),
            wall_ms=lambda: self.wall_ms(member.skew_ms),
            settings=self.plan.node,
            observer=self,
            useful=member.kind != "liar",
            life=member.lives,
        )
        await self._nursery.start(self._live, member, node)

    async def _live(
        self, member: Member, node: SimulatedNode, *, task_status: Any = trio.TASK_STATUS_IGNORED
    ) -> None:
        with trio.CancelScope() as member.scope:
            member.node = node
            member.down = trio.Event()
            try:
                await node.run(task_status=task_status)
            finally:
                member.node = None
                member.down.set()
                self.note("down", member.name)

    async def kill(self, member: Member) -> None:
        """End a member as suddenly as kill -9."""
        if member.scope is not None:
            member.scope.cancel()
        await member.down.wait()

    # Events of nodes

    def accepted(self, node: SimulatedNode, batch_id: BatchId, publisher: PeerId) -> None:
        """Check that a validated batch was made by its publisher, and is valid."""
        if self.valid.get(batch_id) != publisher:
            self.fail(f"{node.peer_id} accepted a batch that {publisher} never validly made")
        received = self.received.setdefault(batch_id, {})
        if node in received:
            self.fail("a node took one batch twice")
        received[node] = trio.current_time()
        self.note("accept", node.peer_id, batch_id.hex())

    def published(self, node: SimulatedNode, envelope: bytes, num_groups: int) -> None:
        """Register an own batch and its expected receivers."""
        batch_id = digests.batch_id(envelope)
        self.valid[batch_id] = node.peer_id
        now, shard = trio.current_time(), self.manifest.shard_of(node.peer_id)
        topic = self.manifest.topic(shard)
        self.envelopes.append(envelope)
        self.note("publish", node.peer_id, batch_id.hex())
        if now < self.plan.measure_after_s:
            return
        listeners = tuple(
            other
            for other in self.up("honest", "liar")
            if other is not node
            and now - other.joined.get(topic, now) >= 30.0
            and other.listens_to(node.peer_id)
        )
        self.publications.append(Publication(batch_id, node.peer_id, topic, now, listeners))

    def drew(self, node: SimulatedNode, publisher: PeerId) -> None:
        """Count the publishers of groups that honest trainers sample."""
        if node.useful:
            self.draws.append((trio.current_time(), self._kind_of.get(publisher, "attacker")))
        self.note("draw", node.peer_id, publisher)

    def banned(self, node: SimulatedNode, peer_id: PeerId) -> None:
        """Check that an honest node never bans an honest node."""
        kind = self._kind_of.get(peer_id, "attacker")
        if kind in ("honest", "bootstrap", "liar"):
            row = node.live.peer.guard.reputation.row(peer_id, trio.current_time())
            self.fail(f"{node.peer_id} banned {kind} {peer_id}: {row}")
        self.bans[node.peer_id, peer_id] += 1
        self.note("ban", node.peer_id, peer_id)

    def fail(self, text: str) -> None:
        """Record a violated invariant, which ends the run."""
        self.failures.append(self.say(text))

    def note(self, *event: object) -> None:
        """Add an event to the run's trace."""
        self._trace.update(f"{trio.current_time():.9f} {event}\n".encode())

    @property
    def trace(self) -> str:
        """A digest that distinguishes one run from another."""
        return self._trace.hexdigest()

    def say(self, text: str) -> str:
        """Return a failure's text with the seed that reproduces it."""
        return f"[SHOAL_SIM_SEED={self.seed}, {trio.current_time():.3f} s] {text}"

    # Invariants

    async def watch(self, every_s: float = 20.0) -> None:
        """Check the permanent invariants until cancelled."""
        while True:
            await trio.sleep(every_s)
            assert not self.failures, self.failures
            for node in self.up("honest", "liar"):
                if node.has_joined:
                    self._check_bounds(node.live.buffer)

    def _check_bounds(self, buffer: ReplayBuffer) -> None:
        # Two rows: the own groups and the largest other publisher, or two other publishers.
        limits, stats = self.plan.node, buffer.stats(trio.current_time(), max_publishers=2)
        within = (
            stats.groups <= limits.buffer_groups
            and stats.bytes <= limits.buffer_groups * 16 * 1024
            and stats.local_groups <= limits.buffer_groups
            and all(
                row.groups <= limits.buffer_groups // 8
                for row in stats.publishers
                if not row.is_local
            )
        )
        assert within, self.say(f"a buffer is over its bounds: {stats}")

    def delivery(self, *, since: float, grace_s: float = 30.0) -> tuple[int, int]:
        """Return how many batches published since then were delivered, of how many expected.

        A delivery is expected at nodes that were up and on the shard from 30 s before until
        `grace_s` after.
        """
        now = trio.current_time()
        up = set(map(id, self.up("honest", "liar")))
        due = arrived = 0
        for publication in self.publications:
            if not since <= publication.at <= now - grace_s:
                continue
            received = self.received.get(publication.batch_id, {})
            for node in publication.listeners:
                at = received.get(node)
                is_gone = id(node) not in up or not node.listens_to(publication.publisher)
                if at is None and (is_gone or _left(node, publication, grace_s)):
                    continue
                due += 1
                arrived += at is not None
                if at is not None:
                    self.latencies.append(at - publication.at)
        return arrived, due

    def share_of_draws(self, kind: str, *, since: float) -> float:
        """Return the fraction of groups sampled by honest trainers that came from `kind`."""
        kinds = Counter(who for at, who in self.draws if at >= since)
        return kinds[kind] / max(1, sum(kinds.values()))


def _left(node: SimulatedNode, publication: Publication, grace_s: float) -> bool:
    return any(
        topic == publication.topic and publication.at <= at <= publication.at + grace_s
        for topic, at in node.left
    )


Script = Callable[[World], Awaitable[None]]


def simulate(
    seed: int, plan: Plan, folder: Path, script: Script, *, memoises: bool = True
) -> World:
    """Run `script` in a started swarm; return the world with its records.

    A run that counts calls does not memoise: what is computed once for all nodes is not called.
    """
    world: list[World] = []

    async def main() -> None:
        made = World(seed, plan, folder)
        world.append(made)
        async with trio.open_nursery() as made._nursery:
            await made._nursery.start(made.network.run)
            await _start_all(made)
            made._nursery.start_soon(made.watch)
            for one in made.attackers:
                made._nursery.start_soon(one.run, plan.attack_s)
            await script(made)
            assert not made.failures, made.failures
            made._nursery.cancel_scope.cancel()

    pure = memoised() if memoises else nullcontext()
    with deterministic(seed), pure, _unflushed(), _spared_collector():
        trio.run(main, clock=jumping_clock())
    return world[0]


async def _start_all(world: World) -> None:
    """Start every member: in order, or at random times."""
    for member in world.members:
        if not world.plan.arrive_s or member.kind == "bootstrap":
            await world.start(member)
            continue
        at = world.rng.uniform(0, world.plan.arrive_s)
        world._nursery.start_soon(_come, world, member, trio.current_time() + at)


async def _come(world: World, member: Member, at: float) -> None:
    await trio.sleep_until(at)
    await world.start(member)


@contextmanager
def memoised() -> Iterator[None]:
    """Compute once for all nodes what depends only on its arguments."""
    real = {(module, name): getattr(module, name) for module, name in _PURE}
    try:
        for (module, name), function in real.items():
            setattr(module, name, functools.lru_cache(maxsize=_MOST_KEPT)(function))
        yield
    finally:
        for (module, name), function in real.items():
            setattr(module, name, function)


@contextmanager
def _spared_collector() -> Iterator[None]:
    """Collect garbage rarely: as `shoal_base.collector` for one node, but here for a hundred."""
    thresholds = gc.get_threshold()
    gc.set_threshold(4 * NEW_CONTAINERS)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


@contextmanager
def _unflushed() -> Iterator[None]:
    """Flush no file: there are no power failures here."""
    real = os.fsync
    os.fsync = lambda _fd: None  # type: ignore[assignment]
    try:
        yield
    finally:
        os.fsync = real


@functools.cache
def _manifest(shards: int) -> Manifest:
    return make.swarm("simulated", shard_count=shards)
