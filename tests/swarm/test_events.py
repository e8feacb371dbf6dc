"""What is folded from a node's events agrees with what the simulation has counted by itself."""

from __future__ import annotations

from pathlib import Path

import trio

from shoal_lab.simulation.network import LinkSettings
from shoal_p2p.events import Source
from tests.support.simulated_node import NodeSettings, SimulatedNode
from tests.support.simulated_swarm import Plan, World, simulate

LOCAL = 2
PLAN = Plan(
    honest=4,
    node=NodeSettings(round_s=20.0, local=LOCAL, tick_s=2.0),
    links=LinkSettings(loss=0.02),
)


async def counted(world: World) -> None:
    """Compare ten times; one node is away in the middle and fetches what it missed."""
    away = world.up("honest")[0].peer_id
    for number in range(1, 11):
        await trio.sleep_until(40.0 * number)
        if number == 3:
            world.network.partition(lambda peer_id: int(peer_id == away))
        if number == 6:
            world.network.heal()
        for node in world.up("honest"):
            await compare(world, node)
    (first,) = (node for node in world.up("honest") if node.peer_id == away)
    fetched = first.live.counters.batches
    assert fetched[Source.GOSSIP] > 0 < fetched[Source.BACKFILL] + fetched[Source.GAP]


async def compare(world: World, node: SimulatedNode) -> None:
    published = sum(publisher == node.peer_id for publisher in world.valid.values())
    received = sum(node in receivers for receivers in world.received.values())
    status = await node.live.views.status({})
    fetch = node.live.exchange.view()
    # The same tick has no await from here on.
    counters, waiting = node.live.counters, node.live.member.intake.queue_length()
    unwritten = len(node.live.pool._unwritten)
    assert counters.groups_published == LOCAL * published
    assert counters.groups_received == LOCAL * (received + unwritten)
    assert sum(counters.batches.values()) == received + unwritten + waiting
    assert sum(counters.groups.values()) == LOCAL * sum(counters.batches.values())
    assert (status.groups_published, status.groups_received) == (
        counters.groups_published,
        counters.groups_received,
    )
    assert (fetch.batches, fetch.groups) == (counters.batches, counters.groups)


def test_counters_agree_with_the_simulation(tmp_path: Path) -> None:
    simulate(11, PLAN, tmp_path, counted)
