"""What a node costs as its swarm grows, with shards and without; a model of it, and its check.

Swarms of 4, 8, 16 and 32 whole nodes on loopback, each publishing at the same pace, once with one
shard and once with four, where a node listens to as many as its trainer's draws need: here those
of some six publishers, so four shards of two publishers each in a swarm of 8, two in one of 16, one
in one of 32. How many is computed by the node's own plan from these rates, and then fixed, so that
the figures do not depend on when it decides. Reported a node: CPU, bytes read from TCP, batches
heard. A model is fitted by least squares to 4, 8 and 16 nodes and must foretell 32; then it says
what 1,000 and 10,000 nodes would cost.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Goal, Options, Report, main, note
from benchmarks.swarm_fleet import Fleet, Run, open_fleet
from shoal_p2p.shards.plan import ShardLimits, ShardPlan

SIZES = (4, 8, 16, 32)
SHARDS = 4
EVERY_S = 16.0
WANTED_PUBLISHERS = 3.1
"""Groups that the trainer draws, in publishers' worth; the plan aims at twice that."""
CHARS = 200
_FLAT = 0.2
_CARRIED = 0.95
"""Below this share of deliveries the machine could not carry the swarm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One swarm measured."""

    nodes: int
    shards: int
    listens_to: int
    """Shards a node listens to."""
    heard_per_s: float
    """Batches of others that entered a node's buffer a second, the mean of the nodes."""
    copies: float
    """Gossip messages received for each batch heard."""
    peers: float
    cpu_ms_per_s: float
    """CPU of the node process, for each node."""
    worker_cpu_ms_per_s: float
    bytes_in_per_s: float
    delivered: float


def measure(options: Options) -> Report:
    """Measure every swarm, fit, and foretell."""
    sizes = SIZES[:2] if options.quick else SIZES
    seconds = 2 * EVERY_S if options.quick else 3 * EVERY_S
    points = [_measure(nodes, shards, seconds) for nodes in sizes for shards in (1, SHARDS)]
    results: dict[str, Any] = {
        f"{'sharded' if point.shards > 1 else 'one_shard'}_{point.nodes}": _row(point)
        for point in points
    }
    goals: list[Goal] = []
    failed = [f"{p.nodes} nodes, {p.shards} shard(s)" for p in points if p.delivered < _CARRIED]
    if failed:
        # A swarm that starves does less, not more: its figures would flatter.
        results["not_carried_by_this_machine"] = ", ".join(failed)
    elif not options.quick:
        results["model"] = model = _model(points)
        goals = _goals(points, model)
    return Report(results=results, goals=goals)


def shards_to_listen_to(nodes: int, shards: int) -> int:
    """Return what the node's own plan settles on, in a swarm whose shards are equally busy."""
    plan = ShardPlan(num_shards=shards, rng=random.Random(1), limits=ShardLimits(rotation_s=1e9))
    heard: Counter[int] = Counter()
    for second in range(1200):
        plan.tick(float(second), wanted_per_s=1000 * WANTED_PUBLISHERS, received=heard)
        for shard in plan.shards:
            heard[shard] += 1000 * nodes // shards
    return len(plan.shards)


def _measure(nodes: int, shards: int, seconds: float) -> Point:
    listens = shards_to_listen_to(nodes, shards)
    note(f"{nodes} nodes, {shards} shard(s), listening to {listens} …")
    with (
        tempfile.TemporaryDirectory(prefix="shoal-") as folder,
        open_fleet(
            Path(folder),
            num_nodes=nodes,
            shards=shards,
            keys={"subscribe_shards": str(listens)},
        ) as fleet,
    ):
        _settle(fleet, nodes, shards)
        # Loads the task generators, and leaves the meshes formed.
        fleet.publish(every_s=EVERY_S, seconds=EVERY_S, groups=1, chars=CHARS, drain_s=5)
        before, gossip = fleet.usage(), _received(fleet)
        run = fleet.publish(every_s=EVERY_S, seconds=seconds, groups=1, chars=CHARS, drain_s=5)
        after = fleet.usage()
        return _point(fleet, run, seconds, shards, listens, before, after, gossip)


def _settle(fleet: Fleet, nodes: int, shards: int) -> None:
    """Wait until every node has peers enough, and its meshes have formed."""

    def formed(states: Sequence[Mapping[str, Any]]) -> bool:
        listeners = Counter(shard for state in states for shard in state["shards"])
        least = min((listeners[s] for s in range(shards)), default=0)
        return all(
            state["mesh"] >= len(state["shards"]) * min(3, least - 1) and state["peers"] > 1
            for state in states
        )

    took = fleet.wait_until(formed, 120.0)
    note(f"  meshes after {took:.0f} s")


def _received(fleet: Fleet) -> float:
    return float(sum(state["received"] for state in fleet.nodes()))


def _point(
    fleet: Fleet,
    run: Run,
    seconds: float,
    shards: int,
    listens: int,
    before: Mapping[str, float],
    after: Mapping[str, float],
    gossip: float,
) -> Point:
    states = {state["peer_id"]: state for state in fleet.nodes()}
    nodes = len(states)

    def listening(node: str, publisher: str) -> bool:
        return states[publisher]["own_shard"] in states[node]["shards"]

    heard = len(run.latencies())
    spent = {key: (after[key] - before[key]) / nodes / seconds for key in before}
    return Point(
        nodes=nodes,
        shards=shards,
        listens_to=listens,
        heard_per_s=heard / nodes / seconds,
        copies=(sum(s["received"] for s in states.values()) - gossip) / max(1, heard),
        peers=sum(state["peers"] for state in states.values()) / nodes,
        cpu_ms_per_s=1000 * spent["cpu_s"],
        worker_cpu_ms_per_s=1000 * spent["worker_cpu_s"],
        bytes_in_per_s=spent["read"],
        delivered=len(run.latencies(listening)) / max(1, run.num_due(listening)),
    )


def _row(point: Point) -> dict[str, Any]:
    return {
        "listens_to": point.listens_to,
        "batches_heard_per_s": round(point.heard_per_s, 3),
        "copies": round(point.copies, 2),
        "peers": round(point.peers, 1),
        "cpu_ms_per_s": round(point.cpu_ms_per_s, 2),
        "task_worker_cpu_ms_per_s": round(point.worker_cpu_ms_per_s, 2),
        "kb_in_per_s": round(point.bytes_in_per_s / 1000, 2),
        "delivered_share": round(point.delivered, 4),
    }


# The model: idle + a part for each connection + a part for each batch heard and copy of it


def _terms(heard_per_s: float, copies: float, peers: float) -> list[float]:
    return [1.0, peers, heard_per_s, heard_per_s * copies]


def _fit(points: Sequence[Point], values: Sequence[float]) -> np.ndarray[Any, Any]:
    """Return non-negative weights: nothing that a node does saves it work."""
    terms = np.array([_terms(p.heard_per_s, p.copies, p.peers) for p in points])
    active = list(range(terms.shape[1]))
    while True:
        found, *_ = np.linalg.lstsq(terms[:, active], np.array(values), rcond=None)
        if (found >= 0).all() or len(active) == 1:
            weights = np.zeros(terms.shape[1])
            weights[active] = np.maximum(found, 0)
            return weights
        del active[int(found.argmin())]


def _model(points: Sequence[Point]) -> dict[str, Any]:
    fitted = [p for p in points if p.nodes < SIZES[-1]]
    largest = [p for p in points if p.nodes == SIZES[-1]]
    model: dict[str, Any] = {}
    for name, values in (
        ("cpu_ms_per_s", [p.cpu_ms_per_s for p in points]),
        ("kb_in_per_s", [p.bytes_in_per_s / 1000 for p in points]),
    ):
        by_point = dict(zip(points, values, strict=True))
        weights = _fit(fitted, [by_point[p] for p in fitted])
        foretold = {
            p.shards: float(weights @ _terms(p.heard_per_s, p.copies, p.peers)) for p in largest
        }
        model[name] = {
            "idle": round(float(weights[0]), 3),
            "per_peer": round(float(weights[1]), 3),
            "per_batch_heard": round(float(weights[2]), 3),
            "per_copy": round(float(weights[3]), 3),
            **{
                f"error_at_{SIZES[-1]}_{'sharded' if p.shards > 1 else 'one_shard'}": round(
                    foretold[p.shards] / by_point[p] - 1, 3
                )
                for p in largest
            },
            **{
                f"{kind}_{nodes}": round(float(weights @ terms), 1)
                for nodes in (1000, 10_000)
                for kind, terms in _foretold_terms(nodes, largest)
            },
        }
    return model


def _foretold_terms(nodes: int, largest: Sequence[Point]) -> list[tuple[str, list[float]]]:
    """A large swarm: a full mesh's copies, the peers of the largest; what is heard follows."""
    (sharded,) = [p for p in largest if p.shards > 1]
    (whole,) = [p for p in largest if p.shards == 1]
    return [
        ("one_shard", _terms((nodes - 1) / EVERY_S, whole.copies, whole.peers)),
        ("sharded", _terms(sharded.heard_per_s, sharded.copies, sharded.peers)),
    ]


def _goals(points: Sequence[Point], model: Mapping[str, Any]) -> list[Goal]:
    goals: list[Goal] = []
    for what, key in (("CPU a node", "cpu_ms_per_s"), ("bytes in a node", "bytes_in_per_s")):
        values = {(p.shards, p.nodes): float(getattr(p, key)) for p in points}
        sharded = values[SHARDS, 32] / values[SHARDS, 8] - 1
        whole = values[1, 32] / values[1, 8] - 1
        goals += [
            Goal(
                what=f"{what}, sharded, 32 nodes beside 8",
                goal="within 20 %",
                measured=round(sharded, 3),
                met=abs(sharded) <= _FLAT,
            ),
            Goal(
                what=f"{what}, one shard, 32 nodes beside 8",
                goal="grows",
                measured=round(whole, 3),
                met=whole > _FLAT,
            ),
        ]
    for name, fitted in model.items():
        for kind in ("sharded", "one_shard"):
            error = fitted[f"error_at_{SIZES[-1]}_{kind}"]
            goals.append(
                Goal(
                    what=f"{name} at 32 nodes foretold from 4, 8, 16 ({kind})",
                    goal="within 20 %",
                    measured=error,
                    met=abs(error) <= _FLAT,
                )
            )
    return goals


if __name__ == "__main__":
    sys.exit(main("scale", __doc__ or "", measure))
