"""The swarm of protocol rules alone, compared with whole nodes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
import trio

from shoal_lab.simulation.clock import deterministic, jumping_clock
from shoal_lab.simulation.crowd import Crowd, CrowdSettings
from shoal_lab.simulation.host import SimulatedHost
from shoal_lab.simulation.network import SimulatedNetwork
from shoal_p2p.shards import depth
from shoal_p2p.shards.depth import depth_in
from shoal_wire.types import PeerId
from tests.support import factories as make
from tests.support.simulated_node import NodeSettings, host_of
from tests.support.simulated_swarm import Plan, World, memoised, simulate


def played(
    num_nodes: int,
    seconds: float,
    settings: CrowdSettings,
    *,
    seed: int = 1,
    look: Callable[[Crowd], None] = lambda _crowd: None,
) -> Crowd:
    """Let nodes join within a minute, and return the swarm after `seconds` seconds."""
    rng = random.Random(seed)
    arrivals = sorted(rng.uniform(0, 60) for _ in range(num_nodes))
    crowd: list[Crowd] = []

    async def main() -> None:
        made = Crowd(arrivals, seed=seed, manifest=make.swarm(), settings=settings)
        crowd.append(made)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(made.run)
            await trio.sleep(seconds)
            look(made)
            nursery.cancel_scope.cancel()

    with deterministic(seed), memoised():
        trio.run(main, clock=jumping_clock())
    return crowd[0]


@pytest.mark.slow
def test_all_hear_everything_and_the_same_seed_is_the_same_run() -> None:
    found: list[dict[str, Any]] = []
    for _ in range(2):
        played(24, 130, CrowdSettings(), look=lambda crowd: found.append(crowd.figures(60.0)))
    assert found[0]["due"] > 150
    assert found[0]["delivered"] == 1.0
    assert found[0]["delay_s"][1] < 1.0, "over the mesh, not by the offers of a heartbeat"
    assert found[0] == found[1]


@pytest.mark.slow
def test_it_divides_itself_and_all_who_listen_hear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depth, "SPLIT_PER_S", 0.4)
    monkeypatch.setattr(depth, "MERGE_PER_S", 0.05)
    monkeypatch.setattr(depth, "MIN_PUBLISHERS", 4)
    depths: Counter[int] = Counter()

    def look(crowd: Crowd) -> None:
        depths.update(depth_in(node.keeper.shards) for node in crowd.nodes)
        due, delays = crowd.deliveries(60.0)
        assert due > 500
        assert len(delays) / due >= 0.99

    played(24, 200, CrowdSettings(round_s=8.0, external=1), look=look)
    assert min(depths) >= 1, depths


def figures_of(
    delivered: float, hops: Iterable[Counter[int]], network: SimulatedNetwork, requested: int
) -> tuple[float, ...]:
    """Return the compared figures; `requested` are the bytes of requests."""
    of_all: Counter[int] = Counter()
    for one in hops:
        of_all.update(one)
    received = of_all.total()
    gossiped = sum(network.bytes_of.values()) - requested
    return delivered, network.num_messages / received, gossiped / received, mean(of_all.elements())


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("num_nodes", [100, 300])
def test_it_sends_what_whole_nodes_send(
    num_nodes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within 5 %: deliveries, and for each of them messages, gossip's bytes, hops.

    Whole nodes also request batches that they may have missed, so the bytes of requests are
    subtracted.
    """
    requested: list[int] = []
    ask = SimulatedHost._request

    async def counted(host: SimulatedHost, peer: PeerId, *what: Any) -> bytes:
        answer = await ask(host, peer, *what)
        requested.append(len(what[1]) + len(answer))
        return answer

    monkeypatch.setattr(SimulatedHost, "_request", counted)
    found: list[tuple[float, ...]] = []
    data_bytes: list[int] = []

    async def script(world: World) -> None:
        await trio.sleep(200)
        arrived, due = world.delivery(since=60.0)
        data_bytes.append(round(mean(map(len, world.envelopes))))
        hops = [host_of(node).gossip.hops for node in world.up("honest")]
        found.append(figures_of(arrived / due, hops, world.network, sum(requested)))
        requested.clear()

    node = NodeSettings(round_s=60.0, local=1, external=2, discovery_s=1.0)
    plan = Plan(honest=num_nodes, node=node, arrive_s=60.0, measure_after_s=60.0)
    simulate(7, plan, tmp_path, script)

    def look(crowd: Crowd) -> None:
        due, delays = crowd.deliveries(60.0)
        hops = [node.gossip.hops for node in crowd.nodes]
        found.append(figures_of(len(delays) / due, hops, crowd.network, sum(requested)))

    played(num_nodes, 200, CrowdSettings(data_bytes=data_bytes[0]), look=look)
    whole, alone = found
    assert alone == pytest.approx(whole, rel=0.05)
