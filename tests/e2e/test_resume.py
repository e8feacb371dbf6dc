"""A real trainer and a real node killed at random: each external group is trained on once."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from shoal_ipc import messages as m
from shoal_ipc.client import SOCKET_NAME, NodeClient
from shoal_wire.digests import question_digest
from shoal_wire.rules import is_held_out
from tests.policy.training_cases import external_group
from tests.support import factories as make
from tests.support.processes import ProcessManager, ShoalProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1000)]

KEEP_ALL = """
import functools, sys
from shoal_policy import trainer
from shoal_policy.__main__ import main
trainer.save_checkpoint = functools.partial(trainer.save_checkpoint, keep=10**6)
sys.exit(main(sys.argv[1:]))
"""
"""The trainer without deletion of checkpoints: together they show all that it consumed."""

ANSWERS = tuple(str(number) for number in range(1, 21))
"""For small questions exactly one answer is right, so every group has signal."""


class TrainerProcess:
    """A real trainer on a data directory."""

    def __init__(self, data_dir: Path, *flags: str) -> None:
        self._data_dir = data_dir
        self._command = [sys.executable, "-c", KEEP_ALL, "--data-dir", str(data_dir), *flags]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        self._data_dir.mkdir(parents=True, exist_ok=True)
        with (self._data_dir / "trainer.txt").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )

    def kill(self, after_seconds: float) -> None:
        """kill -9, unless it has ended."""
        assert self._process is not None
        try:
            self._process.wait(after_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def stop(self) -> int:
        """SIGTERM; return the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(120)


NUMBERS = tuple(
    number for number in range(200) if not is_held_out(question_digest(make.real_question(number)))
)
"""Questions that are trained on: a held-out one's group is consumed without effect."""


def publish(node: ShoalProcess, first: int, count: int) -> None:
    """Let `node` publish groups as if its own trainer had made them."""
    client = NodeClient(node.data_dir / SOCKET_NAME, timeout_seconds=30.0)
    try:
        for number in NUMBERS[first : first + count]:
            batch = make.publish([external_group(number, ANSWERS)], key=b"group %010d" % number)
            assert client.call(batch, m.PublishReply).is_new
    finally:
        client.close()


def consumed_by_lineage(data_dir: Path) -> tuple[list[str], int]:
    """Return the ids in the surviving checkpoints, and the last one's number of used groups."""
    ids: dict[str, None] = {}
    used = 0
    for path in sorted((data_dir / "checkpoints").glob("round-*")):
        if ".tmp" in path.name:
            continue
        state = json.loads((path / "state.json").read_text())
        ids.update(dict.fromkeys(state["consumed_ids"]))
        used = state["counters"]["groups_external_used"]
    return list(ids), used


def consumed_by_node(data_dir: Path) -> set[str]:
    with closing(sqlite3.connect(data_dir / "node.db")) as database:
        return {row[0].hex() for row in database.execute("SELECT group_id FROM consumed")}


def test_each_group_of_others_has_its_effect_once(stage: ProcessManager) -> None:
    rng = random.Random(11)
    source = stage.node("source", "--role=observe")
    node = stage.node("node", "--role=observe", bootstrap=source.address)
    node.wait_status(lambda s: s["peers"] == 1, "the source connected")
    trainer = TrainerProcess(
        node.data_dir,
        *("--seed=5", "--local=1", "--external=2", "--completions=2"),
        *("--eval-every=0", "--log=none", "--checkpoint-seconds=0.3", "--round-seconds=0.2"),
    )
    trainer.start()
    published = 0
    for _ in range(10):
        publish(source, published, 8)
        published += 8
        used = (node.view() or {}).get("groups_external_used", 0)
        if rng.random() < 0.6:
            node.wait_status(lambda s, u=used: s["groups_external_used"] > u, "a group used", 120.0)
        if rng.random() < 0.6:
            trainer.kill(rng.uniform(0.0, 1.5))
            trainer.start()
        else:
            node.kill()
            node.start()
            node.wait_status(lambda s: s["peers"] == 1, "the source found again")
    node.wait_status(lambda s: s["buffer"]["groups"] == 0, "all groups used", 240.0)
    assert trainer.stop() == 0
    assert node.stop() == 0
    ids, used = consumed_by_lineage(node.data_dir)
    assert len(ids) > published / 2, "most of what was shared arrived"
    assert used == len(ids), "a group was trained on twice, or one that no checkpoint names"
    assert consumed_by_node(node.data_dir) == set(ids), "consumed, and without effect"
