"""Gossip between four real nodes: what arrives, how fast, at what memory and CPU.

Four node processes without trainers meet through a bootstrap peer on loopback. A client on each
node's socket publishes four groups a second: batches of one group, eight completions of about 200
characters, real tasks that every receiver regenerates before it accepts. Latency runs from the
client's call to the group's entry into another node's buffer, all on one machine's clock: it
includes the commit to the publisher's disk, gossip, and the receiver's validation.
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.groups import draw_tasks, make_group, publish_request
from benchmarks.harness import Goal, Options, Report, at_most, main, median, note, percentile
from benchmarks.texts import reasoning
from shoal_ipc import messages as m
from shoal_ipc.client import SOCKET_NAME, NodeClient
from shoal_wire.digests import group_id
from shoal_wire.types import RolloutGroup
from tests.support.processes import LOOPBACK, ShoalProcess, Stage, open_stage, wait_for

NODES = 4
GROUPS_PER_SECOND = 4.0
CHARS = 200
_DRAIN_SECONDS = 15.0
_POLL_SECONDS = 2.0
_WARM_GROUPS = 8
"""Published by each node before the clock starts: the first batch loads the task generators."""
MIB = 1 << 20


@dataclass(slots=True)
class Traffic:
    """Batches that one node has published and received."""

    node: ShoalProcess
    groups: list[RolloutGroup]
    published_ms: dict[str, float] = field(default_factory=dict)
    """Group id to the wall clock at the client's call."""
    received_ms: dict[str, int] = field(default_factory=dict)
    last_number: int = 0
    publish_seconds: list[float] = field(default_factory=list)
    failures: int = 0


def measure(options: Options) -> Report:
    """Run the swarm and measure."""
    seconds = 10.0 if options.quick else 60.0
    count = int(seconds * GROUPS_PER_SECOND)
    rng = random.Random(4)
    note("drawing tasks …")
    tasks = draw_tasks(rng, (count + _WARM_GROUPS) * NODES)
    groups = [make_group(task, reasoning, rng, num_chars=CHARS) for task in tasks]
    with tempfile.TemporaryDirectory(prefix="shoal-") as folder, open_stage(Path(folder)) as stage:
        nodes = start(stage)
        share = len(groups) // NODES
        traffic = [
            Traffic(node=node, groups=groups[i * share : (i + 1) * share])
            for i, node in enumerate(nodes)
        ]
        _warm_up(traffic)
        before = [usage(node) for node in nodes]
        note(f"publishing for {seconds:.0f} s …")
        elapsed = publish_all(traffic)
        after = [usage(node) for node in nodes]
        return _report(traffic, before, after, elapsed)


def start(stage: Stage) -> list[ShoalProcess]:
    """Start the nodes; return them when they are all connected."""
    flags = ("--no-trainer", "--no-mdns", "--listen", LOOPBACK, "--swarm-name", "bench-gossip")
    bootstrap = stage.bootstrap("b", "--swarm-name", "bench-gossip")
    nodes = [
        stage.process("node", f"n{i}", *flags, "--bootstrap", bootstrap.address).start()
        for i in range(NODES)
    ]
    for node in nodes:
        node.wait_status(
            lambda s: s["peers"] >= NODES and max(s["mesh"].values(), default=0) >= NODES - 1,
            "connected to all others",
        )
    return nodes


def _warm_up(traffic: list[Traffic]) -> None:
    for one in traffic:
        client = NodeClient(one.node.data_dir / SOCKET_NAME)
        for number in range(_WARM_GROUPS):
            client.call(_request(one, number), m.PublishReply)
        client.close()
        del one.groups[:_WARM_GROUPS]
    expected = _WARM_GROUPS * (NODES - 1)
    for one in traffic:
        one.node.wait_status(lambda s: s["groups_received"] >= expected, "the warm-up received")
        _poll(one)
        one.received_ms.clear()


def _request(one: Traffic, number: int) -> m.Publish:
    return publish_request(random.getrandbits(100), one.groups[number : number + 1])


def publish_all(traffic: list[Traffic]) -> float:
    """Publish from every node at the set pace; then wait until all has arrived or time is up."""
    started = time.monotonic()
    threads = [
        threading.Thread(target=_publisher, args=(one, started + i / GROUPS_PER_SECOND / NODES))
        for i, one in enumerate(traffic)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(_POLL_SECONDS)
        for one in traffic:
            _poll(one)
    elapsed = time.monotonic() - started
    deadline = time.monotonic() + _DRAIN_SECONDS
    while time.monotonic() < deadline and _num_missing(traffic):
        time.sleep(0.5)
        for one in traffic:
            _poll(one)
    return elapsed


def _publisher(one: Traffic, start: float) -> None:
    client = NodeClient(one.node.data_dir / SOCKET_NAME)
    for number, group in enumerate(one.groups):
        time.sleep(max(0.0, start + number / GROUPS_PER_SECOND - time.monotonic()))
        request, called_at = _request(one, number), time.time() * 1000
        before = time.perf_counter()
        client.call(request, m.PublishReply)
        one.publish_seconds.append(time.perf_counter() - before)
        one.published_ms[group_id(group).hex()] = called_at
    client.close()


def _poll(one: Traffic) -> None:
    """Take over what has entered this node's buffer since the last poll."""
    while view := one.node.view("rollouts", after=one.last_number, limit=200, questions=False):
        rows = view["rollouts"]
        for row in rows:
            one.last_number = max(one.last_number, row["number"])
            if not row["own"]:
                one.received_ms[row["group_id"]] = row["received_ms"]
        if len(rows) < 200:
            return


def _num_missing(traffic: list[Traffic]) -> int:
    return sum(
        key not in receiver.received_ms
        for sender in traffic
        for receiver in traffic
        if receiver is not sender
        for key in sender.published_ms
    )


def usage(node: ShoalProcess) -> dict[str, float]:
    """Return memory, CPU and counts of a node's process."""
    status = wait_for(node.view, 30, "a status")
    process = _process_of(node)
    workers = process.children(recursive=True)
    with process.oneshot():
        cpu = process.cpu_times()
        rss = process.memory_info().rss
    return {
        "rss": rss,
        "cpu_s": cpu.user + cpu.system,
        "worker_rss": sum(child.memory_info().rss for child in workers),
        "worker_cpu_s": sum(sum(child.cpu_times()[:2]) for child in workers),
        "buffer": status["buffer"]["bytes"] + status["buffer"]["own_bytes"],
        "received": status["groups_received"],
        "threads": process.num_threads(),
    }


def _process_of(node: ShoalProcess) -> psutil.Process:
    for child in psutil.Process().children():
        if str(node.data_dir) in child.cmdline():
            return child
    raise RuntimeError(f"{node.data_dir.name} is gone:\n{node.log}")


def _report(
    traffic: list[Traffic],
    before: list[dict[str, float]],
    after: list[dict[str, float]],
    elapsed: float,
) -> Report:
    latencies = [
        receiver.received_ms[key] - called_at
        for sender in traffic
        for key, called_at in sender.published_ms.items()
        for receiver in traffic
        if receiver is not sender and key in receiver.received_ms
    ]
    published = sum(len(one.published_ms) for one in traffic)
    expected = published * (NODES - 1)
    delivered = expected - _num_missing(traffic)
    latency = {
        "p50": round(median(latencies), 1),
        "p99": round(percentile(latencies, 0.99), 1),
        "max": round(max(latencies), 1),
    }
    memory = _memory(before, after)
    cpu = _cpu(before, after)
    verdicts = [wait_for(one.node.view, 30, "a status")["verdicts"] for one in traffic]
    calls = [s * 1000 for one in traffic for s in one.publish_seconds]
    results: dict[str, Any] = {
        "nodes": NODES,
        "seconds": round(elapsed, 1),
        "groups_published": published,
        "deliveries_expected": expected,
        "deliveries": delivered,
        "delivered_share": round(delivered / expected, 6),
        "publish_to_buffer_ms": latency,
        "publish_call_ms": {
            "p50": round(median(calls), 1),
            "p99": round(percentile(calls, 0.99), 1),
        },
        "memory_mib": memory,
        "cpu_ms_per_delivered_group": cpu,
        "ignored": sum(sum(v["ignore"].values()) for v in verdicts),
        "rejected": sum(sum(v["reject"].values()) for v in verdicts),
    }
    return Report(results=results, goals=_goals(results))


def _memory(before: list[dict[str, float]], after: list[dict[str, float]]) -> dict[str, Any]:
    """Resident memory of the node process alone, its task worker apart; the largest of four."""
    growth = [b["rss"] - a["rss"] for a, b in zip(before, after, strict=True)]
    buffers = [b["buffer"] - a["buffer"] for a, b in zip(before, after, strict=True)]
    return {
        "node_start": round(max(row["rss"] for row in before) / MIB, 1),
        "node_end": round(max(row["rss"] for row in after) / MIB, 1),
        "node_growth": round(max(growth) / MIB, 2),
        "buffer_growth": round(max(buffers) / MIB, 2),
        "growth_beyond_buffer": round(
            max(g - b for g, b in zip(growth, buffers, strict=True)) / MIB, 2
        ),
        "task_worker": round(max(row["worker_rss"] for row in after) / MIB, 1),
    }


def _cpu(before: list[dict[str, float]], after: list[dict[str, float]]) -> dict[str, float]:
    received = sum(b["received"] - a["received"] for a, b in zip(before, after, strict=True))
    spent = {
        name: sum(b[key] - a[key] for a, b in zip(before, after, strict=True))
        for name, key in (("node", "cpu_s"), ("task_worker", "worker_cpu_s"))
    }
    return {name: round(1000 * cpu / max(1.0, received), 2) for name, cpu in spent.items()}


def _goals(results: dict[str, Any]) -> list[Goal]:
    share = results["delivered_share"]
    p99 = results["publish_to_buffer_ms"]["p99"]
    memory = results["memory_mib"]
    return [
        Goal(
            what="groups in every other node's buffer",
            goal=">= 99.9 %",
            measured=share,
            met=share >= 0.999,
        ),
        Goal(
            what="publish to buffer, p99 (ms)",
            goal="well under 1000",
            measured=p99,
            met=p99 < 1000,
        ),
        at_most("node's resident memory at the end (MiB)", memory["node_end"], 120),
        at_most("growth beyond the buffer's own bytes (MiB)", memory["growth_beyond_buffer"], 4),
    ]


if __name__ == "__main__":
    sys.exit(main("gossip", __doc__ or "", measure))
