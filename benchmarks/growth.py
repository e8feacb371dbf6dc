"""Cost of a swarm as it grows: whole nodes on a simulated network, in virtual time.

Nodes join at random within a minute through one bootstrap of 256 slots. Each has a trainer that
publishes a group about every 60 s and samples two external ones. Above 300 nodes shards tick and
gossip has its heartbeat every ten seconds instead of every one; peer exchange keeps a node's normal
pace. Node, SQL and signatures are real; network, gossip and task worker are simulated
(`shoal_lab.simulation`), so that CPU is the nodes' own and the simulation's, not py-libp2p's: for
that see `delivery`. Bytes are payloads and gossip's overhead, without connections, encryption and
pings.

    python -m benchmarks.growth                  some minutes of 100 and of 300 nodes
    python -m benchmarks.growth 1000x8x600       nodes x shards x virtual seconds, as many as wanted
    python -m benchmarks.growth 10000x8x600x900  the same, for at most 900 s of CPU

A run that exhausts its CPU or memory, or is interrupted (Ctrl-C), ends there and reports the time
it had: the cost of a virtual second at that point shows how it broke.
"""

from __future__ import annotations

import logging
import math
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any

import psutil
import trio

from benchmarks.harness import Goal, Options, Report, main, note
from shoal_lab.simulation.gossip import SimulatedGossip
from shoal_wire.types import PeerId
from tests.support.simulated_node import NodeSettings, SimulatedNode, host_of
from tests.support.simulated_swarm import Plan, World, simulate

CASES = ("100x1x300", "100x8x300", "300x8x120")
QUICK = ("30x1x120", "30x4x120")
_ARRIVE_S = 60.0
"""Deliveries are counted from then on, or in the second half of a shorter run, and only to nodes
that have been on the shard for 30 s."""
_SEED = 7
_LOOK_S = 1.0
_TELL_S = 10.0
_MANY = 300
"""Number of nodes above which ticks and heartbeats are slow."""
_LEAST_FREE_BYTES = 1 << 30
_FILES_A_NODE = 4
"""Open files of a node: a database has three."""


def measure(options: Options) -> Report:
    """Run each case in turn."""
    arguments = [argument for argument in sys.argv[1:] if argument[0].isdigit()]
    results: dict[str, Any] = {}
    goals = []
    for case in arguments or (QUICK if options.quick else CASES):
        note(f"{case} ...")
        nodes, shards, seconds, *cpu_s = map(int, case.split("x"))
        found = results[case] = _run(nodes, shards, float(seconds), *map(float, cpu_s))
        delivered = found["delivered"]
        goals += [
            Goal(
                what=f"{case}: share of due deliveries that came",
                goal=">= 0.999",
                measured=delivered,
                met=delivered is not None and delivered >= 0.999,
            ),
            Goal(
                what=f"{case}: virtual seconds run",
                goal=f"{seconds}",
                measured=found["virtual_s"],
                met=found["ended_by"] == "time",
            ),
        ]
    return Report(results=results, goals=goals)


def _run(nodes: int, shards: int, seconds: float, most_cpu_s: float = math.inf) -> dict[str, Any]:
    _allow_files(_FILES_A_NODE * nodes)
    watch = _Watch(seconds, most_cpu_s)
    tick_s = 10.0 if nodes > _MANY else 1.0
    settings = NodeSettings(
        round_s=60.0,
        local=1,
        external=2,
        target_peers=8,
        tick_s=tick_s,
        discovery_s=1.0,
        heartbeat_s=tick_s,
    )
    plan = Plan(
        honest=nodes,
        shards=shards,
        node=settings,
        arrive_s=_ARRIVE_S,
        measure_after_s=watch.counted_from_s,
    )
    logging.disable(logging.CRITICAL)
    before = signal.signal(signal.SIGINT, watch.stop)
    try:
        with tempfile.TemporaryDirectory(prefix="growth-", ignore_cleanup_errors=True) as folder:
            world = simulate(_SEED, plan, Path(folder), watch.script)
    finally:
        signal.signal(signal.SIGINT, before)
    return watch.found(world)


def _allow_files(count: int) -> None:
    """Raise this process's limit on open files by `count`, where that is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, max(soft, count + 256)) if hard != resource.RLIM_INFINITY else count + 256
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class _Watch:
    """Looks at the swarm once a second."""

    def __init__(self, seconds: float, most_cpu_s: float) -> None:
        self.counted_from_s = min(seconds / 2, _ARRIVE_S)
        self._seconds = seconds
        self._most_cpu_s = most_cpu_s
        self._began_cpu_s = time.process_time()
        self._ended_by = "time"
        self._now = 0.0
        self._cpu_s: list[float] = [0.0]
        """Figures by virtual second."""
        self._company_s: dict[PeerId, float] = {}
        """Seconds of each node from its start to its first peer other than the bootstrap."""
        self._began: dict[PeerId, float] = {}
        self._bootstrap: list[tuple[int, int]] = [(0, 0)]
        """The bootstrap's connections and bytes sent, by virtual second."""
        self._refused = 0
        self._nodes: list[SimulatedNode] = []
        self._connections: list[int] = [0]
        self._shards: list[int] = [0]
        self._hops: Counter[int] = Counter()
        self._delivered = (0, 0)

    def stop(self, *_signal: object) -> None:
        """End the run at its next sample."""
        self._ended_by = "a person"

    async def script(self, world: World) -> None:
        """Watch until the end."""
        reported_s = 0.0
        while self._goes_on():
            await trio.sleep(_LOOK_S)
            self._now = trio.current_time()
            self._look(world)
            if self._now - reported_s >= _TELL_S:
                reported_s = self._now
                note(self._line(world))
        nodes = [node for node in world.up("honest") if node.has_joined]
        self._connections = [len(host_of(node).connected_peers()) for node in nodes]
        self._shards = [len(node.live.member.shards.shards) for node in nodes]
        for node in nodes:
            gossip = host_of(node).gossip
            assert isinstance(gossip, SimulatedGossip)
            self._hops.update(gossip.hops)
        self._delivered = world.delivery(since=self.counted_from_s)

    def _goes_on(self) -> bool:
        if self._cpu_s[-1] > self._most_cpu_s:
            self._ended_by = "cpu"
        elif psutil.virtual_memory().available < _LEAST_FREE_BYTES:
            self._ended_by = "memory"
        return self._now < self._seconds and self._ended_by == "time"

    def _look(self, world: World) -> None:
        (bootstrap,) = world.of_kind("bootstrap")
        bootstrap_host = world.network.host(bootstrap.peer_id)
        if bootstrap_host is not None:
            sent = world.network.bytes_of[bootstrap.peer_id]
            self._bootstrap.append((len(bootstrap_host.connected_peers()), sent))
            self._refused = sum(bootstrap_host.refused_connections().values())
        for node in world.up("honest"):
            if node.peer_id not in self._company_s:
                began = self._began.setdefault(node.peer_id, self._now)
                host = node.network.host(node.peer_id)
                if host is not None and host.connected_peers() - {bootstrap.peer_id}:
                    self._company_s[node.peer_id] = self._now - began
        self._cpu_s.append(time.process_time() - self._began_cpu_s)

    def _line(self, world: World) -> str:
        return (
            f"{self._now:.0f} s: {self._cpu_s[-1]:.0f} s of CPU, {_rss_mib()} MiB, "
            f"{len(world.up('honest'))} up, {len(self._company_s)} have a peer, "
            f"{self._bootstrap[-1][0]} at the bootstrap, {world.network.num_messages} messages"
        )

    def found(self, world: World) -> dict[str, Any]:
        """Return the figures."""
        nodes, seconds, sent = world.plan.honest, max(1.0, self._now), world.network.bytes_of
        waits = sorted(self._company_s.values())
        arrived, due = self._delivered
        (bootstrap,) = world.of_kind("bootstrap")
        slots = [connections for connections, _ in self._bootstrap]
        bytes_by_s = [after[1] - before[1] for before, after in pairwise(self._bootstrap)]
        hops = sorted(self._hops.elements())
        return {
            "virtual_s": round(self._now),
            "ended_by": self._ended_by,
            "cpu_s": round(self._cpu_s[-1], 1),
            "cpu_ms_a_node_minute": round(1000 * self._cpu_s[-1] / nodes / (seconds / 60), 1),
            "cpu_s_a_second_arriving": self._pace(0.0, _ARRIVE_S),
            "cpu_s_a_second_at_the_end": self._pace(self._now - 20.0, self._now),
            "rss_mib": _rss_mib(),
            "gossip_messages": world.network.num_messages,
            "messages_a_node_second": round(world.network.num_messages / nodes / seconds, 2),
            "bytes_a_node_second": round(sum(sent.values()) / nodes / seconds),
            "bootstrap_bytes_a_second": round(sent[bootstrap.peer_id] / seconds),
            "bootstrap_bytes_a_second_most": max(bytes_by_s, default=0),
            "bootstrap_connections_median": median(slots),
            "bootstrap_connections_most": max(slots),
            "bootstrap_refused": self._refused,
            "connections_a_node": round(mean(self._connections or [0]), 1),
            "connections_most": max(self._connections, default=0),
            "shards_listened": round(mean(self._shards or [0]), 2),
            "arrived": len(self._began),
            "first_peer_s_median": _share(waits, 0.5),
            "first_peer_s_p99": _share(waits, 0.99),
            "first_peer_s_most": _share(waits, 1.0),
            "never_met": len(self._began) - len(waits),
            "longest_alone_s": self._longest_alone_s(),
            "delivered": round(arrived / due, 5) if due else None,
            "deliveries_due": due,
            "delivery_s_median": _share(sorted(world.latencies), 0.5),
            "delivery_s_p99": _share(sorted(world.latencies), 0.99),
            "hops_median": _share(hops, 0.5),
            "hops_most": _share(hops, 1.0),
        }

    def _pace(self, since_s: float, until_s: float) -> float | None:
        """Return the CPU seconds per virtual second between these two."""
        last = min(len(self._cpu_s) - 1, int(until_s))
        first = max(0, int(since_s))
        if last <= first:
            return None
        return round((self._cpu_s[last] - self._cpu_s[first]) / (last - first), 2)

    def _longest_alone_s(self) -> float:
        """Return the longest time that a node has run without a peer, up to the end; 0 if all have
        one."""
        alone = [self._now - at for peer, at in self._began.items() if peer not in self._company_s]
        return round(max(alone, default=0.0), 1)


def _rss_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def _share(ordered: list[float] | list[int], share: float) -> float | None:
    """Return the value below which a share of these lies."""
    return round(ordered[int(share * (len(ordered) - 1))], 2) if ordered else None


if __name__ == "__main__":
    flags = [argument for argument in sys.argv[1:] if not argument[0].isdigit()]
    main("growth", __doc__ or "", measure, argv=flags)
