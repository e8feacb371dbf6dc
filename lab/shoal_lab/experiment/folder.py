"""Files that an experiment leaves in its folder when it ends, or is ended.

config.json   what was asked for          rounds/ARM/seed-S.jsonl   every round of every node
plan.toml     the same, before it was played, with the tests
result.json   the numbers (as `--json`)   table.md, figures/*.png, figures/*.svg
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from shoal_lab.experiment import made_by
from shoal_lab.experiment.plan import Experiment, Job, same_job
from shoal_lab.experiment.registered import PLAN, registered

FIGURES = "figures"
CONFIG = "config.json"
RESULT = "result.json"
TABLE = "table.md"
SWEEP = "sweep.md"
ANSWERS = "answers.md"
STATE = "state"
"""Folder of the state of unfinished jobs of large models."""
_WRITTEN = (
    *(CONFIG, PLAN, RESULT, TABLE, SWEEP, ANSWERS),
    *(FIGURES, STATE, "rounds"),
)


def holds_experiment(out: Path) -> bool:
    """Return whether an experiment has begun here: a model's folder, too, has a `config.json`."""
    return {"arms", "seeds", "rounds"} <= _config(out).keys()


def remove(out: Path) -> None:
    """Remove what an experiment leaves in its folder, and nothing that stands beside it."""
    for path in (out / name for name in _WRITTEN):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def is_done(out: Path, job: Job) -> bool:
    """Return whether a job's file is complete."""
    try:
        with (out / job.file_name).open() as file:
            return same_job(file.readline(), job)
    except OSError:
        return False


def done_jobs(out: Path, experiment: Experiment) -> list[Job]:
    """Return the jobs whose file is complete, in the experiment's order."""
    return [job for job in experiment.jobs() if is_done(out, job)]


def lines_of(out: Path, job: Job) -> Iterator[dict[str, Any]]:
    """Yield what a job's file holds: first the job itself, then event by event."""
    with (out / job.file_name).open() as file:
        yield from map(json.loads, file)


def write_config(out: Path, experiment: Experiment, command: str) -> None:
    """Write down what was asked for, and by which command."""
    out.mkdir(parents=True, exist_ok=True)
    asked = {"command": command, **experiment.to_json()}
    (out / CONFIG).write_text(json.dumps(asked, indent=1) + "\n")


def _config(out: Path) -> dict[str, Any]:
    try:
        found = json.loads((out / CONFIG).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_result(
    out: Path, experiment: Experiment, document: Mapping[str, Any], table: str | None
) -> dict[str, Any]:
    """Write down the numbers, and a Markdown table if there is anything to put in.

    Returns the numbers with what they are of, and what they came of.
    """
    done = done_jobs(out, experiment)
    whole = {
        "experiment": experiment.name,
        "out": str(out),
        "rounds": experiment.rounds,
        "jobs": len(experiment.jobs()),
        "jobs_finished": len(done),
        **document,
        "made_by": (made := {**made_by.made_by(out, done, _config(out)), **registered(out, done)}),
    }
    (out / RESULT).write_text(json.dumps(whole, indent=1) + "\n")
    if table is not None:
        text = f"# shoal experiment {experiment.name}\n\n{table}\n{made_by.markdown(made)}"
        (out / TABLE).write_text(text)
    return whole
