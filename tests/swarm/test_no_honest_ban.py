"""No honest node ever bans an honest node, nor takes it below the mesh's threshold.

Random schedules: hostile peers that say whatever the messages can say (`simulated_hostile`), honest
nodes that restart, links that lose and break, clocks that are off. SHOAL_SIM_SEED=123 runs one.
"""

from __future__ import annotations

import itertools
import logging
import os
from pathlib import Path

import pytest
import trio

from shoal.simulation.network import LinkSettings
from shoal_p2p.gossip.flood_gate import FloodLimits
from shoal_p2p.gossip.settings import MeshSettings
from shoal_p2p.intake.ledger import LedgerLimits
from tests.support.simulated_hostile import hostile_peers, shuffled
from tests.support.simulated_node import NodeSettings
from tests.support.simulated_swarm import Plan, World, simulate

SEED = os.environ.get("SHOAL_SIM_SEED")
NUM_LONG = int(os.environ.get("SHOAL_SIM_SCHEDULES", "60"))
LIFE_S = 30.0

TIGHT = NodeSettings(
    round_s=3.0,
    local=1,
    external=2,
    target_peers=5,
    want_peers=4,
    ledger=LedgerLimits(groups_per_second=4.0, burst_groups=64.0),
    flood=FloodLimits(waste_per_second=4.0, waste_burst=40.0),
)
"""A twentieth of what nodes allow, so that a minute of a few peers reaches every bound."""


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Attackers make nodes say a lot."""
    caplog.set_level(logging.CRITICAL, logger="shoal_p2p")


def check(world: World) -> None:
    """What each honest node thinks of each other one, at this moment."""
    threshold = MeshSettings().gossip_threshold
    for one, other in itertools.permutations(world.of_kind("honest"), 2):
        if one.node is None or not one.node.has_joined:
            continue
        guard = one.node.live.peer.guard
        row = guard.reputation.row(other.peer_id, trio.current_time())
        assert row.score >= threshold, world.say(f"{one.name} of {other.name}: {row}")
        assert row.bans == 0, world.say(f"{one.name} has banned {other.name}")
    assert not world.failures, world.failures


async def schedule(world: World) -> None:
    die = shuffled(world.seed)
    hostile = hostile_peers(world, die.randint(1, 3))
    for one in hostile:
        world._nursery.start_soon(one.run, die.choice((0.5, 1.0, 2.0)))
    honest = world.of_kind("honest")
    while trio.current_time() < LIFE_S:
        await trio.sleep(2.0)
        check(world)
        event = die.random()
        if event < 0.08:
            member = die.choice(honest)
            if member.node is not None:
                await world.kill(member)
            await world.start(member)
        elif event < 0.16:
            world.network.break_connections(0.3)
    assert sum(one.acts for one in hostile) > 10, world.say("nothing was tried")


def run(seed: int, folder: Path) -> None:
    die = shuffled(seed)
    plan = Plan(
        honest=die.randint(3, 5),
        node=TIGHT,
        links=LinkSettings(loss=die.choice((0.0, 0.02, 0.1))),
        skew_s=die.choice((0.0, 20.0)),
    )
    simulate(seed, plan, folder, schedule)


@pytest.mark.parametrize("seed", [int(SEED)] if SEED else [6, 7])
def test_no_honest_node_bans_an_honest_node(seed: int, tmp_path: Path) -> None:
    run(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_no_honest_node_bans_an_honest_node_over_many_schedules(tmp_path: Path) -> None:
    for seed in range(100, 100 + NUM_LONG):
        run(seed, tmp_path / str(seed))
