"""Packs the rounds behind a table of docs/archive/experiments.md, small enough for the tree.

    python -m tests.lab.experiment.kept_rounds FOLDER ARCHIVE

Of each line of a folder's jobs only what the table is made of is kept, and its plan. Unpacked, the
archive is an experiment's folder: the command of its config.json finds every job done and prints
the table.

    python -m tests.lab.experiment.kept_rounds result.json ARM

prints the short table that a comparison has in a page, every arm beside `ARM`.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
from pathlib import Path
from typing import Any, Final

from shoal_lab.experiment.arms.results import COUNTED
from shoal_lab.experiment.plan import Arm, Experiment, NodeSpec
from shoal_lab.experiment.presets import PRESETS, Preset
from shoal_lab.experiment.reading.report import report

ARCHIVES: Final = Path(__file__).parents[3] / "lab" / "results"
DOCS: Final = Path(__file__).parents[3] / "docs"
_KEPT: Final = {
    "round": (
        *("reward_local", "reward", "groups_with_signal", "groups_looked_at", "groups_external"),
        *("tokens_generated", "step_time", "cpu_seconds", "planted", "planted_right", "lessons"),
    ),
    "held_out": ("held_out/pass@1", "text_bytes", "weight_bytes"),
}
_SAME: Final = ("event", "node", "round")


def slim(line: dict[str, Any]) -> dict[str, Any]:
    """The line without what no table reads; job and commit stay whole."""
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


def experiment_of(folder: Path) -> tuple[Experiment, Preset]:
    """Return what the config of an unpacked folder says, settings that are gone included."""
    config = json.loads((folder / "config.json").read_text())
    arms = [
        Arm(
            name=one["name"],
            average_every=one.get("average_every", 0),
            nodes=tuple(
                NodeSpec(**{**node, "families": tuple(node.get("families", ()))})
                for node in one["nodes"]
            ),
        )
        for one in config["arms"]
    ]
    found = Experiment(
        name=config["name"],
        arms=tuple(arms),
        seeds=tuple(config["seeds"]),
        rounds=config["rounds"],
        base=config["base"],
    )
    return found, PRESETS[found.name.removesuffix("-quick")]


def told_of(folder: Path) -> tuple[dict[str, Any], str]:
    """Return the numbers of an unpacked folder, and the table; nothing is played."""
    experiment, preset = experiment_of(folder)
    _, document = report(folder, experiment, preset.read, figures=False)
    assert document["jobs"] == document["jobs_finished"] > 0
    return document, (folder / "table.md").read_text().split("\n", 2)[2].strip()


def brief(document: dict[str, Any], beside: str) -> str:
    """A comparison as a page has it: each arm's figures, and what it is above the arm `beside`."""
    lines = [
        f"| | total | minus {beside} | p | held-out | minus {beside} | p |",
        "|---|---|---|---|---|---|---|",
    ]
    for arm in document["totals"]:
        cells = []
        for measure, figures, digits in (("total", "totals", 1), ("heldout", "heldout", 3)):
            cells.append(_spread(document[figures][arm], digits))
            cells += _minus(document["pairs"], arm, beside, measure, digits)
        lines.append(f"| {arm} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _minus(
    pairs: list[dict[str, Any]], arm: str, beside: str, measure: str, digits: int
) -> list[str]:
    for one in pairs:
        if one["measure"] == measure and {one["arm"], one["minus"]} == {arm, beside}:
            p = "–" if one["p_adjusted"] is None else f"{one['p_adjusted']:.3f}"
            return [_spread(one["difference"], digits, -1 if one["minus"] == arm else 1, "+"), p]
    return ["–", "–"]


def _spread(value: dict[str, Any], digits: int, sign: int = 1, form: str = "") -> str:
    mean = f"{sign * value['mean']:{form}.{digits}f}".replace("-", "−")
    if value["ci95"] is None:
        return f"{mean} ± –"
    low, high = value["ci95"]
    return f"{mean} ± {(high - low) / 2:.{digits}f}"


if __name__ == "__main__":
    if sys.argv[1].endswith(".json"):
        print(brief(json.loads(Path(sys.argv[1]).read_text()), sys.argv[2]))
    else:
        pack(Path(sys.argv[1]), Path(sys.argv[2]))
