"""The price of families that a node did not accept: bytes, messages and CPU, in virtual time.

A swarm of 100 nodes has 30 families of rows, of which each node accepts four. It is compared with a
swarm that has only four, and as many nodes for each family: both give a node the same batches. The
nodes are those of `shoal_lab.simulation.crowd`, whose discovery, shards and meshes are real. CPU is
that of the whole simulation for each node and virtual second.

    python -m benchmarks.topics            100 nodes, ten minutes
    python -m benchmarks.topics --quick    45 nodes, three minutes
"""

from __future__ import annotations

import gc
import logging
import sys
import time
from collections import Counter
from statistics import mean
from typing import Any

import trio

from benchmarks.harness import Options, Report, at_most, main, note
from shoal_lab.simulation.clock import deterministic, jumping_clock
from shoal_lab.simulation.crowd import Crowd, CrowdSettings
from shoal_tasks.spec import EXACT, VERIFIER_VERSIONS, FamilySpec
from shoal_tasks.swarm import families_of
from shoal_wire.manifest import Manifest, make_manifest
from tests.support.simulated_swarm import memoised

FAMILIES, ACCEPTED = 30, 4
DATA_BYTES = 1700
"""An envelope of one group of eight completions of 200 characters."""
_SEED = 7
_SETTLED_S = 120.0


def measure(options: Options) -> Report:
    """Run both swarms."""
    nodes, seconds = (45, 180.0) if options.quick else (100, 600.0)
    many = play(nodes, FAMILIES, seconds)
    few = play(round(nodes * ACCEPTED / FAMILIES), ACCEPTED, seconds)
    goals = [
        at_most(
            f"{what} of a node, relative to a swarm of its own families",
            many[key] / few[key],
            1.2,
        )
        for key, what in (("bytes", "bytes"), ("received", "batches"), ("cpu_ms", "CPU"))
    ]
    return Report(results={"many": many, "few": few}, goals=goals)


def play(nodes: int, families: int, seconds: float) -> dict[str, Any]:
    """Return the figures of a swarm of so many nodes and families."""
    note(f"{nodes} nodes, {families} families ...")
    logging.disable(logging.CRITICAL)
    gc.disable()  # a crowd makes no cycles: a collection would find nothing
    with deterministic(_SEED), memoised():
        found = trio.run(_play, nodes, _swarm(families), seconds, clock=jumping_clock())
    gc.collect()
    note(str(found))
    return found


def _swarm(families: int) -> Manifest:
    specs = [
        FamilySpec(
            name=f"family {number}",
            generator="rows",
            config={"sha256": f"{number:064x}", "rows": 9, "held_out": 1, "split": "question"},
            verifier=EXACT,
            verifier_version=VERIFIER_VERSIONS[EXACT],
        )
        for number in range(families)
    ]
    return make_manifest("topics", families_of(specs))


async def _play(nodes: int, manifest: Manifest, seconds: float) -> dict[str, Any]:
    settings = CrowdSettings(data_bytes=DATA_BYTES, families=ACCEPTED, round_s=20.0)
    crowd = Crowd([0.1 * number for number in range(nodes)], seed=_SEED, manifest=manifest,
                  settings=settings)  # fmt: skip
    async with trio.open_nursery() as nursery:
        nursery.start_soon(crowd.run)
        await trio.sleep(_SETTLED_S)
        began, sent = time.process_time(), Counter(crowd.network.bytes_of)
        before = {node: node.num_received for node in crowd.nodes}
        await trio.sleep(seconds - _SETTLED_S)
        cpu_s, span = time.process_time() - began, seconds - _SETTLED_S
        nursery.cancel_scope.cancel()
        names = [node.host.peer_id for node in crowd.nodes]
        return {
            "nodes": nodes,
            "bytes": round(mean(crowd.network.bytes_of[one] - sent[one] for one in names) / span),
            "received": round(mean(n.num_received - before[n] for n in crowd.nodes) / span, 3),
            "cpu_ms": round(1000 * cpu_s / span / nodes, 3),
            "connections": round(mean(len(n.host.connected_peers()) for n in crowd.nodes), 1),
            "topics": round(mean(len(n.gossip.topics()) for n in crowd.nodes), 1),
            **crowd.figures(since=_SETTLED_S),
        }


if __name__ == "__main__":
    sys.exit(main("topics", __doc__ or "", measure))
