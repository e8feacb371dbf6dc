"""Starts and steers a swarm of real nodes on loopback: two processes of many, and a bootstrap.

with open_fleet(Path(folder), num_nodes=32, keys={…}) as fleet:
    fleet.wait_for_meshes()
    run = fleet.publish(every_s=5, seconds=60, groups=8, chars=200)
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.harness import Child
from shoal_p2p.net.identity import identity_from_seed

PROCESSES = 2
_LATEST_S = 300.0
"""Longest wait after the last publication, and only while batches keep arriving."""


class Worker(Child):
    """One process of nodes."""

    def __init__(self, config: dict[str, Any], log: Path) -> None:
        super().__init__("swarm_worker", json.dumps(config), log=log)
        self.config = config

    def read(self) -> Any:
        """Return its next answer."""
        return json.loads(self.line())

    def tell(self, do: str, **arguments: Any) -> None:
        """Send a command; `read` returns its answer."""
        self.say(json.dumps({"do": do, **arguments}))


@dataclass(slots=True, kw_only=True)
class Run:
    """Batches published, with their arrivals."""

    published: dict[str, tuple[str, float]]
    """Batch → publisher and the wall clock at the call."""
    late_s: float
    """Greatest delay of a publisher behind its pace, in seconds."""
    num_refused: int = 0
    """Batches that a node accepted only after it had refused them at first."""
    arrivals: dict[str, dict[str, float]] = field(default_factory=dict)
    """Node → batch → wall clock."""

    def latencies(self) -> list[float]:
        """Return the seconds of every delivery."""
        return [
            at[batch] - called
            for batch, (publisher, called) in self.published.items()
            for node, at in self.arrivals.items()
            if node != publisher and batch in at
        ]

    def num_due(self) -> int:
        """Return how many deliveries there should be."""
        return sum(
            node != publisher for publisher, _ in self.published.values() for node in self.arrivals
        )


class Fleet:
    """A running swarm."""

    def __init__(self, workers: Sequence[Worker], num_nodes: int) -> None:
        self.workers = workers
        self.num_nodes = num_nodes

    def ask(self, do: str, **arguments: Any) -> list[Any]:
        """Send a command to every process of nodes and return their answers."""
        for worker in self.workers:
            worker.tell(do, **arguments)
        return [worker.read() for worker in self.workers]

    def nodes(self) -> list[dict[str, Any]]:
        """Return the state of every node."""
        return [node for shot in self.ask("snapshot") for node in shot["nodes"]]

    def usage(self) -> dict[str, float]:
        """Return CPU seconds and bytes, all nodes together."""
        shots = self.ask("snapshot")
        keys = ("cpu_s", "worker_cpu_s", "read", "written", "rss")
        return {key: sum(shot[key] for shot in shots) for key in keys}

    def wait_until(self, holds: Callable[[list[dict[str, Any]]], bool], seconds: float) -> float:
        """Poll the nodes until `holds`; return how long it took, `seconds` if it never did."""
        started = time.monotonic()
        while time.monotonic() - started < seconds:
            if holds(self.nodes()):
                return time.monotonic() - started
            time.sleep(0.25)
        return seconds

    def publish(
        self, *, every_s: float, seconds: float, groups: int, chars: int, drain_s: float = 15.0
    ) -> Run:
        """Publish at a pace from every node, and `collect`."""
        run = Run(published={}, late_s=0.0)
        for answer in self.ask(
            "publish", every_s=every_s, seconds=seconds, groups=groups, chars=chars
        ):
            run.published.update({k: (v[0], v[1]) for k, v in answer["published"].items()})
            run.late_s = max(run.late_s, answer["late_s"])
            run.num_refused += answer["told_to_wait"]
        self.collect(run, drain_s)
        return run

    def collect(self, run: Run, drain_s: float) -> None:
        """Fetch the arrivals until none is missing, or none has arrived for `drain_s`.

        An overloaded machine delays batches but loses none: this continues while batches arrive.
        """
        begun = moved = time.monotonic()
        missing = run.num_due() + 1
        while True:
            run.arrivals = {k: v for answer in self.ask("arrivals") for k, v in answer.items()}
            still = run.num_due() - len(run.latencies())
            now = time.monotonic()
            if still < missing:
                missing, moved = still, now
            if not missing or now - moved >= drain_s or now - begun >= drain_s + _LATEST_S:
                return
            time.sleep(1.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for worker in self.workers:
            worker.close()


@contextlib.contextmanager
def open_fleet(
    folder: Path,
    *,
    num_nodes: int,
    keys: dict[str, Any] | None = None,
    proxies: Callable[[list[list[int]]], list[dict[str, int]]] | None = None,
    seed: int = 4,
    processes: int = PROCESSES,
    new_questions: bool = False,
) -> Iterator[Fleet]:
    """Run a swarm in `processes` processes and one for the bootstrap; `keys` are settings of every
    node. `new_questions`: a batch's questions are new to its receivers, as in a swarm that trains.

    `proxies` gets the ports by process, the bootstrap's process last, and returns for each process
    through which port to dial which.
    """
    rng = random.Random(seed)
    identities = [rng.randbytes(32).hex() for _ in range(num_nodes)]
    share = -(-num_nodes // processes)
    groups = [identities[i * share : (i + 1) * share] for i in range(processes)]
    groups.append([rng.randbytes(32).hex()])
    meeting_id = identity_from_seed(bytes.fromhex(groups[-1][0])).peer_id
    common = {"swarm_name": "bench-swarm"}
    with contextlib.ExitStack() as stack:
        ports = [stack.enter_context(held_ports(len(group))) for group in groups]
        through = proxies(ports) if proxies else [{} for _ in groups]
        address = f"/ip4/127.0.0.1/tcp/{ports[-1][0]}/p2p/{meeting_id}"
        workers: list[Worker] = []
        for number in reversed(range(len(groups))):
            is_bootstrap = number == processes
            config = {
                "folder": str(folder / f"w{number}"),
                "seed": seed + number,
                "new_questions": new_questions,
                "identities": groups[number],
                "ports": ports[number],
                "proxies": through[number],
                "is_bootstrap": is_bootstrap,
                "num_nodes": num_nodes,
                "offset": number * share,
                "keys": (
                    {**common, "target_peers": 64}
                    if is_bootstrap
                    else {**common, "bootstrap": [address], **(keys or {})}
                ),
            }
            worker = Worker(config, folder / f"w{number}.log")
            stack.callback(worker.close)
            workers.append(worker)
            if is_bootstrap:
                worker.read()
        for worker in workers[1:]:
            worker.read()
        yield Fleet(workers[1:], num_nodes)


_PORTS = range(20_000, 32_000)
"""Ports that no system gives to outgoing connections by default."""


@contextlib.contextmanager
def held_ports(count: int) -> Iterator[list[int]]:
    """Reserve free ports until the context ends: only a listener that reuses addresses, as a node
    does, can bind them."""
    with contextlib.ExitStack() as stack:
        ports: list[int] = []
        for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
            if len(ports) == count:
                break
            holder = stack.enter_context(socket.socket())
            try:
                holder.bind(("127.0.0.1", port))
            except OSError:
                continue
            # Only now: set before, it would let this bind a port that another run holds.
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            ports.append(port)
        yield ports
