"""Whole nodes of a swarm that splits into shards, over links that lose messages and break."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import trio

from shoal_lab.simulation.network import LinkSettings
from shoal_p2p.shards import depth
from shoal_p2p.shards.depth import depth_in
from tests.support.simulated_node import NodeSettings
from tests.support.simulated_swarm import Plan, World, simulate


def depths(world: World) -> Counter[int]:
    """Return the members' shard depths."""
    return Counter(depth_in(node.live.member.shards.shards) for node in world.up("honest"))


@pytest.mark.timeout(900)
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_all_who_listen_hear_everything_while_the_swarm_divides(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(depth, "SPLIT_PER_S", 0.4)
    monkeypatch.setattr(depth, "MERGE_PER_S", 0.05)
    monkeypatch.setattr(depth, "MIN_PUBLISHERS", 4)
    seen: list[Counter[int]] = []

    async def script(world: World) -> None:
        for act in range(4):
            await trio.sleep(45)
            seen.append(depths(world))
            if act == 1:
                world.network.break_connections(0.3)
            if act == 2:
                world.network.partition(lambda peer_id: ord(peer_id[-1]) % 2)
                await trio.sleep(20)
                world.network.heal()
        await trio.sleep(60)
        arrived, due = world.delivery(since=30.0)
        assert due > 500
        assert arrived / due >= 0.998, (arrived, due)

    simulate(
        seed,
        Plan(
            honest=16,
            node=NodeSettings(round_s=8.0, external=1, local=1),
            links=LinkSettings(loss=0.01),
        ),
        tmp_path,
        script,
    )
    assert max(seen[0]) <= 1
    assert any(min(found) >= 1 for found in seen), seen
