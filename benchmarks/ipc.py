"""The node's socket: groups a second with lease and acknowledgement, and exactly once under kills.

Groups of 16 KB lie in a real node's store. A client leases them in batches and acknowledges each
batch, which is on disk before the answer. Then a node and a consumer are killed with -9 at random
moments until every group is trained: none may be lost, none trained twice.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.groups import draw_tasks, make_group, publish_request
from benchmarks.harness import Goal, Options, Report, main, median, note
from benchmarks.kills import NODE_FLAGS, Killing
from benchmarks.stored_groups import fill
from benchmarks.texts import prose
from shoal_ipc import messages as m
from shoal_ipc.client import SOCKET_NAME, NodeClient
from shoal_wire.types import RolloutGroup
from tests.support.processes import Stage, open_stage

CHARS = 2000
"""Eight completions of so many characters: a group of 16 KB."""
BATCHES = (1, 8)
_SLICES = 5
_LEASE_SECONDS = 600.0
_PUBLISH_GROUPS = 4


def measure(options: Options) -> Report:
    """Measure speed, then kill."""
    count = 300 if options.quick else 2000
    rng = random.Random(2)
    note("making groups …")
    tasks = draw_tasks(rng, 64)
    groups = [
        make_group(rng.choice(tasks), prose, rng, num_chars=CHARS)
        for _ in range(count * len(BATCHES))
    ]
    with tempfile.TemporaryDirectory(prefix="shoal-") as name, open_stage(Path(name)) as stage:
        note("leasing and acknowledging …")
        speed = _speed(stage, groups, count)
        note("killing …")
        books = Path(name) / "books"
        books.mkdir()
        kills = Killing(stage, books, groups[:count]).run()
    return Report(
        results={"group_bytes": 8 * CHARS, "groups_per_second": speed, "kills": kills},
        goals=_goals(kills),
    )


def _goals(kills: dict[str, Any]) -> list[Goal]:
    whats = {
        "lost": "groups lost under kills",
        "trained_twice": "groups trained twice under kills",
        "still_drawn_after_restart": "trained groups handed out again after a restart",
        "acknowledged_lost": "acknowledged own batches lost under kills",
        "stored_twice": "own batches stored twice under kills",
    }
    return [
        Goal(what=what, goal="0", measured=kills[key], met=kills[key] == 0)
        for key, what in whats.items()
    ]


def _speed(stage: Stage, groups: Sequence[RolloutGroup], count: int) -> dict[str, Any]:
    node = stage.process("node", "speed", *NODE_FLAGS)
    fill(node.data_dir, groups)
    node.start()
    client = NodeClient(node.data_dir / SOCKET_NAME)
    found: dict[str, Any] = {}
    for size in BATCHES:
        parts: dict[str, list[float]] = {"lease": [], "acknowledge": []}
        node_speed = _rate(partial(_lease_and_ack, client, size, parts), size, count)
        found[f"lease_and_ack_of_{size}"] = {
            "node": round(node_speed, 1),
            "lease_ms": round(1000 * median(parts["lease"]), 3),
            "acknowledge_ms": round(1000 * median(parts["acknowledge"]), 3),
        }
    found[f"publish_of_{_PUBLISH_GROUPS}"] = {
        "node": round(_publish_rate(client, groups, count), 1)
    }
    client.close()
    node.stop()
    return found


def _rate(step: Callable[[], None], size: int, count: int) -> float:
    """Return groups a second: the median over slices of the run."""
    rates = []
    steps = count // size // _SLICES
    for _ in range(_SLICES):
        started = time.perf_counter()
        for _ in range(steps):
            step()
        rates.append(steps * size / (time.perf_counter() - started))
    return median(rates)


def _lease_and_ack(client: NodeClient, size: int, parts: dict[str, list[float]]) -> None:
    started = time.perf_counter()
    reply = client.call(m.Sample(num_external=size, lease_seconds=_LEASE_SECONDS), m.SampleReply)
    if len(reply.groups) != size:
        raise RuntimeError(f"{len(reply.groups)} groups instead of {size}: the buffer ran out")
    ids = tuple(item.published.group_id for item in reply.groups)
    leased = time.perf_counter()
    client.call(m.Settle(consumed_ids=ids), m.Done)
    parts["lease"].append(leased - started)
    parts["acknowledge"].append(time.perf_counter() - leased)


def _publish_rate(client: NodeClient, groups: Sequence[RolloutGroup], count: int) -> float:
    """Publish in batches, each on disk before it is acknowledged. Nobody is there to hear it."""
    batches = iter(range(count))

    def step() -> None:
        number = next(batches)
        start = number * _PUBLISH_GROUPS
        chosen = groups[start : start + _PUBLISH_GROUPS]
        client.call(publish_request(number + 1, chosen), m.PublishReply)

    return _rate(step, _PUBLISH_GROUPS, count)


if __name__ == "__main__":
    sys.exit(main("ipc", __doc__ or "", measure))
