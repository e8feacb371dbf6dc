"""Experiments from flags, their jobs run in memory, and files as a finished job leaves them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from shoal.__main__ import main
from shoal_lab.experiment.flags import make_experiment, parser
from shoal_lab.experiment.plan import Arm, Experiment, Job, NodeSpec
from shoal_lab.experiment.run.in_process import Workers, play

BASE: Mapping[str, Any] = {"model": "tiny", "device": "cpu", "completions": 4, "eval_every": 0}
CLOCKS = ("step_time", "cpu_seconds", "seconds_generate", "seconds_update", "held_out/seconds")
"""The fields that differ between any two runs."""


def experiment(*words: str) -> Experiment:
    """Return the jobs that `shoal experiment` makes of some arguments."""
    return make_experiment(parser().parse_args(words))


def parse_flags(*flags: str) -> Experiment:
    """The preset `results` with some flags."""
    return experiment("results", *flags)


def arm_of(*nodes: NodeSpec) -> Arm:
    """An arm of these nodes."""
    return Arm(name="a", nodes=nodes)


def job(arm: Arm, *, rounds: int = 3, seed: int = 1, **base: Any) -> Job:
    """An arm's job in small."""
    return Job(arm=arm, seed=seed, rounds=rounds, base={**BASE, **base})


def lines_of(job: Job, shared: Workers) -> list[dict[str, Any]]:
    """Run a job; return all of its lines."""
    lines: list[dict[str, Any]] = []
    play(job, shared, lines.append)
    return lines


def rounds_of(job: Job, shared: Workers) -> list[dict[str, Any]]:
    """Run a job; return the lines of its rounds."""
    return [line for line in lines_of(job, shared) if line["event"] == "round"]


def without_clocks(line: dict[str, Any]) -> dict[str, Any]:
    """The line as any run of the same job has it."""
    return {key: value for key, value in line.items() if key not in CLOCKS}


def written(out: Path, job: Job, *lines: dict[str, Any]) -> Path:
    """Leave the file of a finished job in an experiment's folder."""
    path = out / job.file_name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in (job.to_json(), *lines)))
    return path


def document_of(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """Run `shoal experiment`; return the JSON that it prints."""
    assert main(["experiment", *words, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document
