"""Four real nodes that gossip for ten minutes: what arrives, and whether memory keeps growing.

Four node processes without trainers meet through a bootstrap peer on loopback. A client on each
node's socket publishes four groups a second: batches of one group, eight completions of some 200
characters, real tasks that every receiver regenerates before it accepts. Read after every minute:
the groups that each has received, and resident memory of its process, less the size that its buffer
reports. The first minutes fill bounded pools and caches; growth in the second half is a leak. The
largest of the four nodes counts. How fast groups arrive: `delivery`.
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from benchmarks.groups import draw_tasks, make_group, publish_request
from benchmarks.harness import Options, Report, at_least, at_most, main, note
from benchmarks.texts import reasoning
from shoal_ipc import messages as m
from shoal_ipc.client import SOCKET_NAME, NodeClient
from shoal_wire.types import RolloutGroup
from tests.support.processes import LOOPBACK, ProcessManager, ShoalProcess, open_stage, wait_for

NODES = 4
GROUPS_PER_SECOND = 4.0
CHARS = 200
MIB = 1 << 20
MINUTES = 10
_DRAIN_SECONDS = 15.0
_NUM_TASKS = 256
_MOST_A_MINUTE = 4.0
_MOST_LATER = 0.5
"""Mebibytes a minute in the second half: growth that malloc's pools show for a constant heap."""


def measure(options: Options) -> Report:
    """Publish minute after minute and measure the nodes' memory in between."""
    minutes = 2 if options.quick else MINUTES
    rng = random.Random(4)
    tasks = draw_tasks(rng, _NUM_TASKS)
    a_minute = int(60 * GROUPS_PER_SECOND)
    due = 0
    with tempfile.TemporaryDirectory(prefix="shoal-") as folder, open_stage(Path(folder)) as stage:
        nodes = _start(stage)
        rows = [[_beyond_mib(node) for node in nodes]]
        for minute in range(minutes):
            note(f"minute {minute + 1} of {minutes} …")
            _publish(
                nodes,
                [
                    [
                        make_group(rng.choice(tasks), reasoning, rng, num_chars=CHARS)
                        for _ in range(a_minute)
                    ]
                    for _ in nodes
                ],
            )
            due += a_minute * (NODES - 1)
            _await_received(nodes, due)
            rows.append([_beyond_mib(node) for node in nodes])
        arrived = sum(min(_received(node), due) for node in nodes) / (due * NODES)
    return _report(rows, arrived)


def _start(stage: ProcessManager) -> list[ShoalProcess]:
    """Start the nodes; return them when they are all connected."""
    flags = ("--role=observe", "--no-mdns", "--listen", LOOPBACK, "--swarm-name", "bench-soak")
    bootstrap = stage.bootstrap("b", "--swarm-name", "bench-soak")
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


def _publish(nodes: Sequence[ShoalProcess], groups: Sequence[Sequence[RolloutGroup]]) -> None:
    """Publish each node's groups at the set pace."""
    started = time.monotonic()
    threads = [
        threading.Thread(target=_publisher, args=(node, mine, started + i / GROUPS_PER_SECOND / 4))
        for i, (node, mine) in enumerate(zip(nodes, groups, strict=True))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _publisher(node: ShoalProcess, groups: Sequence[RolloutGroup], start: float) -> None:
    client = NodeClient(node.data_dir / SOCKET_NAME)
    for number, group in enumerate(groups):
        time.sleep(max(0.0, start + number / GROUPS_PER_SECOND - time.monotonic()))
        client.call(publish_request(random.getrandbits(100), [group]), m.PublishReply)
    client.close()


def _await_received(nodes: Sequence[ShoalProcess], due: int) -> None:
    deadline = time.monotonic() + _DRAIN_SECONDS
    while time.monotonic() < deadline and any(_received(node) < due for node in nodes):
        time.sleep(0.5)


def _received(node: ShoalProcess) -> int:
    return int(wait_for(node.view, 30, "a status")["groups_received"])


def _beyond_mib(node: ShoalProcess) -> float:
    """Return a node's resident memory beyond its buffer's, without its task worker's."""
    buffer = wait_for(node.view, 30, "a status")["buffer"]
    for child in psutil.Process().children():
        if str(node.data_dir) in child.cmdline():
            rss = child.memory_info().rss
            return float(rss - buffer["bytes"] - buffer["local_bytes"]) / MIB
    raise RuntimeError(f"{node.data_dir.name} is gone:\n{node.log}")


def _report(rows: list[list[float]], arrived: float) -> Report:
    nodes = list(zip(*rows, strict=True))
    grown = [max(b - a for a, b in zip(row, after, strict=True)) for row, after in pairwise(rows)]
    middle = len(rows) // 2
    later = max((node[-1] - node[middle]) / (len(rows) - 1 - middle) for node in nodes)
    results: dict[str, Any] = {
        "minutes": len(rows) - 1,
        "delivered_share": round(arrived, 6),
        "beyond_buffer_mib": {
            f"minute_{minute}": round(max(row), 1) for minute, row in enumerate(rows)
        },
        "second_half_mib_a_minute": round(later, 2),
    }
    after_first = grown[1:] or grown
    return Report(
        results=results,
        goals=[
            at_least("groups in every other node's buffer", round(arrived, 6), 0.999),
            at_most(
                "growth beyond the buffer in any minute but the first (MiB)",
                round(max(after_first), 2),
                _MOST_A_MINUTE,
            ),
            at_most(
                "growth beyond the buffer in the second half (MiB a minute)",
                round(later, 2),
                _MOST_LATER,
            ),
        ],
    )


if __name__ == "__main__":
    sys.exit(main("soak", __doc__ or "", measure))
