"""Cost of one delivery from socket to buffer: CPU, Trio's steps, system calls, frames.

Eight whole nodes in one process, one shard. *busy*: each publishes a batch of eight groups (eight
completions of 200 characters) a second. *quiet*: a batch of one group every 16 s. A delivery is one
batch in one other node's buffer. CPU is the process's; steps, calls and frames are counted in
another run of the same schedule, because counting costs time.

    python -m benchmarks.data_path --against TREE

runs another checkout at the same time, so that other load on the machine affects both equally.
`--slowly 5` slows Trio's clock to a fifth of real time in all of them, so that the pace can be kept
on a shared machine. Figures per delivery do not change.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, Options, Report, main, median, note, percentile
from shoal_p2p.net.identity import identity_from_seed

NODES = 8
_WORKER = Path(__file__).with_name("data_path_worker.py")
_FIGURES = (
    "steps", "recv", "send", "noise_messages", "data", "window_updates", "flags", "pings", "spawned"
)  # fmt: skip
_TASKS_TOLD = 12
_DRAIN_S = 60.0
_MESH_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Amount that every node publishes."""

    name: str
    every_s: float
    seconds: float
    groups: int


class _Swarm:
    """The nodes of one tree."""

    def __init__(self, tree: Path, folder: Path, *, counted: bool, slowness: float) -> None:
        self._folder = folder
        self.slowness = slowness
        rng = random.Random(4)
        identities = [rng.randbytes(32).hex() for _ in range(NODES)]
        meeting = rng.randbytes(32)
        ports = _lasting_ports(NODES + 1)
        address = f"/ip4/127.0.0.1/tcp/{ports[0]}/p2p/{identity_from_seed(meeting).peer_id}"
        keys = {"swarm_name": "bench-path", "shards": 1}
        self._bootstrap = self._start(
            tree, folder / "b", [meeting.hex()], ports[:1], counted=False, keys=keys
        )
        self._nodes = self._start(
            tree,
            folder / "n",
            identities,
            ports[1:],
            counted=counted,
            keys={**keys, "bootstrap": [address]},
        )

    def _start(
        self,
        tree: Path,
        folder: Path,
        identities: Sequence[str],
        ports: Sequence[int],
        *,
        counted: bool,
        keys: dict[str, Any],
    ) -> subprocess.Popen[bytes]:
        folder.mkdir(parents=True)
        config = {
            "folder": str(folder), "seed": 4, "identities": identities, "ports": ports,
            "proxies": {}, "is_bootstrap": len(identities) == 1, "num_nodes": len(identities),
            "offset": 0, "keys": keys, "counted": counted, "slowness": self.slowness,
        }  # fmt: skip
        # Without these the installed packages would be measured.
        rooms = (".", "proto", "p2p", "policy", "bootstrap", "lab")
        path = os.pathsep.join(str(tree / room) for room in rooms)
        process = subprocess.Popen(
            [sys.executable, "-P", str(_WORKER), json.dumps(config)],
            cwd=tree,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "log").open("wb"),
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        )
        if len(identities) == 1:
            self._answer(process)
        return process

    def _answer(self, process: subprocess.Popen[bytes]) -> Any:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            logs = "\n".join(path.read_text()[-4000:] for path in self._folder.glob("*/log"))
            raise RuntimeError(f"a process of nodes ended:\n{logs}")
        return json.loads(line)

    def ready(self) -> None:
        """Wait until all nodes run and are connected."""
        self._answer(self._nodes)
        deadline = time.monotonic() + _MESH_S
        while time.monotonic() < deadline:
            if all(
                node["mesh"] >= 4 and node["peers"] >= NODES
                for node in self.ask("snapshot")["nodes"]
            ):
                return
            time.sleep(0.25)

    def tell(self, do: str, **arguments: Any) -> None:
        """Send a command; `answer` returns its result."""
        assert self._nodes.stdin is not None
        self._nodes.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        self._nodes.stdin.flush()

    def answer(self) -> Any:
        """Return the next answer."""
        return self._answer(self._nodes)

    def ask(self, do: str, **arguments: Any) -> Any:
        """Send a command and return its answer."""
        self.tell(do, **arguments)
        return self.answer()

    def close(self) -> None:
        """End it."""
        for process in (self._nodes, self._bootstrap):
            with contextlib.suppress(OSError):
                assert process.stdin is not None
                process.stdin.close()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _lasting_ports(count: int) -> list[int]:
    """Return free ports outside the system's range for outgoing connections: the other swarm makes
    many."""
    found: list[int] = []
    for port in random.sample(range(20_000, 32_000), 1000):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError("no free ports")


@contextlib.contextmanager
def _open(trees: Sequence[Path], *, counted: bool, slowness: float) -> Iterator[list[_Swarm]]:
    with (
        tempfile.TemporaryDirectory(prefix="shoal-") as folder,
        contextlib.ExitStack() as stack,
    ):
        swarms = []
        for number, tree in enumerate(trees):
            home = Path(folder) / str(number)
            swarm = _Swarm(tree, home, counted=counted, slowness=slowness)
            stack.callback(swarm.close)
            swarms.append(swarm)
        for swarm in swarms:
            swarm.ready()
        yield swarms


def _play(swarms: Sequence[_Swarm], pace: Pace) -> list[dict[str, float]]:
    """Publish everywhere at once; return the costs of each swarm's deliveries."""
    warm = {"every_s": pace.every_s, "groups": pace.groups, "chars": 200}
    for swarm in swarms:
        swarm.tell("publish", **warm, seconds=min(3.0, pace.every_s))
    for swarm in swarms:
        swarm.answer()
    time.sleep(2.0 * swarms[0].slowness)
    before = [swarm.ask("snapshot") for swarm in swarms]
    for swarm in swarms:
        swarm.tell("publish", **warm, seconds=pace.seconds)
    runs = [swarm.answer() for swarm in swarms]
    found = []
    for swarm, run, start in zip(swarms, runs, before, strict=True):
        delays = _delays(swarm, run["published"])
        found.append(_figures(start, swarm.ask("snapshot"), delays, run))
    return found


def _delays(swarm: _Swarm, published: dict[str, Any]) -> list[float]:
    """Return each delivery's latency, once all have arrived or the time is up."""
    deadline = time.monotonic() + swarm.slowness * _DRAIN_S
    while True:
        arrivals = swarm.ask("arrivals")
        delays = [
            (at[batch] - called) / swarm.slowness
            for batch, (publisher, called) in published.items()
            for node, at in arrivals.items()
            if node != publisher and batch in at
        ]
        if len(delays) == len(published) * (NODES - 1) or time.monotonic() > deadline:
            return delays
        time.sleep(0.1)


def _figures(
    before: dict[str, Any], after: dict[str, Any], delays: list[float], run: dict[str, Any]
) -> dict[str, float]:
    count = max(1, len(delays))
    spent = Counter(after["counts"])
    spent.subtract(before["counts"])
    copies = sum(n["received"] for n in after["nodes"]) - sum(
        n["received"] for n in before["nodes"]
    )
    tasks = Counter(after["tasks"])
    tasks.subtract(before["tasks"])
    for name, steps in tasks.most_common(_TASKS_TOLD):
        note(f"    {steps / count:8.2f} steps  {name}")
    return {
        "cpu_ms": 1000 * (after["cpu_s"] - before["cpu_s"]) / count,
        "loop_cpu_ms": 1000 * (after["loop_cpu_s"] - before["loop_cpu_s"]) / count,
        "copies": copies / count,
        "delivered_share": count / max(1, len(run["published"]) * (NODES - 1)),
        "p50_ms": 1000 * median(delays) if delays else 0.0,
        "p99_ms": 1000 * percentile(delays, 0.99) if delays else 0.0,
        **{name: spent[name] / count for name in _FIGURES},
    }


_OF_COUNTED = (*_FIGURES, "copies")


def measure(
    options: Options, against: Path | None = None, only: str = "", slowness: float = 1.0
) -> Report:
    """Measure this checkout and, at the same time, the one at `against`. `only` names one pace;
    `slowness` divides the clock's speed."""
    trees = {"here": ROOT, **({"against": against} if against else {})}
    repeats = 1 if options.quick else 3
    results: dict[str, Any] = {}
    for pace in (
        Pace(name="busy", every_s=1.0, seconds=8.0 if options.quick else 20.0, groups=8),
        Pace(name="quiet", every_s=16.0, seconds=32.0 if options.quick else 96.0, groups=1),
    ):
        if only not in ("", pace.name):
            continue
        runs: list[list[dict[str, float]]] = []
        for number in range(repeats + 1):
            counted = number == repeats
            note(f"{pace.name}: {'counted' if counted else 'CPU'} …")
            with _open(list(trees.values()), counted=counted, slowness=slowness) as swarms:
                runs.append(_play(swarms, pace))
        *timed, counted_run = runs
        results[pace.name] = _rows(list(trees), timed, counted_run)
    return Report(results=results)


def _rows(
    names: Sequence[str],
    timed: Sequence[Sequence[dict[str, float]]],
    counted: Sequence[dict[str, float]],
) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for number, name in enumerate(names):
        one = {key: median([run[number][key] for run in timed]) for key in timed[0][number]}
        one |= {key: counted[number][key] for key in _OF_COUNTED}
        rows[name] = {key: round(value, 3) for key, value in one.items()}
    if len(names) > 1:
        rows["here_of_beside"] = {
            key: round(median([a[key] / max(1e-9, b[key]) for a, b in timed]), 3)
            for key in ("cpu_ms", "loop_cpu_ms")
        } | {key: round(counted[0][key] / max(1e-9, counted[1][key]), 3) for key in _OF_COUNTED}
    return rows


def _arguments() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--only", choices=("busy", "quiet"), default="")
    parser.add_argument("--slowly", type=float, default=1.0)
    return parser.parse_known_args()


if __name__ == "__main__":
    mine, others = _arguments()
    chosen = functools.partial(
        measure, against=mine.against, only=mine.only, slowness=max(1.0, mine.slowly)
    )
    sys.exit(main("data_path", __doc__ or "", chosen, others))
