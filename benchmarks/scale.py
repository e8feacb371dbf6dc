"""Cost of a node as its swarm grows: bytes and CPU for each batch that it receives, and idle.

*real*: whole nodes on loopback in two processes, one swarm with default settings. After an idle
phase without publications, each publishes a batch of four groups every 16 seconds. The cost of an
idle node is subtracted, and the rest is divided by the batches received. *meshes*: gossip's meshes
alone, in virtual time, with messages as long as the real ones, for swarms too large for this
machine (`shoal_lab.simulation.meshes_alone`). A node receives more in a larger swarm, until its
topics split; so the figure that should stay constant is the cost per batch received.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness import Goal, Options, Report, main, note
from benchmarks.swarm_fleet import Fleet, open_fleet
from shoal_lab.simulation.meshes_alone import MeshSwarm
from shoal_p2p.gossip.settings import MeshSettings

SIZES = (8, 16, 32)
MESHES = (8, 64, 256)
EVERY_S = 16.0
IDLE_S = 30.0
PUBLISHING_S = 48.0
GROUPS, CHARS = 4, 200
DATA_BYTES = 2800
"""An envelope of such a batch, as the real nodes send it."""
_FLAT = 0.2


def measure(options: Options) -> Report:
    """Measure every size."""
    sizes, meshes = (SIZES[:1], MESHES[:2]) if options.quick else (SIZES, MESHES)
    scale = 0.25 if options.quick else 1.0
    real = {f"{nodes}": _real(nodes, scale) for nodes in sizes}
    alone = {f"{nodes}": _alone(nodes, scale) for nodes in meshes}
    goals = [
        *_flat("real", real, "bytes_a_batch"),
        *_flat("real", real, "cpu_ms_a_batch"),
        *_flat("meshes", alone, "bytes_a_batch"),
    ]
    return Report(results={"real": real, "meshes": alone}, goals=goals)


def _flat(what: str, cases: Mapping[str, Mapping[str, Any]], figure: str) -> list[Goal]:
    """Return the goal that a node costs the same in the largest swarm as in the smallest, if there
    are two."""
    least, *_, most = [*cases, *cases]
    if least == most:
        return []
    grown = cases[most][figure] / cases[least][figure] - 1
    return [
        Goal(
            what=f"{what}, {figure}: {most} nodes against {least}",
            goal="within 20 %",
            measured=round(grown, 3),
            met=abs(grown) <= _FLAT,
        )
    ]


# Whole nodes


def _real(nodes: int, scale: float) -> dict[str, Any]:
    note(f"{nodes} nodes …")
    with (
        tempfile.TemporaryDirectory(prefix="shoal-") as folder,
        open_fleet(Path(folder), num_nodes=nodes) as fleet,
    ):
        least = min(MeshSettings().degree_low, nodes - 1)
        fleet.wait_until(lambda states: all(state["mesh"] >= least for state in states), 120.0)
        fleet.publish(every_s=EVERY_S, seconds=EVERY_S, groups=GROUPS, chars=CHARS, drain_s=5)
        began, start = _spent(fleet), time.monotonic()
        time.sleep(IDLE_S * scale)
        idle, idle_s = _spent(fleet) - began, time.monotonic() - start
        before, start = _spent(fleet), time.monotonic()
        run = fleet.publish(
            every_s=EVERY_S, seconds=PUBLISHING_S * scale, groups=GROUPS, chars=CHARS, drain_s=5
        )
        busy, busy_s = _spent(fleet) - before, time.monotonic() - start
    received = max(1, len(run.latencies()))
    extra = {key: busy[key] - idle[key] * busy_s / idle_s for key in busy}
    kinds = {key: busy[key] for key in busy if key not in _TOTALS}
    return {
        "delivered_share": round(received / max(1, run.num_due()), 4),
        "batches_heard_a_second": round(received / nodes / busy_s, 3),
        "bytes_a_batch": round(extra["written"] / received),
        "cpu_ms_a_batch": round(1000 * extra["cpu_s"] / received, 2),
        "messages_a_batch": round(busy["received"] / received, 2),
        "idle_bytes_a_second": round(idle["written"] / nodes / idle_s),
        "idle_cpu_ms_a_second": round(1000 * idle["cpu_s"] / nodes / idle_s, 2),
        "share_of_bytes": _shares(kinds, busy["written"]),
    }


_TOTALS = ("cpu_s", "written", "received")


def _spent(fleet: Fleet) -> Counter[str]:
    """Return the costs of all nodes since their start."""
    spent: Counter[str] = Counter()
    for shot in fleet.ask("snapshot"):
        spent.update(shot["by_kind"])
        spent.update({key: shot[key] for key in ("cpu_s", "written")})
        spent["received"] += sum(node["received"] for node in shot["nodes"])
    return _Spent(spent)


class _Spent(Counter[str]):
    """A counter whose difference also has the keys that did not grow."""

    def __sub__(self, other: Counter[str]) -> _Spent:
        return _Spent({key: self[key] - other[key] for key in self})


# Meshes alone


def _alone(nodes: int, scale: float) -> dict[str, Any]:
    note(f"{nodes} meshes …")
    swarm = MeshSwarm(nodes, seed=1, data_bytes=DATA_BYTES, every_s=EVERY_S)
    swarm.run(2 * EVERY_S)
    swarm.forget()
    swarm.run(2 * EVERY_S * scale)
    received, total = max(1, len(swarm.delays_s)), sum(swarm.bytes_of.values())
    return {
        "delivered_share": round(swarm.delivered, 4),
        "bytes_a_batch": round(total / received),
        "frames_a_batch": round(sum(swarm.frames_of.values()) / received, 2),
        "messages_a_batch": round(1 + swarm.frames_of["copy"] / received, 2),
        "share_of_bytes": _shares(swarm.bytes_of, total),
    }


def _shares(kinds: Mapping[str, float], total: float) -> dict[str, float]:
    """Return the kinds that are at least 1 % of the total, the greatest first."""
    found = sorted(kinds.items(), key=lambda kind: -kind[1])
    return {kind: round(count / total, 3) for kind, count in found if count >= 0.01 * total}


if __name__ == "__main__":
    sys.exit(main("scale", __doc__ or "", measure))
