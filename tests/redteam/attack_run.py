"""A schedule against whole honest nodes, and the invariants that must hold.

honest swarm ─▶ 6 s of calm ─▶ 20 s of attack ─▶ hostile peers leave ─▶ 25 s of calm
"""

from __future__ import annotations

import itertools
import logging
import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import trio

from shoal_lab.simulation.network import LinkSettings
from shoal_p2p.gossip.rate_limiter import FloodLimits
from shoal_p2p.gossip.settings import MeshSettings
from shoal_p2p.intake.ledger import LedgerLimits
from shoal_p2p.peers.met_networks import UNKNOWN_NETWORK
from shoal_wire.limits import MANIFEST_PROTOCOL, MAX_MANIFEST_BYTES
from shoal_wire.types import PeerId
from tests.redteam.answer_acts import answers_anything, answers_in_kind, answers_with_peers
from tests.redteam.control_acts import joins
from tests.redteam.faults import faults
from tests.redteam.peer import BROKEN, AttackerPeer, Captured
from tests.redteam.schedule import ACTS, ATTACK_S, Schedule, Step
from tests.redteam.sizes import measure_containers
from tests.support.simulated_node import NodeSettings, SimulatedNode, host_of
from tests.support.simulated_swarm import Member, Plan, World, simulate
from tests.support.streamed_host import virtual_gossip

MOODS = (answers_anything, answers_in_kind, answers_in_kind, answers_with_peers)
"""Replies that a hostile peer may choose from its first moment."""
CALM_BEFORE_S = 6.0
CALM_AFTER_S = 25.0
_ACT_S = 8.0
_VISIT_EVERY_S = 4.0
MAX_HELD_BYTES = 16 << 20
"""Per node at the end of an attack; a calm one has 0.2 MB, a full buffer is 1."""
HONEST_SHARE = 4
"""Honest peers keep at least 1/n of the buffer entries that they would have alone."""
MAX_STEPS = 250_000
"""Steps of Trio's loop in one run; a calm one takes 10,000."""
MAX_QUESTIONS = 30_000
"""Questions that one node regenerates in a run."""

SETTINGS = NodeSettings(
    round_s=3.0,
    local=1,
    external=1,
    target_peers=5,
    want_peers=4,
    backfill_s=8.0,
    buffer_groups=120,
    ledger=LedgerLimits(groups_per_second=4.0, burst_groups=64.0),
    flood=FloodLimits(waste_per_second=4.0, waste_burst=40.0),
    streamed=True,
)


class Steps(trio.abc.Instrument):
    """Counts the steps of Trio's loop."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: Any) -> None:
        """Count one step."""
        self.count += 1


def is_error(record: logging.LogRecord) -> bool:
    """Return whether this was logged with a traceback, or as an error."""
    return bool(record.exc_info) or record.levelno >= logging.ERROR


class AttackRun:
    """One run of a schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.captured = Captured()
        self.steps = Steps()
        self.lives: Counter[int] = Counter()
        self.connected = set[PeerId]()
        """Names that were connected: all others are known only from batches."""
        self.team: dict[int, tuple[AttackerPeer, trio.CancelScope]] = {}
        self.done: Counter[str] = Counter()

    async def script(self, world: World) -> None:
        """Attack, wait, then check."""
        trio.lowlevel.add_instrument(self.steps)
        await trio.sleep_until(CALM_BEFORE_S)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, world)
            nursery.start_soon(self._inject_failures, world)
            nursery.start_soon(self._visit, world)
            async with trio.open_nursery() as acting:
                for step in self.schedule.steps:
                    await trio.sleep_until(CALM_BEFORE_S + step.at)
                    acting.start_soon(self._act, world, step)
            for _, scope in self.team.values():
                scope.cancel()
            self._check_sizes(world)
            await trio.sleep(CALM_AFTER_S)
            nursery.cancel_scope.cancel()
        await trio.sleep(1.0)  # a batch may have been accepted just now
        await self._check_nodes(world)

    # The attackers

    async def _act(self, world: World, step: Step) -> None:
        rng = random.Random(step.seed)
        with trio.move_on_after(_ACT_S):
            attacker = await self._member(world, step.who, rng)
            if rng.random() < 0.5 or not attacker.host.connected_peers():
                await attacker.meet(rng)
            if not attacker.host.connected_peers() and rng.random() < 0.7:
                attacker = await self._reborn(world, step.who)
                await attacker.meet(rng)
            try:
                await ACTS[step.act](attacker, rng)
                self.done[step.act] += 1
            except BROKEN:
                return

    async def _member(self, world: World, who: int, rng: random.Random) -> AttackerPeer:
        if who not in self.team:
            await self._reborn(world, who)
        return self.team[who][0]

    async def _reborn(self, world: World, who: int) -> AttackerPeer:
        """Return under another name, from the same address."""
        if who in self.team:
            self.team[who][1].cancel()
        self.lives[who] += 1
        third = 9 if self.schedule.one_network else who
        life = self.lives[who]
        attacker = AttackerPeer(
            world, self.captured, f"red{who}/{life}", f"/ip4/172.16.{third}.{life}/tcp/0"
        )
        self.connected.add(attacker.peer_id)
        scope = trio.CancelScope()
        self.team[who] = (attacker, scope)
        await world._nursery.start(_live, attacker, scope)
        rng = random.Random(f"{self.schedule.seed}/{who}/{life}")
        await attacker.meet(rng)
        if rng.random() < 0.7:
            await joins(attacker, rng)
        if rng.random() < 0.5:
            await rng.choice(MOODS)(attacker, rng)
        return attacker

    async def _inject_failures(self, world: World) -> None:
        """Let honest nodes and connections fail without an attacker."""
        rng = random.Random(f"{self.schedule.seed}/weather")
        for at in self.schedule.weather:
            await trio.sleep_until(CALM_BEFORE_S + at)
            if rng.random() < 0.5:
                world.network.break_connections(0.3)
                continue
            member = rng.choice(world.of_kind("honest"))
            await world.kill(member)
            await trio.sleep(rng.choice((0.0, 3.0, 10.0)))
            await world.start(member)

    async def _visit(self, world: World) -> None:
        """Join as a newcomer from another network from time to time."""
        rng = random.Random(f"{self.schedule.seed}/guests")
        for number in range(int(ATTACK_S / _VISIT_EVERY_S)):
            await trio.sleep(_VISIT_EVERY_S)
            up = [m for m in world.of_kind("honest") if m.node is not None and m.node.has_joined]
            member = rng.choice(up)
            node = member.node
            client = AttackerPeer(
                world, Captured(), f"guest{number}", f"/ip4/198.51.{number}.7/tcp/4001"
            )
            scope = trio.CancelScope()
            await world._nursery.start(_live, client, scope)
            tries = [await _is_served(client, member) for _ in range(3)]
            scope.cancel()
            if member.node is node:
                assert any(tries), world.say(f"{member.name} does not reply to a newcomer")

    # The invariants

    async def _watch(self, world: World) -> None:
        while True:
            await trio.sleep(1.0)
            self._check_reputation(world)

    def _check_reputation(self, world: World) -> None:
        now = trio.current_time()
        # A connection that broke loses replies, and promises that could not be kept.
        least = 0.0 if not self.schedule.weather else MeshSettings().gossip_threshold
        for one, other in itertools.permutations(world.of_kind("honest", "bootstrap"), 2):
            node = one.node
            if node is None or not node.has_joined:
                continue
            row = node.live.peer.guard.reputation.row(other.peer_id, now)
            assert row.bans == 0, world.say(f"{one.name} has banned {other.name}: {row}")
            assert row.score >= least, world.say(f"{one.name} blames {other.name}: {row}")
        assert not world.failures, world.failures

    async def _check_nodes(self, world: World) -> None:
        honest = world.of_kind("honest")
        for member in honest:
            assert member.node is not None, world.say(f"{member.name} has ended")
            self._check_node(world, member.node, member.name)
        self._check_delivery(world)
        self._check_buffers(world)
        self._check_networks(world)
        await self._check_service(world, honest)
        assert self.steps.count < MAX_STEPS, world.say(f"{self.steps.count} steps")

    def _check_node(self, world: World, node: SimulatedNode, name: str) -> None:
        gossip = node.live.peer.gossip
        assert gossip.stats().pubsub.get("fault", 0) == 0, world.say(f"a fault at {name}")
        assert node.live.outbox.num_unsent == 0, world.say(f"{name} could not send")
        requested = node.worker.num_requested
        assert requested < MAX_QUESTIONS, world.say(f"{name} has regenerated {requested} questions")

    def _check_sizes(self, world: World) -> None:
        for node in world.up("honest"):
            if not node.has_joined:  # it has just restarted: `_check_nodes` waits for it
                continue
            held = measure_containers({"node": node.live})
            total = sum(one.num_bytes for one in held.values())
            most = sorted(held.items(), key=lambda item: -item[1].num_bytes)[:5]
            text = f"{node.peer_id} holds {total} bytes: {most}"
            assert total < MAX_HELD_BYTES, world.say(text)

    def _check_delivery(self, world: World) -> None:
        """Every acknowledged group is at every honest node."""
        until = trio.current_time() - 12.0
        for publication in world.publications:
            received = {node.peer_id for node in world.received.get(publication.batch_id, ())}
            for member in world.of_kind("honest"):
                if member.peer_id != publication.publisher and publication.at < until:
                    missing = f"of {publication.at:.1f} s is not at {member.name}"
                    assert member.peer_id in received, world.say(f"a batch {missing}")

    def _check_buffers(self, world: World) -> None:
        """Honest peers keep their share of the buffer entries that they would have alone."""
        names = {member.peer_id for member in world.of_kind("honest")}
        for node in world.up("honest"):
            stats = node.live.buffer.stats(trio.current_time())
            here = sum(r.groups for r in stats.publishers if r.peer_id in names and not r.is_local)
            received = (world.received.get(p.batch_id, ()) for p in world.publications)
            arrived = sum(node in nodes for nodes in received)
            alone = min(arrived - node.drawn, SETTINGS.buffer_groups)
            text = (
                f"{here} groups of honest peers in the buffer, {alone} without the others: {stats}"
            )
            assert here >= alone // HONEST_SHARE, world.say(text)

    def _check_networks(self, world: World) -> None:
        """An identity that never connected counts for no network, whatever peer forwards it."""
        connected = self.connected | {member.peer_id for member in world.members}
        for node in world.up("honest"):
            for entry in node.live.buffer.external_groups():
                name = entry.group.publisher
                if name not in connected:
                    text = f"{name}, never met, counts for {entry.network} at {node.peer_id}"
                    assert entry.network == UNKNOWN_NETWORK, world.say(text)

    async def _check_service(self, world: World, honest: Sequence[Member]) -> None:
        """A newcomer gets the manifest, and its messages arrive."""
        client = AttackerPeer(world, Captured(), "guest", "/ip4/198.51.100.7/tcp/4001")
        await world._nursery.start(client.run)
        for member in honest:
            assert await _is_served(client, member), world.say(f"{member.name} serves no more")
        peers = [len(host_of(member.node).connected_peers()) for member in honest if member.node]
        assert min(peers) >= 2, world.say(f"honest nodes are connected to {peers}")


async def _live(
    attacker: AttackerPeer, scope: trio.CancelScope, *, task_status: Any = trio.TASK_STATUS_IGNORED
) -> None:
    with scope:
        await attacker.run(task_status=task_status)


async def _is_served(client: AttackerPeer, member: Member) -> bool:
    """Return whether a newcomer's requests are served."""
    host = client.world.network.host(member.peer_id)
    if host is None:  # it is restarting
        await trio.sleep(1.0)
        return False
    try:
        await client.host.dial(f"{host.address}/p2p/{member.peer_id}", timeout=2.0)
        raw = await client.host.request(
            member.peer_id,
            MANIFEST_PROTOCOL,
            b"",
            max_response_bytes=MAX_MANIFEST_BYTES,
            timeout=3.0,
        )
        return raw == client.world.manifest.raw
    except BROKEN:
        return False


def play(schedule: Schedule) -> AttackRun:
    """Play a schedule. Raises AssertionError if an invariant is violated."""
    battle = AttackRun(schedule)
    plan = Plan(
        honest=schedule.honest,
        node=SETTINGS,
        links=LinkSettings(loss=0.0),
        skew_s=schedule.skew_s,
    )
    with (
        tempfile.TemporaryDirectory(prefix="redteam-") as folder,
        faults(("shoal_p2p", "libp2p", "shoal", "tests"), logging.WARNING, is_error) as found,
        virtual_gossip(),
    ):
        simulate(schedule.seed, plan, Path(folder), battle.script)
    assert not found, f"[seed {schedule.seed}] {found[:3]}"
    return battle
