"""Exactly once under kill -9: a node with stored groups, a consumer, and somebody who kills both.

fill the store ─▶ start both ─▶ [wait a random moment ─▶ kill node, consumer or both ─▶ start
again] … ─▶ all trained ─▶ start the node once more: nothing may be left to draw
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.consumer import ACKNOWLEDGED_FILE, read_checkpoint
from benchmarks.harness import ROOT, note
from benchmarks.stored_groups import SWARM_NAME, fill, own_groups
from shoal_ipc import messages as m
from shoal_ipc.client import SOCKET_NAME, NodeClient
from shoal_wire.digests import group_id
from shoal_wire.types import RolloutGroup
from tests.support.processes import LOOPBACK, ShoalProcess, Stage

MAX_KILLS = 30
_PAUSE_SECONDS = (0.1, 3.0)
_CONNECTED_SHARE = 0.7
"""Share of the kills that wait until the two have found each other again."""
_CONNECT_SECONDS = 5.0
_STALL_SECONDS = 90.0
NODE_FLAGS = (
    *("--no-trainer", "--no-mdns", "--listen", LOOPBACK, "--swarm-name", SWARM_NAME),
    *("--buffer-bytes", str(1 << 30)),
)


class Killing:
    """One run of it."""

    def __init__(self, stage: Stage, folder: Path, groups: Sequence[RolloutGroup]) -> None:
        self._folder = folder
        self._groups = {group_id(group).hex() for group in groups}
        self._node = stage.process("node", "killed", *NODE_FLAGS)
        self._consumer: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self._kills: Counter[str] = Counter()
        self._rng = random.Random(9)
        fill(self._node.data_dir, groups)

    def run(self) -> dict[str, Any]:
        """Kill until all groups are trained; return the books."""
        self._node.start()
        self._start_consumer()
        try:
            self._kill_until_trained()
            self._wait_until(self._settled)
        finally:
            self._end_consumer()
        self._node.kill()
        left = _left_after_restart(self._node)
        self._node.stop()
        return self._books(left)

    def _kill_until_trained(self) -> None:
        while len(self._trained()) < len(self._groups) and self._kills.total() < MAX_KILLS:
            if self._rng.random() < _CONNECTED_SHARE:
                self._wait_until(self._connected, _CONNECT_SECONDS)
            time.sleep(self._rng.uniform(*_PAUSE_SECONDS))
            victim = self._rng.choice(("node", "consumer", "both"))
            self._kills[victim] += 1
            note(f"  {len(self._trained())} trained, killing {victim}")
            if victim != "node":
                self._end_consumer()
            if victim != "consumer":
                self._node.kill()
            if victim != "node":
                self._start_consumer()
            if victim != "consumer":
                self._node.start()
        self._wait_until(lambda: len(self._trained()) >= len(self._groups))

    def _wait_until(self, condition: Callable[[], bool], stall_s: float = _STALL_SECONDS) -> None:
        """Wait while there is progress; a stall ends the wait, and the books show the loss."""
        deadline, seen = time.monotonic() + stall_s, len(self._trained())
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.1)
            if len(self._trained()) > seen:
                deadline, seen = time.monotonic() + stall_s, len(self._trained())

    def _trained(self) -> set[str]:
        return set(read_checkpoint(self._folder)["weights"])

    def _connected(self) -> bool:
        status = self._node.view()
        return status is not None and bool(status["trainer"]["connected"])

    def _settled(self) -> bool:
        status = self._node.view()
        return status is not None and status["buffer"]["groups"] == 0

    def _books(self, left: int) -> dict[str, Any]:
        weights = Counter(read_checkpoint(self._folder)["weights"])
        own = Counter(i.hex() for i in own_groups(self._node.data_dir))
        path = self._folder / ACKNOWLEDGED_FILE
        acknowledged = set(path.read_text().split()) if path.exists() else set()
        return {
            "groups": len(self._groups),
            "kills": {
                "node": self._kills["node"] + self._kills["both"],
                "consumer": self._kills["consumer"] + self._kills["both"],
                "of_which_together": self._kills["both"],
            },
            "lost": len(self._groups - weights.keys()),
            "trained_twice": sum(count > 1 for count in weights.values()),
            "still_drawn_after_restart": left,
            "own_batches_acknowledged": len(acknowledged),
            "acknowledged_lost": len(acknowledged - own.keys()),
            "stored_twice": sum(count > 1 for count in own.values()),
        }

    def _start_consumer(self) -> None:
        self._starts += 1
        command = [sys.executable, "-m", "benchmarks.consumer"]
        self._consumer = subprocess.Popen(
            [*command, str(self._node.data_dir), str(self._folder), str(self._starts)], cwd=ROOT
        )

    def _end_consumer(self) -> None:
        """kill -9."""
        if self._consumer is not None:
            self._consumer.kill()
            self._consumer.wait()


def _left_after_restart(node: ShoalProcess) -> int:
    """Start the node once more and return how many external groups it would still hand out."""
    node.start()
    client = NodeClient(node.data_dir / SOCKET_NAME)
    reply = client.call(m.Sample(num_external=4096, lease_seconds=1.0), m.SampleReply)
    client.close()
    return len(reply.groups)
