"""`shoal trainer` killed at random moments, start-up and checkpoint included, loses nothing.

The short test runs the command in processes that have torch loaded already, the long one as a
user would start it. Tasks come from its real task worker.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest
import torch
from safetensors.torch import load_file

from tests.policy import resume_cases as case
from tests.support.rooms import python_path

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 90.0
FLAGS = (
    *("--alone", "--model=tiny", "--local=3", "--external=0", "--completions=4", "--seed=7"),
    *("--max-new-tokens=6", "--device=cpu", "--threads=1", "--checkpoint-seconds=0", "--log=none"),
    *("--eval-every=2", "--eval-per-family=1", "--learning-rate=1e-3"),
)


class Running(Protocol):
    """A process of either kind."""

    pid: int | None

    def ended(self) -> int | None:
        """Its exit code; None while it runs."""

    def wait(self) -> int:
        """Wait for the end; return the exit code."""


class Forked:
    """The command's `main`, in a process that has torch loaded."""

    def __init__(self, flags: Sequence[str]) -> None:
        self._process = case.start_command(flags)
        self.pid = self._process.pid

    def ended(self) -> int | None:
        code: int | None = self._process.exitcode
        return code

    def wait(self) -> int:
        return case.finish(self._process)


class Started:
    """The command as a user starts it."""

    def __init__(self, flags: Sequence[str]) -> None:
        environment = {name: v for name, v in os.environ.items() if not name.startswith("SHOAL_")}
        environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": python_path()}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "shoal_policy", *flags],
            env=environment,
            stdout=subprocess.DEVNULL,  # its errors are pytest's to show
        )
        self.pid: int | None = self._process.pid

    def ended(self) -> int | None:
        return self._process.poll()

    def wait(self) -> int:
        return self._process.wait(PATIENCE_S)


def wait_until(happened: Callable[[], bool], process: Running) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert process.ended() is None, "it ended by itself"
        assert time.monotonic() < deadline, "it does nothing"
        time.sleep(0.003)  # a checkpoint takes ten times that


def kill_somewhere(process: Running, data_dir: Path, moment: str, rng: random.Random) -> None:
    """Send SIGKILL at a random instant of what `moment` names."""
    assert process.pid is not None
    try:
        wait_for(moment, process, data_dir, rng)
        assert process.ended() is None, "it ended by itself"
    finally:
        if process.ended() is None:
            os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def wait_for(moment: str, process: Running, data_dir: Path, rng: random.Random) -> None:
    """Wait until `moment`, and then a little, by chance."""
    metrics = data_dir / "metrics.jsonl"

    def size() -> int:
        try:
            return metrics.stat().st_size
        except FileNotFoundError:  # not there yet, or set aside at this very moment
            return 0

    before = size()

    def playing() -> bool:
        return size() > before

    def writing() -> bool:
        return playing() and any((data_dir / "checkpoints").glob("round-*.tmp-*"))

    match moment:
        case "start":
            time.sleep(rng.uniform(0.0, 2.0))
        case "round":
            wait_until(playing, process)
            time.sleep(rng.uniform(0.0, 0.3))
        case "checkpoint":
            wait_until(writing, process)
            time.sleep(rng.uniform(0.0, 0.02))


def compare_with_unbroken(tmp_path: Path, start: Any, moments: Sequence[str], seed: int) -> None:
    """Kill at `moments`, finish, and compare with a run in one piece."""
    broken, whole, rng = tmp_path / "broken", tmp_path / "whole", random.Random(seed)
    for moment in moments:
        kill_somewhere(start([*FLAGS, f"--data-dir={broken}", "--rounds=0"]), broken, moment, rng)
    rounds = case.rounds_saved(broken) + 2
    for data_dir in (broken, whole):
        assert start([*FLAGS, f"--data-dir={data_dir}", f"--rounds={rounds}"]).wait() == 0
    course = case.course(broken)
    assert [e["round"] for e in course if e["event"] == "round"] == list(range(1, rounds + 1))
    assert [e["round"] for e in course if e["event"] == "held_out"] == list(range(0, rounds + 1, 2))
    assert sum(e["groups_with_signal"] for e in course if e["event"] == "round") > 0
    weights = [load_file(case.newest(at) / "model/model.safetensors") for at in (broken, whole)]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weight, weights[1][name]) for name, weight in weights[0].items())
    case.assert_same_end(broken, whole)


def test_killed_three_times_it_ends_as_the_run_that_was_not(tmp_path: Path) -> None:
    compare_with_unbroken(tmp_path, Forked, ["round", "checkpoint", "checkpoint"], seed=1)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [2, 3])
def test_killed_ten_times_it_ends_as_the_run_that_was_not(tmp_path: Path, seed: int) -> None:
    moments = ["start"] * 2 + ["round"] * 4 + ["checkpoint"] * 4
    random.Random(seed).shuffle(moments)
    compare_with_unbroken(tmp_path, Started, moments, seed)
