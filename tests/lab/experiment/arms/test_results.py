"""`shoal experiment results`: it runs the settings of `make node`, and its summary."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal_lab.experiment.arms import results
from shoal_lab.experiment.plan import OURS, SILO
from shoal_lab.figures import STYLE
from shoal_settings.schema import Settings
from shoal_settings.trainer_settings import TrainerSettings
from tests.lab.experiment.jobs import document_of, parse_flags


def test_our_arm_has_every_setting_of_make_node() -> None:
    """Except for its device and its evaluation."""
    job = next(job for job in parse_flags().jobs() if job.arm.name == OURS)
    node = job.node_settings(0)
    differing = {
        key
        for key in (*TrainerSettings.__annotations__, "publisher_sampling")
        if getattr(node, key) != getattr(Settings(), key)
    }
    assert differing == {"device", "eval_every", "eval_per_family", "rounds", "seed"}


def test_the_quick_figure_has_the_five_arms() -> None:
    quick = parse_flags("--quick")
    names = [arm.name for arm in quick.arms]
    assert names == [SILO, "8/0 filtered", results.NAIVE, OURS, "24/0 all data"]
    assert len(quick.seeds) >= 2
    full = [arm.name for arm in results.all_arms(6)]
    assert full == [*names, "4/8 HACPO", results.ANSWERS]


@pytest.mark.slow
def test_it_plays_and_draws_held_out_by_cpu_second(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STYLE, "figure.dpi", 30)
    flags = ["results", "--nodes", "2", "--seeds", "2", "--rounds", "2", "--jobs", "0"]
    flags += ["--arm", OURS, "--arm", results.ANSWERS, "--out", str(tmp_path)]
    flags += ["--set", "completions=2", "--set", "eval_per_family=4", "--set", "eval_every=1"]
    document = document_of(capsys, *flags)
    assert set(document["area_by_cpu"]) == {SILO, OURS, results.ANSWERS}
    assert document["figures"][0] == "figures/held-out-by-cpu-second.png"
    assert len(document["pairs"]) == 4
    assert document["made_by"]["not_played"] == []
    assert "area by CPU second" in (tmp_path / "table.md").read_text()
