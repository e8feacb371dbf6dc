"""Files that an experiment writes to its folder when it ends or is interrupted.

config.json   the experiment              rounds/ARM/seed-S.jsonl   every round of every node
plan.toml     the same, written before the first round, with the tests
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
    """Return whether an experiment has begun here; a model's folder has a `config.json`, too."""
    return {"arms", "seeds", "rounds"} <= _config(out).keys()


def remove(out: Path) -> None:
    """Remove an experiment's files from its folder, and no other files."""
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
    """Yield the contents of a job's file: first the job itself, then each event."""
    with (out / job.file_name).open() as file:
        yield from map(json.loads, file)


def write_config(out: Path, experiment: Experiment, command: str) -> None:
    """Write the experiment and the command that started it."""
    out.mkdir(parents=True, exist_ok=True)
    config = {"command": command, **experiment.to_json()}
    (out / CONFIG).write_text(json.dumps(config, indent=1) + "\n")


def _config(out: Path) -> dict[str, Any]:
    try:
        found = json.loads((out / CONFIG).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_result(
    out: Path, experiment: Experiment, document: Mapping[str, Any], table: str | None
) -> dict[str, Any]:
    """Write the numbers, and a Markdown table if there are any rows.

    Returns the numbers with their experiment and their provenance.
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
