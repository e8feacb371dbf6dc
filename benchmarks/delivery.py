"""Measures whether every batch arrives, how fast, and how a swarm recovers from a partition.

Whole nodes on loopback in two processes, one shard, each publishing a batch of eight groups (eight
completions of 200 characters) every five seconds. *calm*: no faults. *faulty*: every
connection through a proxy that delays each way by 200 ms and drops 5 % of the connections a minute.
*parted*: eight nodes, four on each side of a link that passes nothing for 60 s, while all publish;
then the time until they are one mesh again, and until every node has the batches it missed.
*overload*: as many nodes as in *calm*, each publishing at a pace that would need twice the
machine's cores at the cost of a delivery in *calm*. Latency runs from the call that puts a batch on
the publisher's disk to its first group's entry into another node's buffer. A publisher whose node
tells it to wait tries again twice a second, as a trainer does.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import (
    Goal,
    Options,
    Report,
    at_most,
    environment,
    main,
    median,
    note,
    percentile,
)
from benchmarks.link_proxies import Proxies
from benchmarks.swarm_fleet import Fleet, Run, open_fleet
from shoal_p2p.gossip.settings import MeshSettings

GROUPS = 8
CHARS = 200
EVERY_S = 5.0
DELAY_S = 0.2
LATE_S = 30.0
"""From publication to arrival; a slower delivery counts as late."""
DROPS_PER_MINUTE = 0.05
PARTED_NODES = 8
PARTED_SECONDS = 60.0
OVERLOAD = 2.0
"""Cores that the overload would need, as a multiple of the machine's."""
_HEAL_LIMIT_S = 120.0
_MESH_LOW = MeshSettings().degree_low


def measure(options: Options) -> Report:
    """Run the cases."""
    nodes, seconds = (8, 10.0) if options.quick else (32, 60.0)
    calm = _case("calm", nodes, seconds, Proxies)
    results: dict[str, Any] = {
        "calm": calm,
        "faulty": _case(
            "faulty",
            nodes,
            seconds,
            lambda: Proxies(delay_s=DELAY_S, drops_per_minute=DROPS_PER_MINUTE),
        ),
        "overload": _case("overload", nodes, max(30.0, seconds), Proxies, _overload_every_s(calm)),
        "parted": _parted(20.0 if options.quick else PARTED_SECONDS),
    }
    return Report(results=results, goals=_goals(results))


def _overload_every_s(calm: dict[str, Any]) -> float:
    """Return a publisher's pace at which all deliveries would need twice the machine's cores."""
    cores = environment()["cpus_usable"] or environment()["cpu_count"]
    cost_s = (calm["cpu_ms_per_delivery"] + calm["task_worker_cpu_ms_per_delivery"]) / 1000
    return float(calm["nodes"] * (calm["nodes"] - 1) * cost_s / (OVERLOAD * cores))


def _case(
    name: str,
    nodes: int,
    seconds: float,
    make_proxies: Callable[[], Proxies],
    every_s: float = EVERY_S,
) -> dict[str, Any]:
    note(f"{name}: {nodes} nodes, a batch each {every_s:.2f} s …")
    with (
        tempfile.TemporaryDirectory(prefix="shoal-") as folder,
        make_proxies() as proxies,
        open_fleet(
            Path(folder),
            num_nodes=nodes,
            # All nodes receive everything, also after the swarm has split into shards.
            keys={"subscribe_shards": "64"},
            proxies=proxies if name == "faulty" else None,
        ) as fleet,
    ):
        _settle(fleet)
        fleet.publish(every_s=EVERY_S, seconds=EVERY_S, groups=GROUPS, chars=CHARS)
        before = fleet.usage()
        run = fleet.publish(
            every_s=every_s, seconds=seconds, groups=GROUPS, chars=CHARS, drain_s=30
        )
        return {
            "nodes": nodes,
            "batches_made": nodes * math.ceil(seconds / every_s),
            **_delivered(run),
            "told_to_wait": run.num_refused,
            "publisher_late_s": round(run.late_s, 2),
            **_cost(run, before, fleet.usage()),
        }


def _cost(run: Run, before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """Return the CPU milliseconds per delivery, including the wait for the last ones."""
    delivered = max(1, len(run.latencies()))
    return {
        "cpu_ms_per_delivery": round(1000 * (after["cpu_s"] - before["cpu_s"]) / delivered, 2),
        "task_worker_cpu_ms_per_delivery": round(
            1000 * (after["worker_cpu_s"] - before["worker_cpu_s"]) / delivered, 2
        ),
    }


def _settle(fleet: Fleet) -> None:
    least = min(_MESH_LOW, fleet.num_nodes - 1)
    settled_s = fleet.wait_until(lambda states: all(s["mesh"] >= least for s in states), 120.0)
    note(f"  meshes after {settled_s:.0f} s")


def _delivered(run: Run) -> dict[str, Any]:
    latencies = run.latencies()
    due = run.num_due()
    return {
        "batches": len(run.published),
        "deliveries_due": due,
        "delivered_share": round(len(latencies) / max(1, due), 6),
        "of_it_late_share": round(sum(one > LATE_S for one in latencies) / max(1, due), 6),
        "lost": due - len(latencies),
        "p50_s": round(median(latencies), 3),
        "p99_s": round(percentile(latencies, 0.99), 3),
        "max_s": round(max(latencies), 3),
    }


def _parted(seconds: float) -> dict[str, Any]:
    note(f"parted: {PARTED_NODES} nodes, for {seconds:.0f} s …")
    with (
        tempfile.TemporaryDirectory(prefix="shoal-") as folder,
        Proxies() as proxies,
        open_fleet(Path(folder), num_nodes=PARTED_NODES, proxies=proxies) as fleet,
    ):
        _settle(fleet)
        fleet.publish(every_s=EVERY_S, seconds=EVERY_S, groups=GROUPS, chars=CHARS)
        before = fleet.usage()
        proxies.part()
        run = fleet.publish(every_s=EVERY_S, seconds=seconds, groups=GROUPS, chars=CHARS, drain_s=0)
        parted_share = len(run.latencies()) / run.num_due()
        proxies.heal()
        healed = time.monotonic()
        mesh_s = fetched_s = _HEAL_LIMIT_S
        while time.monotonic() - healed < _HEAL_LIMIT_S and _HEAL_LIMIT_S in (mesh_s, fetched_s):
            if mesh_s == _HEAL_LIMIT_S and _is_one_mesh(fleet):
                mesh_s = time.monotonic() - healed
            fleet.collect(run, 0.0)
            if fetched_s == _HEAL_LIMIT_S and len(run.latencies()) == run.num_due():
                fetched_s = time.monotonic() - healed
            time.sleep(0.25)
        return {
            "seconds": seconds,
            "delivered_share_while_parted": round(parted_share, 3),
            "full_mesh_after_s": round(mesh_s, 1),
            "missed_fetched_after_s": round(fetched_s, 1),
            "delivered_share_in_the_end": round(len(run.latencies()) / run.num_due(), 6),
            **_cost(run, before, fleet.usage()),
        }


def _is_one_mesh(fleet: Fleet) -> bool:
    """True if every mesh has its minimum size, and a peer from the other side."""
    one, other = fleet.ask("connected")
    return all(
        len(state["mesh"]) >= _MESH_LOW and bool(set(state["mesh"]) & set(across))
        for here, across in ((one, other), (other, one))
        for state in here.values()
    )


def _goals(results: dict[str, Any]) -> list[Goal]:
    calm, faulty, parted = results["calm"], results["faulty"], results["parted"]
    overload = results["overload"]

    def share(name: str, case: dict[str, Any], least: float) -> Goal:
        return Goal(
            what=f"delivered, {name}",
            goal=f">= {100 * least:g} %",
            measured=case["delivered_share"],
            met=case["delivered_share"] >= least,
        )

    def p99(name: str, case: dict[str, Any], most: float) -> Goal:
        return at_most(f"p99, {name} (s)", case["p99_s"], most)

    return [
        share("calm", calm, 0.999),
        p99("calm", calm, 2.0),
        share("faulty", faulty, 0.99),
        p99("faulty", faulty, 5.0),
        share("overload", overload, 1.0),
        p99("overload", overload, 10.0),
        at_most("full mesh after a parting (s)", parted["full_mesh_after_s"], 15),
        Goal(
            what="missed batches fetched after a parting",
            goal="all",
            measured=parted["delivered_share_in_the_end"],
            met=parted["delivered_share_in_the_end"] == 1,
        ),
    ]


if __name__ == "__main__":
    sys.exit(main("delivery", __doc__ or "", measure))
