"""Packs the rounds behind a table of docs/results-details.md, small enough for the tree.

    python -m tests.lab.experiment.kept_rounds FOLDER ARCHIVE

The archive has the folder's plan and, of each line of its jobs, only the fields that the table
needs. Unpacked, it is an experiment's folder: the command of its config.json finds every job done
and prints the table.

"""

from __future__ import annotations

import io
import json
import sys
import tarfile
from pathlib import Path
from typing import Any, Final

from shoal_lab.experiment.plan import Arm, Experiment, NodeSpec
from shoal_lab.experiment.presets import PRESETS
from shoal_lab.experiment.report.comparison import COUNTED
from shoal_lab.experiment.report.output import report
from shoal_lab.experiment.report.results import JobRun, load_runs

ARCHIVES: Final = Path(__file__).parents[3] / "lab" / "results"
DOCS: Final = Path(__file__).parents[3] / "docs"
_KEPT: Final = {
    "round": (*("reward_local", "tokens_generated", "cpu_seconds", "planted", "planted_right"),),
    "held_out": ("held_out/pass@1",),
}
_SAME: Final = ("event", "node", "round")


def slim(line: dict[str, Any]) -> dict[str, Any]:
    """The line without the fields that no table reads; job and commit stay whole."""
    kept = _KEPT.get(line["event"])
    if kept is None:
        return line
    families = [key for key in line if key.startswith("held_out/") and key.endswith(COUNTED)]
    return {key: line[key] for key in (*_SAME, *kept, *families) if key in line}


def pack(folder: Path, archive: Path) -> None:
    """Write the folder's config and finished jobs; the same bytes from the same folder."""
    plans = [path for path in (folder / "plan.toml",) if path.exists()]
    paths = [folder / "config.json", *plans, *sorted(folder.glob("rounds/*/seed-*.jsonl"))]
    with tarfile.open(archive, "w:xz", preset=9) as made:
        for path in paths:
            text = path.read_text()
            if path.suffix == ".jsonl":
                lines = map(json.loads, text.splitlines())
                kept = (slim(line) for line in lines if line["event"] != "answers")
                text = "".join(json.dumps(line) + "\n" for line in kept)
            entry = tarfile.TarInfo(path.relative_to(folder).as_posix())
            entry.size = len(text.encode())
            made.addfile(entry, io.BytesIO(text.encode()))


def unpack(archive: Path, folder: Path) -> None:
    """Make the experiment's folder of an archive."""
    with tarfile.open(archive) as made:
        made.extractall(folder, filter="data")


def experiment_of(folder: Path) -> Experiment:
    """Return the config of an unpacked folder, including settings that were removed since."""
    config = json.loads((folder / "config.json").read_text())
    arms = [
        Arm(
            name=one["name"],
            nodes=tuple(
                NodeSpec(**{**node, "families": tuple(node.get("families", ()))})
                for node in one["nodes"]
            ),
        )
        for one in config["arms"]
    ]
    return Experiment(
        name=config["name"],
        arms=tuple(arms),
        seeds=tuple(config["seeds"]),
        rounds=config["rounds"],
        base=config["base"],
    )


def kept_runs(name: str, folder: Path) -> list[JobRun]:
    """Return the runs of an archive, unpacked below `folder`."""
    into = folder / name
    into.mkdir(parents=True, exist_ok=True)
    unpack(ARCHIVES / f"{name}.tar.xz", into)
    return load_runs(into, experiment_of(into))


def read_results(folder: Path) -> tuple[dict[str, Any], str]:
    """Return the numbers of an unpacked folder, and the table; no job is run."""
    experiment = experiment_of(folder)
    title = PRESETS[experiment.name.removesuffix("-quick")].title
    _, document = report(folder, experiment, title, figures=False)
    assert document["jobs"] == document["jobs_finished"] > 0
    return document, (folder / "table.md").read_text().split("\n", 2)[2].strip()


if __name__ == "__main__":
    pack(Path(sys.argv[1]), Path(sys.argv[2]))
