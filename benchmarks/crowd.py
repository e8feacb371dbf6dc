"""What breaks first as a swarm grows: thousands of nodes' rules and messages, in virtual time.

Every node is one of `shoal_lab.simulation.crowd`: real discovery, peer lists, shards with their
division, and meshes; no streams, signatures, SQL or repair, so that what gossip loses stays lost.
The swarm doubles every minute from 64 nodes on, through one bootstrap of 256 slots; each publishes
a batch of one group a minute and draws two of others. `tests/lab/test_crowd.py` holds it to whole
nodes.

    python -m benchmarks.crowd                   500 nodes, five minutes
    python -m benchmarks.crowd 10000x900         nodes x virtual seconds, as many as wanted
    python -m benchmarks.crowd 10000x900x1800    the same, for at most 1,800 s of CPU
"""

from __future__ import annotations

import gc
import logging
import math
import resource
import sys
import time
from collections import Counter
from collections.abc import Sequence
from statistics import mean, median
from typing import Any

import trio

from benchmarks.harness import Goal, Options, Report, at_most, main, note
from shoal_lab.simulation.clock import deterministic, jumping_clock
from shoal_lab.simulation.crowd import Crowd, CrowdNode, CrowdSettings
from shoal_p2p.shards.depth import depth_in
from tests.support import factories as make
from tests.support.simulated_swarm import memoised

CASE, QUICK = "500x300", "100x120"
FIRST, DOUBLES_S = 64, 60.0
DATA_BYTES = 1700
"""An envelope of one group of eight completions of 200 characters."""
_SEED = 7
_LOOK_S = 10.0
_TRACED = 300
"""Batches of a round whose deliveries are recorded."""


def measure(options: Options) -> Report:
    """Run each case in turn."""
    arguments = [argument for argument in sys.argv[1:] if argument[0].isdigit()]
    results: dict[str, Any] = {}
    goals: list[Goal] = []
    for case in arguments or [QUICK if options.quick else CASE]:
        note(f"{case} ...")
        nodes, seconds, *cpu_s = map(int, case.split("x"))
        logging.disable(logging.CRITICAL)
        gc.disable()  # a crowd makes no cycles: a collection would find nothing
        with deterministic(_SEED), memoised():
            found = trio.run(
                _play, nodes, float(seconds), float(*cpu_s or [math.inf]), clock=jumping_clock()
            )
        gc.collect()
        results[case] = found
        goals += [
            Goal(
                what=f"{case}: share of due deliveries that came by gossip alone",
                goal=">= 0.99",
                measured=found["delivered"],
                met=found["delivered"] >= 0.99,
            ),
            at_most(f"{case}: bytes a node sends a second, at the end", found["bytes"], 50_000),
        ]
    return Report(results=results, goals=goals)


def arrivals(nodes: int) -> list[float]:
    """Return each node's arrival: 64 at once, then twice as many each minute."""
    return [DOUBLES_S * math.log2(max(1.0, number / FIRST)) for number in range(1, nodes + 1)]


async def _play(nodes: int, seconds: float, most_cpu_s: float) -> dict[str, Any]:
    settings = CrowdSettings(data_bytes=DATA_BYTES, traced=min(1.0, _TRACED / nodes))
    crowd = Crowd(arrivals(nodes), seed=_SEED, manifest=make.swarm("crowd"), settings=settings)
    began, worst = time.process_time(), dict[str, float]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(crowd.run)
        before = _Look(crowd)
        while trio.current_time() < seconds and time.process_time() - began < most_cpu_s:
            await trio.sleep(_LOOK_S)
            now = _Look(crowd)
            rates = now.since(before)
            worst = {key: max(rates[key], worst.get(key, 0.0)) for key in _WORST}
            note(
                f"{trio.current_time():.0f} s, {time.process_time() - began:.0f} s of CPU: {rates}"
            )
            before = now
        nursery.cancel_scope.cancel()
        return {
            "virtual_s": trio.current_time(),
            "cpu_s": round(time.process_time() - began),
            "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
            **crowd.figures(since=trio.current_time() / 2),
            **rates,
            **{f"{key}_worst": value for key, value in worst.items()},
            "bootstrap_refused": crowd.bootstrap_node.conn_manager.counters.peers_refused,
        }


_WORST = ("heard", "bytes", "busiest_bytes", "bootstrap_connections", "bootstrap_bytes")


class _Look:
    """Totals of all nodes' actions and bytes at one moment."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._at = trio.current_time()
        self._received = {node: node.num_received for node in crowd.nodes}
        self._bytes = Counter(crowd.network.bytes_of)

    def since(self, before: _Look) -> dict[str, Any]:
        """Return the rates per node and second."""
        crowd, seconds = self._crowd, max(1e-9, self._at - before._at)
        old = [node for node in crowd.nodes if node in before._received]

        def sent(node: CrowdNode) -> float:
            name = node.host.peer_id
            return (self._bytes[name] - before._bytes[name]) / seconds

        received = [(self._received[node] - before._received[node]) / seconds for node in old]
        uplinks = [sent(node) for node in old]
        depths = Counter(depth_in(node.keeper.shards) for node in crowd.nodes)
        return {
            "nodes": len(crowd.nodes),
            "heard": _mean(received),
            "bytes": _mean(uplinks),
            "busiest_bytes": round(max(uplinks, default=0.0)),
            "bootstrap_bytes": round(sent(crowd.bootstrap_node)),
            "bootstrap_connections": len(crowd.bootstrap_node.host.connected_peers()),
            "connections": _mean([len(node.host.connected_peers()) for node in old]),
            "topics": _mean([len(node.gossip.topics()) for node in old]),
            "depth_median": median(depths.elements()) if depths else 0,
            "depths": dict(sorted(depths.items())),
        }


def _mean(values: Sequence[float]) -> float:
    return round(mean(values), 2) if values else 0.0


if __name__ == "__main__":
    flags = [argument for argument in sys.argv[1:] if not argument[0].isdigit()]
    sys.exit(main("crowd", __doc__ or "", measure, argv=flags))
