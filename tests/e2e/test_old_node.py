"""Nodes of an earlier commit and of today, as real processes: each trains on the other's groups.

What crosses a socket or a wire byte for byte is held by `tests/wire` and its recorded vectors.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import LOOPBACK, Program, ShoalProcess, Stage, open_stage, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

OLD_COMMIT = "1bdb8eb3f0187f11c2a90b217be55cd050f7b57a"
_ROOT = Path(__file__).parents[2]
_FLAGS = (
    *("--listen", LOOPBACK, "--no-mdns", "--checkpoint-seconds", "0.5"),
    *("--round-seconds", "0.2", "--eval-every", "0", "--log", "none"),
)


@pytest.fixture(scope="session")
def old(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """The earlier shoal, in a tree of its own; skips in a clone without its history."""
    command = ["git", "-C", str(_ROOT), "archive", "--format=tar", OLD_COMMIT]
    made = subprocess.run(command, capture_output=True, check=False, timeout=60.0)
    if made.returncode != 0:
        pytest.skip(f"{OLD_COMMIT[:7]} is not in this clone")
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
        archive.extractall(folder, filter="data")
    program = Program(module="p2p.cli.entry", tree=folder)
    _is_all_of_its_tree(program)
    return program


def _is_all_of_its_tree(old: Program) -> None:
    """Else the present shoal would be compared with itself."""
    names = "p2p, policy, bootstrap, shoal_wire, shoal_ipc, shoal_tasks, shoal_settings"
    files = subprocess.run(
        [sys.executable, "-c", f"import {names}; print(*(m.__file__ for m in ({names})))"],
        capture_output=True,
        text=True,
        check=True,
        cwd=old.tree,
        env={**os.environ, **old.environment},
    ).stdout.split()
    assert all(file.startswith(f"{old.tree}/") for file in files)


@pytest.fixture
def old_stage(tmp_path: Path, old: Program) -> Iterator[Stage]:
    with open_stage(tmp_path, old) as made:
        yield made


@pytest.mark.parametrize("apart", [False, True], ids=["whole", "trainers of the other commit"])
def test_both_learn_from_each_other(stage: Stage, old_stage: Stage, *, apart: bool) -> None:
    """Through a bootstrap of each; `apart`, each node with a trainer of the other commit."""
    at = ("--bootstrap", (old_stage if apart else stage).bootstrap().address)
    mode = ("--no-trainer",) if apart else ()
    one = old_stage.process("node", "old", *_FLAGS, *at, *mode).launch()
    two = stage.process("node", "new", *_FLAGS, *at, *mode).launch()
    nodes = (one.wait_ready(), two.wait_ready())
    if apart:
        stage.process("trainer", "old", *_FLAGS[5:]).launch()
        old_stage.process("trainer", "new", *_FLAGS[5:]).launch()
    for node in nodes:
        node.wait_status(lambda s: s["groups_external_used"] > 0, "groups of the other used")
        wait_for(lambda node=node: _thinks_well(node), 60.0, "nobody to be blamed")
    for node in nodes:
        assert node.stop() == 0, node.log
        assert "Traceback" not in node.log


def _thinks_well(node: ShoalProcess) -> bool:
    status, scores = node.view() or {}, node.view("scores") or {}
    assert status["verdicts"]["reject"] == {}
    return status["peers"] == 2 and all(row["points"] == {} for row in scores["scores"])
