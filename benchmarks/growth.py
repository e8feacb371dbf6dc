"""What a swarm costs as it grows: whole nodes on a simulated network, in virtual time.

Nodes come at random within a minute through one bootstrap of 256 slots. Each has a trainer that
publishes a group about every 60 s and draws two of others. Above 300 nodes discovery and shards
tick, and gossip beats, every ten seconds instead of every one. Node, SQL and signatures are real;
network, gossip and task worker are simulated (`shoal.simulation`), so that CPU is the nodes' own
and the simulation's, not py-libp2p's: for that see `scale`. Bytes are payloads and what gossip adds
to them; connections, ciphers and pings are not in them.

    python -m benchmarks.growth             some minutes of 100 and of 300 nodes
    python -m benchmarks.growth 1000x8x600  nodes x shards x virtual seconds, as many as wanted
"""

from __future__ import annotations

import logging
import resource
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean, median
from typing import Any

import trio

from benchmarks.harness import Goal, Options, Report, main, note
from shoal_wire.types import PeerId
from tests.support.simulated_node import NodeSettings, SimulatedNode, host_of
from tests.support.simulated_swarm import Plan, World, simulate

CASES = ("100x1x300", "100x8x300", "300x8x120")
QUICK = ("30x1x120", "30x4x120")
_ARRIVE_S = 60.0
_SEED = 7
_LOOK_S = 1.0
_MANY = 300
"""Nodes above which ticks and beats are slow."""


def measure(options: Options) -> Report:
    """Run each case in turn."""
    asked = [argument for argument in sys.argv[1:] if argument[0].isdigit()]
    results: dict[str, Any] = {}
    goals = []
    for case in asked or (QUICK if options.quick else CASES):
        note(f"{case} ...")
        nodes, shards, seconds = map(int, case.split("x"))
        found = results[case] = _run(nodes, shards, float(seconds))
        delivered = found["delivered"]
        goals.append(
            Goal(
                what=f"{case}: share of due deliveries that came",
                goal=">= 0.999",
                measured=delivered,
                met=delivered >= 0.999,
            )
        )
    return Report(results=results, goals=goals)


def _run(nodes: int, shards: int, seconds: float) -> dict[str, Any]:
    watch = _Watch(seconds)
    tick_s = 10.0 if nodes > _MANY else 1.0
    settings = NodeSettings(
        round_s=60.0, local=1, external=2, target_peers=8, tick_s=tick_s, heartbeat_s=tick_s
    )
    plan = Plan(
        honest=nodes,
        shards=shards,
        node=settings,
        arrive_s=_ARRIVE_S,
        measure_after_s=seconds / 2,
    )
    logging.disable(logging.CRITICAL)
    started = time.process_time()
    with tempfile.TemporaryDirectory(prefix="growth-") as folder:
        world = simulate(_SEED, plan, Path(folder), watch.script)
    cpu_s = time.process_time() - started
    sent = world.network.bytes_of
    (bootstrap,) = world.of_kind("bootstrap")
    waits = sorted(watch.met_s.values())
    came, due = watch.delivered
    return {
        "cpu_s": round(cpu_s, 1),
        "cpu_ms_a_node_minute": round(1000 * cpu_s / nodes / (seconds / 60), 1),
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        "gossip_messages": world.network.num_messages,
        "bytes_a_node_second": round(sum(sent.values()) / nodes / seconds),
        "bootstrap_bytes_a_second": round(sent[bootstrap.peer_id] / seconds),
        "bootstrap_connections_median": median(watch.at_bootstrap),
        "bootstrap_connections_most": max(watch.at_bootstrap),
        "connections_a_node": round(mean(watch.connections), 1),
        "connections_most": max(watch.connections),
        "shards_listened": round(mean(watch.shards), 2),
        "first_peer_s_median": round(median(waits), 1) if waits else None,
        "first_peer_s_most": round(waits[-1], 1) if waits else None,
        "never_met": nodes - len(waits),
        "delivered": round(came / max(1, due), 5),
        "deliveries_due": due,
        "delivery_s_p99": _p99(world.latencies),
    }


class _Watch:
    """Looks at the swarm once a second."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.met_s: dict[PeerId, float] = {}
        """How long each took, from its start to its first peer beside the bootstrap."""
        self.at_bootstrap: list[int] = []
        self.connections: list[int] = [0]
        self.shards: list[int] = [0]
        self.delivered = (0, 0)
        self._began: dict[PeerId, float] = {}

    async def script(self, world: World) -> None:
        """Watch until the end."""
        (bootstrap,) = world.of_kind("bootstrap")
        while trio.current_time() < self._seconds:
            await trio.sleep(_LOOK_S)
            house = world.network.host(bootstrap.peer_id)
            self.at_bootstrap.append(len(house.connected_peers()) if house is not None else 0)
            for node in world.up("honest"):
                self._look(node, bootstrap.peer_id)
        nodes = [node for node in world.up("honest") if node.has_joined]
        self.connections = [len(host_of(node).connected_peers()) for node in nodes]
        self.shards = [len(node.live.member.shards.shards) for node in nodes]
        self.delivered = world.delivery(since=self._seconds / 2)

    def _look(self, node: SimulatedNode, bootstrap: PeerId) -> None:
        if node.peer_id in self.met_s:
            return
        now = trio.current_time()
        began = self._began.setdefault(node.peer_id, now)
        host = node.network.host(node.peer_id)
        if host is not None and host.connected_peers() - {bootstrap}:
            self.met_s[node.peer_id] = now - began


def _p99(latencies: list[float]) -> float | None:
    found = sorted(latencies)
    return round(found[int(0.99 * (len(found) - 1))], 2) if found else None


if __name__ == "__main__":
    flags = [argument for argument in sys.argv[1:] if not argument[0].isdigit()]
    main("growth", __doc__ or "", measure, argv=flags)
