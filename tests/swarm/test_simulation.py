"""Invariants of nodes, tested by seed: hours of a swarm's life in seconds, with faults and
attackers.

SHOAL_SIM_SEED=123 runs every test here with that seed only; a failure names its seed.
SHOAL_SIM_HOURS lengthens the slow test.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import trio

from shoal_lab.simulation.network import LinkSettings
from shoal_p2p.events import Event, ShardsChanged
from shoal_p2p.fetch.backfill import Backfill
from tests.support.simulated_attackers import BANNED
from tests.support.simulated_node import NodeSettings, SimulatedNode
from tests.support.simulated_swarm import Plan, World, simulate

SEED = os.environ.get("SHOAL_SIM_SEED")


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Hide the log that attackers cause."""
    caplog.set_level(logging.CRITICAL, logger="shoal_p2p")


def seeds(*usual: int) -> pytest.MarkDecorator:
    """Use the usual seeds, or the one in the environment."""
    return pytest.mark.parametrize("seed", [int(SEED)] if SEED else usual)


CALM = NodeSettings(round_s=40.0, local=1, tick_s=2.0)
LOSSY = LinkSettings(loss=0.02)


async def at(seconds: float) -> None:
    await trio.sleep_until(seconds)


def check_delivery(world: World, *, since: float, share: float) -> None:
    arrived, due = world.delivery(since=since)
    assert due > 100, world.say("too little was published to tell")
    assert arrived >= share * due, world.say(f"{arrived} of {due} deliveries came")


# A swarm with wrong clocks and lossy links, and one attacker of each kind.


async def attacked(world: World) -> None:
    await at(600.0)
    check_delivery(world, since=60.0, share=0.999)
    # A fair share would be one in twelve, and two in twelve for the two with valid batches. In six
    # minutes some 400 groups are sampled: liars have .047 of them in the mean of four seeds
    # (1, 2, 3, 8), .063 at most.
    assert world.share_of_draws("liar", since=240.0) < 0.065, world.say("liars are drawn too often")
    assert world.share_of_draws("attacker", since=240.0) < 0.08, world.say("attackers are drawn")
    cut_by = Counter(peer_id for _, peer_id in world.bans)
    for one in world.attackers:
        banned = cut_by[one.peer_id]
        assert (banned > 0) == (one.name in BANNED), world.say(f"{one.name} was banned {banned}x")
    (twice,) = [one for one in world.attackers if one.name == "equivocate"]
    kept = [(node, await node.live.store.evidence()) for node in world.up("honest")]
    pairs = [(node, pair) for node, found in kept for pair in found]
    publishers = {pair.publisher for _, pair in pairs}
    assert twice.peer_id in publishers, world.say("no node kept evidence of the equivocation")
    for node, pair in pairs:
        assert pair.first_id is not None
        assert not residents_of(node, pair.first_id), world.say("a withdrawn batch is still there")


def residents_of(node: SimulatedNode, batch_id: bytes) -> list[object]:
    return [e for e in node.live.buffer.external_groups() if e.group.batch_id == batch_id]


ATTACKED = Plan(
    honest=9,
    liars=1,
    node=NodeSettings(round_s=16.0, local=1, tick_s=2.0),
    links=LOSSY,
    skew_s=20.0,
    attackers=("garbage", "forge", "steal", "mismatch", "equivocate", "flood", "old"),
    attack_s=12.0,
)


@pytest.mark.slow
@seeds(1)
def test_attackers_are_cut_off_liars_fade_and_honest_batches_arrive(
    seed: int, tmp_path: Path
) -> None:
    simulate(seed, ATTACKED, tmp_path, attacked)


# Honest batches in another encoding, and listed with false fields.


async def slandered(world: World) -> None:
    await at(180.0)
    check_delivery(world, since=60.0, share=0.999)
    for name in SLANDERED.attackers:
        served_peers = {peer for one in world.attackers if one.name == name for peer in one.served}
        # An attacker banned early may not have received a request from the last of the six.
        assert len(served_peers) >= 5, world.say(
            f"only {len(served_peers)} nodes asked one that is to {name}"
        )
    for node in world.up("honest"):
        assert await node.live.store.evidence() == [], world.say("an honest node was accused")
        assert not node.live.exchange.duplicate_identity.found, world.say(
            "a false duplicate identity"
        )
        # `World.banned` checks all along that no honest node bans one.
        for other in world.of_kind("honest"):
            score = node.live.peer.guard.reputation.score(other.peer_id, trio.current_time())
            assert score == 0.0, world.say(f"{other.peer_id} has {score} points")
    # A peer is only charged for what it is asked: until then it was asked by some nodes alone.
    await at(400.0)
    cut_by = Counter(peer_id for _, peer_id in world.bans)
    for one in world.attackers:
        if one.name == "respell":
            assert cut_by[one.peer_id] > 0, world.say("who serves changed copies was not cut off")


SLANDERED = Plan(
    honest=6,
    node=NodeSettings(round_s=8.0, local=1, tick_s=2.0, backfill_s=8.0),
    links=LOSSY,
    attackers=("respell", "respell", "slander", "slander"),
    attack_s=4.0,
)


@pytest.mark.slow
@seeds(3)
def test_changed_copies_and_false_listings_cost_no_honest_node_a_point(
    seed: int, tmp_path: Path
) -> None:
    simulate(seed, SLANDERED, tmp_path, slandered)


@pytest.mark.slow
@seeds(*range(100, 130))
def test_slander_of_any_seed_costs_no_honest_node_a_point(seed: int, tmp_path: Path) -> None:
    simulate(seed, SLANDERED, tmp_path, slandered)


# Two halves with enough peers each, and no bootstrap peer that forwards between them.


async def parted(world: World) -> None:
    await at(100.0)
    world.network.partition(lambda peer_id: int(peer_id[-1] < "V"))
    await at(200.0)
    world.network.heal()
    await at(380.0)
    check_delivery(world, since=260.0, share=0.999)
    # Batches published during the partition have been fetched too.
    check_delivery(world, since=60.0, share=0.99)


PARTED = Plan(
    honest=10,
    shards=2,
    node=NodeSettings(
        round_s=30.0, local=1, tick_s=2.0, fixed_shards=2, target_peers=2, want_peers=2
    ),
    links=LOSSY,
)


@pytest.mark.slow
@seeds(4)
def test_parted_halves_meet_again(seed: int, tmp_path: Path) -> None:
    simulate(seed, PARTED, tmp_path, parted)


# Members join and leave, connections break, the network splits and heals; several shards.


async def troubled(world: World) -> None:
    honest = world.of_kind("honest")
    (bootstrap,) = world.of_kind("bootstrap")
    await at(90.0)
    await world.kill(bootstrap)
    for member in honest[:5]:
        await world.kill(member)
    await at(150.0)
    world.network.partition(lambda peer_id: int(peer_id[-1] < "V"))
    await at(210.0)
    for member in honest[:5]:
        await world.start(member)
    world.network.break_connections(0.3)
    await at(270.0)
    world.network.heal()
    await world.start(bootstrap)
    await at(330.0)
    for _ in range(3):
        world.network.break_connections(0.05)
        await trio.sleep(60.0)
    check_delivery(world, since=360.0, share=0.99)
    assert all(member.node is not None for member in world.members), world.say("a node has exited")
    for node in world.up("honest"):
        assert node.live.outbox.num_unsent == 0, world.say(f"{node.peer_id} could not send")


def sharded(honest: int, shards: int) -> Plan:
    return Plan(honest=honest, shards=shards, node=CALM, links=LOSSY, skew_s=20.0)


@pytest.mark.slow
@seeds(2)
def test_a_swarm_of_shards_heals(seed: int, tmp_path: Path) -> None:
    simulate(seed, sharded(10, 2), tmp_path, troubled)


@pytest.mark.slow
@seeds(*range(20, 30))
def test_larger_swarms_of_shards_heal(seed: int, tmp_path: Path) -> None:
    simulate(seed, sharded(40, 4), tmp_path, troubled)


# Equal seeds give equal runs, whatever Python's hash seed.

REPLAY = """
import sys
from pathlib import Path
from tests.swarm.test_simulation import replayed
print(replayed(int(sys.argv[1]), Path(sys.argv[2])))
"""


async def short(world: World) -> None:
    await at(40.0)
    world.network.break_connections(0.5)
    await world.kill(world.of_kind("honest")[0])
    await at(70.0)


def replayed(seed: int, folder: Path) -> str:
    plan = Plan(
        honest=6,
        shards=2,
        node=NodeSettings(round_s=8.0, local=1),
        links=LOSSY,
        attackers=("equivocate", "garbage"),
    )
    return simulate(seed, plan, folder, short).trace


@pytest.mark.slow
def test_a_seed_is_one_run_and_another_seed_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted_shards, on_event = set[int](), Backfill.on_event

    def noted(backfill: Backfill, event: Event) -> None:
        if isinstance(event, ShardsChanged):
            noted_shards.add(id(backfill))
        on_event(backfill, event)

    with monkeypatch.context() as patch:
        patch.setattr(Backfill, "on_event", noted)
        here = replayed(5, tmp_path / "here")
    assert len(noted_shards) >= 6, "each of the honest hears of the shard that it listens to"
    assert replayed(6, tmp_path / "other") != here
    there = subprocess.run(
        [sys.executable, "-c", REPLAY, "5", str(tmp_path / "there")],
        env={**os.environ, "PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert there.stdout.strip() == here


# A hundred nodes that join and leave.

LONG_S = 3600.0 * float(os.environ.get("SHOAL_SIM_HOURS", "1"))


async def long_life(world: World) -> None:
    rng = world.rng
    honest = world.of_kind("honest")
    end = LONG_S
    while trio.current_time() < end - 1200.0:
        await trio.sleep(300.0)
        down = [member for member in honest if member.node is None]
        for member in down:
            await world.start(member)
        for member in rng.sample(honest, 8):
            await world.kill(member)
        world.network.break_connections(0.1)
        if rng.random() < 0.3:
            pivot = rng.choice(honest).peer_id
            world.network.partition(lambda peer_id, p=pivot: int(peer_id < p))
            await trio.sleep(60.0)
            world.network.heal()
    for member in honest:
        if member.node is None:
            await world.start(member)
    healed = trio.current_time()
    await at(end)
    check_delivery(world, since=healed + 300.0, share=0.999)
    assert world.share_of_draws("liar", since=end - 1800.0) < 0.02
    assert all(member.node is not None for member in world.members), world.say("a node has exited")


LONG = Plan(
    honest=100,
    liars=3,
    shards=8,
    node=NodeSettings(
        round_s=300.0,
        local=1,
        external=8,
        tick_s=10.0,
        heartbeat_s=10.0,
    ),
    links=LOSSY,
    skew_s=30.0,
    attackers=("garbage", "forge", "steal", "mismatch", "equivocate", "flood", "old"),
    attack_s=120.0,
    measure_after_s=LONG_S - 1300.0,
)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@seeds(11)
def test_an_hour_of_a_hundred_nodes(seed: int, tmp_path: Path) -> None:
    simulate(seed, LONG, tmp_path, long_life)
