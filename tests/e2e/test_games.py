"""The promise of the preset `games-1`: without a download, a swarm learns to play."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.data_folder import read_metrics

PATIENCE_S = 1500.0


def run(command: str, folder: Path, *flags: str) -> str:
    """Run a command to its end; return its standard error."""
    program = (sys.executable, "-m", "shoal", command, "--data-dir", str(folder), *flags)
    done = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def games_won(folder: Path) -> dict[int, float]:
    """Return the fraction of held-out games that a node won, by the number of rounds before."""
    rows = [row for row in read_metrics(folder) if row["event"] == "held_out"]
    return {row["round"]: row["held_out/pass@1"] for row in rows}


@pytest.mark.slow
@pytest.mark.timeout(1600)
def test_a_swarm_learns_to_play_from_under_a_third_to_over_two_thirds(tmp_path: Path) -> None:
    flags = ("--nodes", "2", "--rounds", "100", "--eval-per-family", "64", "--seed", "3")
    run("swarm", tmp_path, "--tasks", "games-1", *flags)
    for number in (1, 2):
        won = games_won(tmp_path / f"node-{number}")
        assert won[0] < 1 / 3
        assert won[100] > 2 / 3, won


@pytest.mark.slow
def test_a_model_that_cannot_play_the_swarms_games_is_refused_with_one_that_can(
    tmp_path: Path,
) -> None:
    flags = ("--alone", "--tasks", "games-1", "--rounds", "1", "--eval-every", "0")
    advice = "use --model tiny-games"
    assert advice in run("trainer", tmp_path / "one", *flags, "--model", "tiny")
    assert advice not in run("trainer", tmp_path / "other", *flags)
