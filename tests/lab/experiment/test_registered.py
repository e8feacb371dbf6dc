"""`plan.toml`: written before the first round, never rewritten, and extended visibly."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_lab.experiment.command import main
from shoal_lab.experiment.folder import remove, write_config, write_result
from shoal_lab.experiment.plan import Experiment
from shoal_lab.experiment.registered import PLAN, _lines, register, registered
from tests.lab.experiment.jobs import parse_flags, written
from tests.lab.experiment.test_command import SMALL

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
VALUES = st.recursive(
    TEXT
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def planned(out: Path, *flags: str) -> Experiment:
    experiment = parse_flags(*flags)
    register(out, experiment, merit="area", tests=("none",))
    return experiment


def test_the_plan_says_all_that_decides_the_experiment(tmp_path: Path) -> None:
    experiment = planned(tmp_path, "--seeds", "2", "--rounds", "5")
    found = tomllib.loads((tmp_path / PLAN).read_text())
    assert (found["seeds"], found["rounds"], found["tests"]) == ([1, 2], 5, ["none"])
    assert found["base"] == experiment.base
    assert list(found["arms"]) == [arm.name for arm in experiment.arms]
    (silo,) = found["arms"]["8/0"]
    assert silo == {"nodes": 6, "settings": {"local": 8, "external": 0}, "behaviour": "honest"}
    assert "finished_jobs_before" not in found


def test_the_same_command_adds_nothing(tmp_path: Path) -> None:
    planned(tmp_path)
    before = (tmp_path / PLAN).read_bytes()
    planned(tmp_path)
    assert (tmp_path / PLAN).read_bytes() == before


@pytest.mark.parametrize(
    ("flags", "added"),
    [
        (["--seeds", "7"], {"seeds": [6, 7]}),
        (["--rounds", "101"], {"rounds": 101}),
        (["--arm", "1/7"], {"arms": ["1/7"]}),
        (["--arm", "4/4,local=3", "--seed-list", "9"], {"seeds": [9], "arms": ["4/4 local=3"]}),
        (["--set", "temperature=0.9"], {"base": ["temperature"]}),
    ],
)
def test_a_later_request_is_marked_with_the_finished_jobs(
    flags: list[str], added: dict[str, Any], tmp_path: Path
) -> None:
    first = planned(tmp_path)
    planned_part = (tmp_path / PLAN).read_bytes()
    for job in first.jobs()[:4]:
        written(tmp_path, job)
    planned(tmp_path, *flags)
    assert (tmp_path / PLAN).read_bytes().startswith(planned_part)
    found = registered(tmp_path)
    assert found["added"] == [{"finished_jobs": 4, **added}]
    assert found["plan_sha256"] == hashlib.sha256(planned_part).hexdigest()
    planned(tmp_path, *flags)
    assert registered(tmp_path) == found


def test_a_plan_that_is_written_after_rounds_says_so(tmp_path: Path) -> None:
    written(tmp_path, parse_flags().jobs()[0])
    planned(tmp_path)
    assert registered(tmp_path)["rounds_before_plan"]


def test_a_result_states_the_hash_of_its_plan_and_what_was_added(tmp_path: Path) -> None:
    experiment = parse_flags("--seeds", "1")
    write_config(tmp_path, experiment, "shoal experiment results")
    assert "plan_sha256" not in write_result(tmp_path, experiment, {}, "| t |\n")["made_by"]
    planned(tmp_path, "--seeds", "1")
    made = write_result(tmp_path, experiment, {}, "| t |\n")["made_by"]
    text = (tmp_path / "table.md").read_text()
    assert (
        f"Planned before the first round in `plan.toml` (SHA-256 `{made['plan_sha256']}`)" in text
    )
    assert "Added" not in text
    assert made["not_played"] == sorted(f"{arm.name}, seed 1" for arm in experiment.arms)
    assert "Planned and not among these: 12 answers, seed 1; 24/0 all data, seed 1;" in text
    planned(tmp_path, "--seeds", "2")
    write_result(tmp_path, experiment, {}, "| t |\n")
    assert "Added after 0 jobs were finished: seeds 2." in (tmp_path / "table.md").read_text()
    remove(tmp_path)
    assert not (tmp_path / PLAN).exists()


def test_the_command_writes_its_plan_before_anything_is_played(tmp_path: Path) -> None:
    """An arm that cannot be run ends the command; the plan is already written."""
    (tmp_path / "config.json").write_text("{}")
    arms = ["--arm", f"1/0,model={tmp_path}"]
    assert (
        main([*SMALL[:9], *arms, *SMALL[-6:], "--jobs", "0", "--out", str(tmp_path / "out")]) == 1
    )
    found = tomllib.loads((tmp_path / "out" / PLAN).read_text())
    assert len(found["tests"]) == 2
    assert "area" in found["figure_of_merit"]


@given(st.dictionaries(TEXT, VALUES, max_size=4))
def test_any_value_is_toml(values: dict[str, Any]) -> None:
    assert tomllib.loads(_lines(values)) == values
