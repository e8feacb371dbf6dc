"""What an experiment leaves in its folder when it ends, or is ended.

config.json   what was asked for          rounds/ARM/seed-S.jsonl   every round of every node
result.json   the numbers (as `--json`)   table.md, figures/*.png, figures/*.svg
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shoal.experiment.plan import Experiment
from shoal.experiment.reading.results import Run, load_runs
from shoal.experiment.reading.summary import ArmSummary, comparable, summarise, to_json
from shoal.experiment.reading.table import markdown

FIGURES = "figures"


def write_report(
    out: Path, experiment: Experiment, *, title: str, figures: bool = True
) -> tuple[list[ArmSummary], dict[str, Any]]:
    """Summarise what is finished and write it down; return summaries and the JSON object."""
    runs = comparable(load_runs(out, experiment))
    summaries = summarise(runs) if runs else []
    drawn = _draw(out, runs, summaries, title) if figures and runs else []
    document = {
        "experiment": experiment.name,
        "out": str(out),
        "mode": "swarm" if experiment.swarm else "in-process",
        "rounds": experiment.rounds,
        "nodes": len(experiment.arms[0].nodes),
        "jobs": len(experiment.jobs()),
        "jobs_finished": len(load_runs(out, experiment)),
        **to_json(summaries),
        "figures": [str(path.relative_to(out)) for path in drawn],
    }
    (out / "result.json").write_text(json.dumps(document, indent=1) + "\n")
    if summaries:
        (out / "table.md").write_text(f"# {title}\n\n{markdown(summaries)}")
    return summaries, document


def write_config(out: Path, experiment: Experiment) -> None:
    """Write down what was asked for."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(experiment.to_json(), indent=1) + "\n")


def _draw(
    out: Path, runs: Sequence[Run], summaries: Sequence[ArmSummary], title: str
) -> list[Path]:
    """The figures; none where matplotlib is not installed."""
    try:
        from shoal.experiment.reading.figures import draw_all
    except ImportError:
        return []
    return draw_all(out / FIGURES, runs, summaries, title)
