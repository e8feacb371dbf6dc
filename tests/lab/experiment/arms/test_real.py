"""`shoal experiment real`: its arms, its page of answers, and a small complete run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shoal_lab.experiment.folder import ANSWERS
from shoal_lab.experiment.plan import Experiment
from shoal_lab.experiment.report.answers import answers_page
from shoal_lab.experiment.report.results import load_runs
from tests.lab.experiment.jobs import document_of, experiment, written


def test_sharing_is_compared_with_the_silo_and_its_fair_rivals() -> None:
    made = experiment("real")
    assert [arm.name for arm in made.arms] == ["8/0", "4/4", "8/0 filtered", "4/0"]
    assert len(made.seeds) >= 3 and len(made.arms[0].nodes) == 4
    settings = {job.arm.name: job.node_settings(0) for job in made.jobs()}
    assert {one.model for one in settings.values()} == {"smollm2"}
    assert all(one.lora_rank for one in settings.values()), "nodes hold the weights once"
    assert settings["8/0 filtered"].questions == 2 * settings["8/0"].local
    assert [arm.name for arm in experiment("real", "--quick").arms] == ["8/0", "4/4"]


SMALL = ("--model", "tiny", "--tasks", "easy", "--set", "shots=auto", "--set", "lora_rank=2")


@pytest.mark.slow
def test_a_whole_run_leaves_table_and_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = ("--quick", "--nodes", "2", "--rounds", "2", "--jobs", "0", "--no-figures")
    document = document_of(capsys, "real", *SMALL, *size, "--out", str(tmp_path))
    assert document["jobs_finished"] == 2 and document["answers"] == ANSWERS
    page = (tmp_path / ANSWERS).read_text()
    assert "| question | expected | before | after 8/0 | after 4/4 |" in page
    assert page.count("\n## ") == 6, "a part for each family"
    assert 6 * (2 + 1) <= page.count("\n|") <= 6 * (2 + 4), "four each, none twice"
    assert (tmp_path / "table.md").exists()


def shown_of(out: Path, made: Experiment, rows: list[dict[str, Any]]) -> str:
    """The page's line with node 0's answers before and after the one round, and another node's."""
    events = [
        {"event": "answers", "node": 0, "round": number, "answers": [rows[number]]}
        for number in (0, 1)
    ]
    others = {**rows[0], "answer": "another's", "reward": 1.0}
    events += [{**one, "node": 1, "answers": [others]} for one in events]
    written(out, made.jobs()[0], *events)
    return answers_page(load_runs(out, made)).splitlines()[-1]


def test_answers_are_inert_whatever_a_model_says(tmp_path: Path) -> None:
    made = experiment("real", *SMALL, "--quick", "--rounds=1", "--nodes=1", "--arm=8/0")
    hostile = " <script>x</script> | [a](http://b) \x1b[2J \u202e **right**\n# title"
    row = {"family": "gcd_easy", "question": "2?", "expected": "2", "reward": 0.0}
    rows = [{**row, "answer": hostile}, {**row, "answer": " 2\n", "reward": 1.0}]
    shown = shown_of(tmp_path, made, rows)
    assert shown.endswith(" | **2** |"), "right, and bold as Markdown reads it: no blank inside"
    shown = shown.removesuffix(" **2** |")
    assert not set("<>[*#\x1b\u202e") & set(shown.replace("&#", ""))
    assert shown.count("|") == 4 and "http:" not in shown and "script" in shown

    long = [{**row, "answer": "4" * 999 + "5"}, {**row, "answer": ""}]
    shown = shown_of(tmp_path, made, long)
    assert shown.endswith("5 | (nothing) |")
    assert len(shown) < 300 and " … " in shown
