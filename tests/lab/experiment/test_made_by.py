"""The provenance that a result states."""

from __future__ import annotations

import json
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

from shoal_lab.experiment import made_by
from shoal_lab.experiment.folder import write_config, write_result
from shoal_lab.experiment.plan import Experiment, uniform_arm
from shoal_lab.experiment.run import pool
from shoal_lab.experiment.run.in_process import Workers
from tests.lab.experiment.jobs import written

EXPERIMENT = Experiment(
    name="x", arms=(uniform_arm("8/0", 1),), seeds=(3, 4), rounds=1, base={"model": "tiny-sparse"}
)


def test_a_result_names_command_seeds_code_and_the_rounds_it_was_made_of(tmp_path: Path) -> None:
    write_config(tmp_path, EXPERIMENT, "shoal experiment results --quick")
    first, second = EXPERIMENT.jobs()
    written(tmp_path, first, {"event": "round", "reward": 0.5}, made_by.last_line())
    written(tmp_path, second)  # of a version that did not say
    found = write_result(tmp_path, EXPERIMENT, {"totals": {}}, "| table |\n")["made_by"]
    assert found["command"] == "shoal experiment results --quick"
    assert found["seeds"] == [3, 4]
    assert found["code"] == sorted([made_by.code_version(), made_by.UNKNOWN])
    text = (tmp_path / "table.md").read_text()
    assert found["rounds_sha256"] in text
    assert "`shoal experiment results --quick`, seeds 3, 4, code of" in text

    written(tmp_path, first, {"event": "round", "reward": 0.6}, made_by.last_line())
    other = write_result(tmp_path, EXPERIMENT, {"totals": {}}, None)["made_by"]
    assert other["rounds_sha256"] != found["rounds_sha256"]


def installed() -> str:
    """The version that pip knows."""
    try:
        return version("shoal")
    except PackageNotFoundError:
        return made_by.UNKNOWN


def test_a_command_is_recorded_without_paths(tmp_path: Path) -> None:
    typed = ["results", "--out", str(tmp_path), "--arm", "4/4", f"--out={tmp_path}", "--jobs", "2"]
    command = made_by.as_typed([*typed, "--set", "model=a b", "--json", "--fresh", "--no-figures"])
    assert command == "shoal experiment results --arm 4/4 --set 'model=a b'"


@pytest.mark.parametrize("around", [False, True])
def test_code_that_is_no_checkout_goes_by_its_version(
    tmp_path: Path, monkeypatch: Any, around: bool
) -> None:
    """An install states it also inside another repository, whose commits are not shoal's."""
    if around:
        git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@x"]
        subprocess.run([*git, "init", "-q"], check=True)
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    monkeypatch.setattr(made_by, "_HERE", tmp_path / "made_by.py")
    made_by.code_version.cache_clear()
    try:
        assert made_by.code_version() in (made_by.UNKNOWN, installed())
    finally:
        made_by.code_version.cache_clear()


def test_a_job_names_the_code_that_was_there_when_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later edits of the checkout do not change the commit of a running job."""
    now = ["begun with"]

    def play(*_args: Any) -> None:
        now[0] = "changed to"

    monkeypatch.setattr(pool, "_play", play)
    monkeypatch.setattr(pool, "last_line", lambda: {"event": made_by.EVENT, "code": now[0]})
    (job, _) = EXPERIMENT.jobs()
    pool._play_to_file(job, tmp_path, Workers(), lambda _number: None)
    assert json.loads((tmp_path / job.file_name).read_text().splitlines()[-1]) == {
        "event": made_by.EVENT,
        "code": "begun with",
    }
