"""One attacker at full speed against a real node: what it costs the node, and whom.

For each kind of flood a fresh node (its loop watched by a probe), an honest node beside it that
shares four groups a second, and an attacker in a process of its own that writes as fast as it is
read and dials again whenever it is cut off.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.flood_attacker import KINDS
from benchmarks.groups import draw_tasks, make_group, publish_request
from benchmarks.harness import (
    Child,
    Goal,
    Options,
    Report,
    at_least,
    at_most,
    main,
    note,
    percentile,
)
from benchmarks.texts import reasoning
from shoal_ipc import messages as m
from shoal_ipc.client import SOCKET_NAME, NodeClient
from shoal_wire.types import RolloutGroup
from tests.support.processes import LOOPBACK, ShoalProcess, open_stage

GROUPS_PER_SECOND = 4.0
MIB = 1 << 20
_CALM_S = 5.0
_DRAIN_S = 5.0


def measure(options: Options) -> Report:
    """Run one flood of each kind."""
    seconds = 10.0 if options.quick else 60.0
    tasks = draw_tasks(random.Random(3), int((seconds + _CALM_S) * GROUPS_PER_SECOND) + 8)
    rng = random.Random(5)
    groups = [make_group(task, reasoning, rng, num_chars=200) for task in tasks]
    results: dict[str, Any] = {"seconds": seconds}
    for kind in KINDS:
        note(f"flood of kind {kind} …")
        results[kind] = _flood(kind, seconds, groups)
    return Report(results=results, goals=_goals(results))


def _flood(kind: str, seconds: float, groups: list[RolloutGroup]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="shoal-") as folder, open_stage(Path(folder)) as stage:
        (Path(folder) / "victim").mkdir()
        victim = Child("flood_node", str(Path(folder) / "victim"))
        try:
            hello = json.loads(victim.line())
            honest = stage.process(
                "node", "honest", "--no-trainer", "--no-mdns", "--listen", LOOPBACK,
                "--bootstrap", hello["address"],
            ).start()  # fmt: skip
            honest.wait_status(lambda s: max(s["mesh"].values(), default=0) >= 1, "in the mesh")
            return _measure(kind, seconds, victim, hello, honest, groups)
        finally:
            victim.close()


def _measure(
    kind: str,
    seconds: float,
    victim: Child,
    hello: dict[str, Any],
    honest: ShoalProcess,
    groups: list[RolloutGroup],
) -> dict[str, Any]:
    attacker = Child("flood_attacker", hello["address"], kind, str(seconds))
    try:
        attacker.line()  # ready: what it does from now on is write
        publisher = Publisher(honest, groups)
        publisher.warm_up()
        victim.say("reset")
        publisher.start(_CALM_S + seconds)
        time.sleep(_CALM_S)
        before = _ask(victim)
        attacker.say("go")
        flood = json.loads(attacker.line())
        during = _ask(victim)
        publisher.join()
        time.sleep(_DRAIN_S)
        after = _ask(victim)
    finally:
        attacker.close()
    sent = publisher.num_published
    received = after["received"].get(str(honest.peer_id), 0)
    return {
        "attacker_cut_s": None if flood["cut_s"] is None else round(flood["cut_s"], 2),
        "attacker_mib_written": round(flood["written_bytes"] / MIB, 1),
        "attacker_dials": flood["dials"],
        "memory_growth_mib": round((during["peak_rss"] - before["rss"]) / MIB, 1),
        "loop_lag_ms": _lags(during["lags_ms"]),
        "calm_loop_lag_ms": _lags(before["lags_ms"]),
        "honest_published": sent,
        "honest_delivered_share": round(received / sent, 4),
        "held_back": during["pubsub"].get("held_back", 0),
        "faults": during["pubsub"].get("fault", 0),
    }


def _ask(victim: Child) -> dict[str, Any]:
    victim.say("report")
    answer: dict[str, Any] = json.loads(victim.line())
    return answer


def _lags(lags: list[float]) -> dict[str, float]:
    return {
        "p50": round(percentile(lags, 0.5), 1),
        "p99": round(percentile(lags, 0.99), 1),
        "max": round(max(lags), 1),
    }


class Publisher:
    """An honest node's client: a group each quarter of a second."""

    def __init__(self, node: ShoalProcess, groups: list[RolloutGroup]) -> None:
        self._node = node
        self._groups = list(groups)
        self._thread: threading.Thread | None = None
        self.num_published = 0

    def warm_up(self) -> None:
        """The first batch loads the task generators."""
        with closing(NodeClient(self._node.data_dir / SOCKET_NAME)) as client:
            for _ in range(4):
                self._publish(client)
        self._node.wait_status(lambda s: s["outbox"]["unsent"] == 0, "the warm-up sent")
        time.sleep(2.0)

    def start(self, seconds: float) -> None:
        self._thread = threading.Thread(target=self._run, args=(seconds,))
        self._thread.start()

    def join(self) -> None:
        assert self._thread is not None
        self._thread.join()

    def _run(self, seconds: float) -> None:
        started = time.monotonic()
        with closing(NodeClient(self._node.data_dir / SOCKET_NAME)) as client:
            for number in range(int(seconds * GROUPS_PER_SECOND)):
                time.sleep(max(0.0, started + number / GROUPS_PER_SECOND - time.monotonic()))
                self._publish(client)

    def _publish(self, client: NodeClient) -> None:
        request = publish_request(random.getrandbits(100), [self._groups.pop()])
        client.call(request, m.PublishReply)
        self.num_published += 1


def _goals(results: dict[str, Any]) -> list[Goal]:
    goals = []
    for kind in KINDS:
        row = results[kind]
        cut = row["attacker_cut_s"]
        lag, grown = row["loop_lag_ms"]["p99"], row["memory_growth_mib"]
        share = row["honest_delivered_share"]
        goals += [
            Goal(what=f"{kind}: cut", goal="≤ 5 s", measured=cut, met=cut is not None and cut <= 5),
            at_most(f"{kind}: lag p99", lag, 100, unit="ms"),
            at_most(f"{kind}: memory", grown, 64, unit="MiB"),
            at_least(f"{kind}: delivered", share, 0.99),
        ]
    return goals


if __name__ == "__main__":
    sys.exit(main("flood", __doc__ or "", measure))
