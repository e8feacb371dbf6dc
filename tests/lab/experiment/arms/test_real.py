"""`shoal experiment real`: its arms, its page of answers, and a whole run of it in small."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shoal.__main__ import main
from shoal_lab.experiment.flags import make_experiment, parser
from shoal_lab.experiment.folder import ANSWERS
from shoal_lab.experiment.plan import Experiment
from shoal_lab.experiment.reading.answers import answers_page
from shoal_lab.experiment.reading.results import load_runs


def asked(*flags: str) -> Experiment:
    return make_experiment(parser().parse_args(["real", *flags]))


def test_sharing_stands_beside_the_silo_and_its_fair_rivals() -> None:
    experiment = asked()
    assert [arm.name for arm in experiment.arms] == ["8/0", "4/4", "8/0 filtered", "4/0"]
    assert len(experiment.seeds) >= 3 and len(experiment.arms[0].nodes) == 4
    settings = {job.arm.name: job.node_settings(0) for job in experiment.jobs()}
    assert {one.model for one in settings.values()} == {"smollm2"}
    assert all(one.lora_rank for one in settings.values()), "nodes hold the weights once"
    assert settings["8/0 filtered"].questions == 2 * settings["8/0"].local
    assert [arm.name for arm in asked("--quick").arms] == ["8/0", "4/4"]


SMALL = ("--model", "tiny", "--tasks", "easy", "--set", "shots=auto", "--set", "lora_rank=2")


def test_a_whole_run_leaves_table_and_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = ("--quick", "--nodes", "2", "--rounds", "2", "--jobs", "0", "--no-figures", "--json")
    assert main(["experiment", "real", *SMALL, *size, "--out", str(tmp_path)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["jobs_finished"] == 2 and document["answers"] == ANSWERS
    page = (tmp_path / ANSWERS).read_text()
    assert "| question | expected | before | after 8/0 | after 4/4 |" in page
    assert page.count("\n## ") == 6, "a part for each family"
    assert 6 * (2 + 1) <= page.count("\n|") <= 6 * (2 + 4), "four each, none twice"
    assert (tmp_path / "table.md").exists()


def _write_answers(out: Path, experiment: Experiment, rows: list[dict[str, Any]]) -> None:
    """Node 0's answers before and after the one round, and beside them another node's."""
    job = experiment.jobs()[0]
    events = [
        {"event": "answers", "node": 0, "round": number, "answers": [rows[number]]}
        for number in (0, 1)
    ]
    others = {**rows[0], "answer": "another's", "reward": 1.0}
    events += [{**one, "node": 1, "answers": [others]} for one in events]
    path = out / job.file_name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(json.dumps(one) for one in [job.to_json(), *events]) + "\n")


def _page(out: Path, experiment: Experiment) -> str:
    return answers_page(load_runs(out, experiment))


def test_answers_are_inert_whatever_a_model_says(tmp_path: Path) -> None:
    experiment = asked(*SMALL, "--quick", "--rounds", "1", "--nodes", "1", "--arm", "8/0")
    hostile = " <script>x</script> | [a](http://b) \x1b[2J \u202e **right**\n# title"
    row = {"family": "gcd_easy", "question": "2?", "expected": "2", "reward": 0.0}
    rows = [{**row, "answer": hostile}, {**row, "answer": " 2\n", "reward": 1.0}]
    _write_answers(tmp_path, experiment, rows)
    shown = _page(tmp_path, experiment).splitlines()[-1]
    assert shown.endswith(" | **2** |"), "right, and bold as Markdown reads it: no blank inside"
    shown = shown.removesuffix(" **2** |")
    assert not set("<>[*#\x1b\u202e") & set(shown.replace("&#", ""))
    assert shown.count("|") == 4 and "http:" not in shown and "script" in shown

    long = [{**row, "answer": "4" * 999 + "5"}, {**row, "answer": ""}]
    _write_answers(tmp_path, experiment, long)
    shown = _page(tmp_path, experiment).splitlines()[-1]
    assert shown.endswith("5 | (nothing) |")
    assert len(shown) < 300 and " … " in shown
