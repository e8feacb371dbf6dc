"""Bytes on the wire for a shared group, against the raw text of its completions.

Two figures. *envelope*: the signed, compressed batch as it is gossiped, at its exact size. *hop*:
the bytes of a TCP connection between a node and a bootstrap peer, counted by a relay in the middle
at ten batches a second, both directions, with the overhead of gossip, yamux and noise and the IHAVE
messages that repair losses; idle traffic is subtracted. A group crosses one such hop for each mesh
link it takes. TCP's and IP's headers are not counted.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.groups import POLICY, SAMPLING, draw_tasks, make_group, publish_request, raw_bytes
from benchmarks.harness import Goal, Options, Report, main, median, note
from benchmarks.relay import CountingRelay
from benchmarks.texts import TEXTS
from shoal_ipc import messages as m
from shoal_ipc.client import SOCKET_NAME, NodeClient
from shoal_wire.codec import encode_batch
from shoal_wire.envelope import seal
from shoal_wire.types import Digest, RolloutBatch, RolloutGroup, Task
from tests.support.processes import LOOPBACK, ProcessManager, ShoalProcess, open_stage, wait_for

CHARS = (200, 1000)
GROUPS_PER_BATCH = (1, 4)
_IDLE_SECONDS = 4.0
_SETTLE_SECONDS = 1.5
_BATCHES = 10
_PAUSE_SECONDS = 0.1
"""Time between batches, about that of one fast trainer. A burst would give another figure."""


def measure(options: Options) -> Report:
    """Measure both figures."""
    rng = random.Random(1)
    repeats = 20 if options.quick else 100
    tasks = draw_tasks(rng, 64)
    sealed = {
        name: {
            f"{chars}_chars": {
                f"batch_of_{size}": _sealed(rng, tasks, name, chars, size, repeats)
                for size in GROUPS_PER_BATCH
            }
            for chars in CHARS
        }
        for name in TEXTS
    }
    note("measuring one hop between two processes …")
    hop = _measure_hop(rng, tasks, 1 if options.quick else 3)
    results: dict[str, Any] = {"completions_per_group": 8, "envelope": sealed, "hop": hop}
    return Report(results=results, goals=_goals(results))


def _goals(results: dict[str, Any]) -> list[Goal]:
    """One goal a figure and size, judged by the text that compresses worse."""
    goals = []
    for figure in ("envelope", "hop"):
        for chars in CHARS:
            for size in GROUPS_PER_BATCH:
                worst = max(
                    results[figure][text][f"{chars}_chars"][f"batch_of_{size}"]["share_of_raw"]
                    for text in TEXTS
                )
                goals.append(
                    Goal(
                        what=f"{figure} / raw text, 8 x {chars} characters, batch of {size}",
                        goal="< 1",
                        measured=worst,
                        met=worst < 1,
                    )
                )
    return goals


def _groups(
    rng: random.Random, tasks: list[Task], text: str, chars: int, size: int
) -> list[RolloutGroup]:
    return [make_group(task, TEXTS[text], rng, num_chars=chars) for task in rng.sample(tasks, size)]


def _sealed(
    rng: random.Random, tasks: list[Task], text: str, chars: int, size: int, repeats: int
) -> dict[str, float]:
    """Seal batches as the outbox does; sizes do not depend on the key or the signature's value."""
    raw, sealed = [], []
    for repeat in range(repeats):
        groups = _groups(rng, tasks, text, chars, size)
        batch = RolloutBatch(
            swarm_digest=Digest(rng.randbytes(32)),
            sequence=10_000 + repeat,
            round=500,
            created_ms=1_767_225_600_000 + repeat,
            policy=POLICY,
            sampling=SAMPLING,
            groups=tuple(groups),
        )
        envelope = seal(
            encode_batch(batch), public_key=rng.randbytes(32), sign=lambda _data: rng.randbytes(64)
        )
        raw.append(raw_bytes(groups) / size)
        sealed.append(len(envelope) / size)
    return _row(median(raw), median(sealed))


def _row(raw: float, wire: float) -> dict[str, float]:
    return {
        "raw_bytes_per_group": round(raw, 1),
        "wire_bytes_per_group": round(wire, 1),
        "share_of_raw": round(wire / raw, 4),
    }


def _measure_hop(rng: random.Random, tasks: list[Task], repeats: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="shoal-") as folder, open_stage(Path(folder)) as stage:
        bootstrap = stage.bootstrap("b")
        port = int(bootstrap.address.split("/tcp/")[1].split("/")[0])
        with CountingRelay(port) as relay:
            behind = f"/ip4/127.0.0.1/tcp/{relay.port}/p2p/{bootstrap.peer_id}"
            return _through(stage, relay, behind, rng, tasks, repeats)


def _through(
    stage: ProcessManager,
    relay: CountingRelay,
    bootstrap: str,
    rng: random.Random,
    tasks: list[Task],
    repeats: int,
) -> dict[str, Any]:
    node = stage.process(
        "node", "n", "--role=observe", "--no-mdns", "--listen", LOOPBACK, "--bootstrap", bootstrap
    ).start()
    node.wait_status(lambda s: any(s["mesh"].values()), "in the mesh with the bootstrap")
    hop = _Hop(node, relay)
    found: dict[str, Any] = {}
    for text in TEXTS:
        for chars in CHARS:
            for size in GROUPS_PER_BATCH:
                rows = [
                    _hop_row(hop, [_groups(rng, tasks, text, chars, size) for _ in range(_BATCHES)])
                    for _ in range(repeats)
                ]
                found.setdefault(text, {}).setdefault(f"{chars}_chars", {})[f"batch_of_{size}"] = (
                    sorted(rows, key=lambda row: row["share_of_raw"])[len(rows) // 2]
                )
    return found


def _hop_row(hop: _Hop, sent: Sequence[Sequence[RolloutGroup]]) -> dict[str, float]:
    out, back = hop.send(sent)
    count = sum(map(len, sent))
    row = _row(sum(map(raw_bytes, sent)) / count, (out + back) / count)
    row["of_which_returned"] = round(back / count, 1)
    return row


class _Hop:
    """A node behind a relay; `send` returns what batches cost on the wire."""

    def __init__(self, node: ShoalProcess, relay: CountingRelay) -> None:
        self._node, self._relay = node, relay
        self._client = NodeClient(node.data_dir / SOCKET_NAME)
        self._key = 0
        time.sleep(_SETTLE_SECONDS)
        self._idle = self._rates()

    def send(self, batches: Sequence[Sequence[RolloutGroup]]) -> tuple[float, float]:
        """Publish batches; return the bytes sent and received, less idle traffic."""
        before, started = self._relay.passed(), time.monotonic()
        for groups in batches:
            time.sleep(_PAUSE_SECONDS)
            self._key += 1
            self._client.call(publish_request(self._key, groups), m.PublishReply)
        wait_for(self._sent, 60, "the outbox to be sent")
        self._relay.quiet()
        seconds, after = time.monotonic() - started, self._relay.passed()
        out, back = (after[i] - before[i] - self._idle[i] * seconds for i in (0, 1))
        return out, back

    def _rates(self) -> tuple[float, float]:
        """Return the idle traffic in bytes per second, out and back."""
        before = self._relay.passed()
        time.sleep(_IDLE_SECONDS)
        after = self._relay.passed()
        return (after[0] - before[0]) / _IDLE_SECONDS, (after[1] - before[1]) / _IDLE_SECONDS

    def _sent(self) -> bool | None:
        status = self._node.view()
        return (status is not None and status["outbox"]["batches_sent"] >= self._key) or None


if __name__ == "__main__":
    sys.exit(main("wire_bytes", __doc__ or "", measure))
