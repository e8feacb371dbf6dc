"""`shoal experiment results`: what is played is what `make node` runs, and how it is summed up."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal_lab.experiment.arms import results
from shoal_lab.experiment.command import main
from shoal_lab.experiment.flags import make_experiment, parser
from shoal_lab.experiment.plan import SILO
from shoal_lab.experiment.reading.results import Run
from shoal_settings.schema import Settings
from shoal_settings.trainer_settings import TrainerSettings
from tests.lab.experiment.synthetic_runs import run


def told(arm: str, seed: int, level: float, cpu: float) -> Run:
    found = run(arm, seed, level)
    return replace(found, cpu=tuple(cpu * number for number in range(1, found.rounds + 1)))


def test_our_arm_has_every_setting_of_make_node() -> None:
    """But for where it computes and how it is evaluated."""
    experiment = make_experiment(parser().parse_args(["results"]))
    job = next(job for job in experiment.jobs() if job.arm.name == results.OURS)
    node = job.node_settings(0)
    differing = {
        key
        for key in (*TrainerSettings.__annotations__, "draws")
        if getattr(node, key) != getattr(Settings(), key)
    }
    assert differing == {"device", "eval_every", "eval_per_family", "rounds", "seed"}


def test_the_quick_figure_has_the_five_arms() -> None:
    quick = make_experiment(parser().parse_args(["results", "--quick"]))
    names = [arm.name for arm in quick.arms]
    assert names == [SILO, "8/0 filtered", results.NAIVE, results.OURS, "24/0 all data"]
    assert len(quick.seeds) >= 2
    full = [arm.name for arm in results.all_arms(6)]
    assert full == [*names, "4/8 HACPO", results.ANSWERS]


def test_arms_are_compared_up_to_where_the_silo_ends() -> None:
    """An arm that costs twice as much has half of its rounds counted by CPU second."""
    runs = [told(SILO, 1, 0.4, 1.0), told(results.OURS, 1, 0.4, 2.0)]
    found = results.read(runs, make_experiment(parser().parse_args(["results"])))
    area, by_cpu = (found.document[key] for key in ("area", "area_by_cpu"))
    assert area[SILO]["mean"] == area[results.OURS]["mean"] == pytest.approx(0.2)
    assert by_cpu[SILO]["mean"] == pytest.approx(0.2)
    assert by_cpu[results.OURS]["mean"] == pytest.approx(0.1)


def test_an_arm_that_generates_nothing_has_no_area_by_token() -> None:
    nothing = replace(told(results.ANSWERS, 1, 0.4, 1.0), tokens=(0.0,) * 4)
    runs = [told(SILO, 1, 0.4, 1.0), told(results.OURS, 1, 0.4, 1.0), nothing]
    found = results.read(runs, make_experiment(parser().parse_args(["results"])))
    assert set(found.document["area_by_token"]) == {SILO, results.OURS}


def test_only_the_families_with_many_questions_count() -> None:
    level, small = ((0.1, 0.2, 0.3),), ((1.0, 1.0, 1.0),)
    by_family = {**dict.fromkeys(results.COUNTED, level), "count_bits_easy": small}
    one = replace(told(SILO, 1, 0.9, 1.0), by_family=by_family)
    (found,) = one.of_families(results.COUNTED).held_out
    assert found == pytest.approx((0.1, 0.2, 0.3))
    assert one.of_families(("another",)) is one


def test_it_plays_and_draws_held_out_by_cpu_second(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags: list[str] = ["results", "--nodes", "2", "--seeds", "2", "--rounds", "2", "--jobs", "0"]
    flags += ["--arm", results.OURS, "--arm", results.ANSWERS, "--out", str(tmp_path), "--json"]
    flags += ["--set", "completions=2", "--set", "eval_per_family=4", "--set", "eval_every=1"]
    assert main(flags) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert set(document["area_by_cpu"]) == {SILO, results.OURS, results.ANSWERS}
    assert document["figures"][0] == "figures/held-out-by-cpu-second.png"
    assert len(document["pairs"]) == 4
    assert document["made_by"]["not_played"] == []
    assert "area by CPU second" in (tmp_path / "table.md").read_text()
