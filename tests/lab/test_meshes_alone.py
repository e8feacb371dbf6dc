"""Gossip's meshes alone: all deliveries arrive, deterministically, at a cost that does not grow."""

from __future__ import annotations

import pytest

from shoal_lab.simulation.meshes_alone import MeshSwarm
from shoal_p2p.gossip.settings import GossipSettings, MeshSettings


def played(num_nodes: int, **how: object) -> MeshSwarm:
    swarm = MeshSwarm(num_nodes, seed=3, **how)  # type: ignore[arg-type]
    swarm.run(12.0)
    swarm.forget()
    swarm.run(16.0)
    return swarm


@pytest.fixture(scope="module")
def swarm() -> MeshSwarm:
    return played(24)


def test_every_node_hears_every_message() -> None:
    swarm = MeshSwarm(24, seed=3)
    swarm.run(30.0)
    swarm.is_quiet = True
    swarm.run(2.0)
    assert swarm.published > 24
    assert swarm.delivered == 1.0
    assert max(swarm.delays_s) < 1.0, "over the mesh, not by the offers of a heartbeat"


def test_copies_are_most_of_the_bytes_and_control_is_little(swarm: MeshSwarm) -> None:
    total = sum(swarm.bytes_of.values())
    assert swarm.bytes_of["copy"] > 0.5 * total
    assert swarm.bytes_of["ihave"] < 0.1 * total


def test_the_same_seed_is_the_same_run(swarm: MeshSwarm) -> None:
    swarm, again = played(12), played(12)
    assert swarm.bytes_of == again.bytes_of
    assert swarm.delays_s == again.delays_s


def test_a_message_costs_as_much_in_a_swarm_four_times_as_large() -> None:
    """Checks only that no cost grows with the swarm; `benchmarks.scale` has the figures."""

    def cost(num_nodes: int) -> float:
        swarm = played(num_nodes)
        return sum(swarm.bytes_of.values()) / len(swarm.delays_s)

    assert cost(64) == pytest.approx(cost(16), rel=0.2)


def test_idontwant_reduces_duplicate_copies(swarm: MeshSwarm) -> None:
    without_copies = played(24, settings=GossipSettings(mesh=MeshSettings(idontwant_bytes=0)))
    assert without_copies.frames_of["idontwant"] > 0 == swarm.frames_of["idontwant"]
    assert without_copies.frames_of["copy"] < 0.95 * swarm.frames_of["copy"]
