"""`shoal experiment`: its messages, its JSON, and resuming after an interruption."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

import pytest

from shoal_lab.experiment.command import main
from shoal_lab.experiment.folder import is_done, remove, write_config
from tests.lab.experiment.jobs import document_of, experiment, parse_flags, without_clocks
from tests.support.schemas import check

SMALL = [
    *("results", "--nodes", "2", "--seeds", "1", "--rounds", "2", "--model", "tiny"),
    *("--arm", "2/0", "--arm", "2/2,strategy=positive", "--jobs", "0", "--no-figures"),
    *("--set", "completions=4", "--set", "eval_every=2", "--set", "eval_per_family=1"),
]


@pytest.mark.parametrize(
    "flags",
    [
        ["--arm", "four/4"],
        ["--arm", "4/4,colour=red"],
        ["--arm", "4/4,strategy=best"],
        ["--arm", "4/4", "--arm", "4/4"],
        ["--set", "rounds"],
        ["--seeds", "0"],
        ["--first-seed", "0"],
        ["--seed-list", "1,two"],
        ["--seed-list", "3,3"],
        ["--seed-list", "3,4", "--seeds", "2"],
        ["--nodes", "65"],
        ["--strategy", "best"],
        ["--tasks", "chess"],
        ["--tune", "0,1"],
    ],
)
def test_a_wrong_flag_is_one_line_and_code_2(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["results", *flags, "--out", str(tmp_path / "out")]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert output.err.startswith("shoal experiment: ")


@pytest.mark.parametrize(
    ("flags", "seeds"),
    [("--seeds 2", (1, 2)), ("--seeds 2 --first-seed 11", (11, 12)), ("--seed-list 9,3", (9, 3))],
)
def test_seeds_can_be_chosen(flags: str, seeds: tuple[int, ...]) -> None:
    made = parse_flags(*flags.split())
    assert made.seeds == seeds
    assert {job.seed for job in made.jobs()} == set(seeds)


def test_fresh_removes_no_folder_that_is_not_an_experiments(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    assert main(["results", "--out", str(tmp_path), "--fresh"]) == 2
    assert (tmp_path / "mine.txt").exists()


def test_fresh_leaves_the_other_files_of_the_folder(tmp_path: Path) -> None:
    write_config(tmp_path, parse_flags(), "shoal experiment results")
    for name in ("mine.txt", "rounds/4-4/seed-1.jsonl", "result.json", "figures/a.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    remove(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.slow
def test_fresh_repeats_every_round(tmp_path: Path) -> None:
    made: list[int] = []
    for flags in ([], [], ["--fresh"]):
        assert main([*SMALL, "--out", str(tmp_path), *flags]) == 0
        made.append(next(tmp_path.glob("rounds/*/*.jsonl")).stat().st_mtime_ns)
    assert made[0] == made[1] < made[2]


def test_the_config_of_a_model_is_not_taken_for_an_experiments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    for flags in ([], ["--fresh"]):
        assert main(["results", "--out", str(tmp_path), *flags]) == 2
        assert "not an experiment's" in capsys.readouterr().err
    assert (tmp_path / "config.json").read_text() == '{"model_type": "llama"}'


def test_fresh_removes_nothing_of_an_experiment_that_runs(tmp_path: Path) -> None:
    write_config(tmp_path, parse_flags(), "shoal experiment results")
    with (tmp_path / ".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert main(["results", "--out", str(tmp_path), "--fresh"]) == 2
    assert (tmp_path / "config.json").exists()


def test_one_experiment_at_a_time_writes_to_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (tmp_path / ".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert main(["results", "--out", str(tmp_path)]) == 2
    assert "another experiment" in capsys.readouterr().err


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [without_clocks(json.loads(line)) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_it_runs_and_goes_on_where_it_was_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    document = document_of(capsys, *SMALL, "--out", str(out))
    check("experiment", document)
    del document["schema_version"]
    arms = {"8/0", "2/0", "2/2 strategy=positive"}
    assert set(document["totals"]) == set(document["heldout"]) == arms
    assert (document["jobs"], document["jobs_finished"], document["mode"]) == (3, 3, "in-process")
    assert json.loads((out / "result.json").read_text()) == document
    assert "| 2/0 |" in (out / "table.md").read_text()

    jobs = experiment(*SMALL).jobs()
    kept, cut = (out / job.file_name for job in jobs[1:])
    whole = read_lines(cut)
    assert whole[-1] == {"event": "made_by", "code": document["made_by"]["code"][0]}
    typed = [word for word in SMALL if word not in ("--jobs", "0", "--no-figures")]
    assert document["made_by"]["command"] == " ".join(["shoal experiment", *typed])
    untouched = kept.stat().st_mtime_ns
    # As a kill leaves it: half a file, under the name of one in progress.
    cut.rename(cut.with_name(f"{cut.name}.part"))
    again = document_of(capsys, *SMALL, "--out", str(out))
    assert again["totals"] == document["totals"]
    assert read_lines(cut) == whole
    assert kept.stat().st_mtime_ns == untouched


@pytest.mark.slow
def test_worker_processes_play_jobs_and_say_in_one_line_which_cannot_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    (tmp_path / "config.json").write_text("{}")
    flags = [*SMALL[:9], "--arm", "2/0", "--arm", f"1/0,model={tmp_path}", "--jobs", "1"]
    flags += ["--arm", "8/0,local=1", *SMALL[-6:], "--out", str(out)]
    assert main(flags) == 1
    output = capsys.readouterr().err.strip().splitlines()
    assert output[-1].startswith("shoal experiment: rounds/1-0-model-")
    assert "ModelError: " in output[-1]
    assert [is_done(out, job) for job in experiment(*flags).jobs()] == [True, True, False, False]
