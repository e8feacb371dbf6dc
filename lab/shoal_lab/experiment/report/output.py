"""The one report of every preset: read the runs, write table, numbers, answers and figures.

finished jobs ──▶ runs ──▶ Comparison ──▶ result.json · table.md · answers.md · figures/
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.table import Table

from shoal_lab.experiment.folder import ANSWERS, FIGURES, write_result
from shoal_lab.experiment.plan import Experiment
from shoal_lab.experiment.report.answers import answers_page
from shoal_lab.experiment.report.comparison import Comparison
from shoal_lab.experiment.report.measures import comparable
from shoal_lab.experiment.report.results import load_runs


def report(
    out: Path, experiment: Experiment, title: str, *, figures: bool
) -> tuple[Callable[[int], Table] | None, dict[str, Any]]:
    """Summarise the finished jobs and write the report.

    Returns the terminal's table by its width, None without one finished job, and the JSON object.
    """
    runs = comparable(load_runs(out, experiment))
    found = Comparison(runs, title)
    drawn = _draw(out, found) if figures and runs else []
    document = {**found.to_json(), "figures": [str(path.relative_to(out)) for path in drawn]}
    if not runs:
        return None, write_result(out, experiment, document, None)
    if any(run.answers[0] for run in runs):
        (out / ANSWERS).write_text(answers_page(runs))
        document["answers"] = ANSWERS
    document = write_result(out, experiment, document, found.markdown())
    return lambda width: found.sheet.rich(found.rows, width), document


def _draw(out: Path, found: Comparison) -> list[Path]:
    from shoal_lab.experiment.report.drawing import figures_of
    from shoal_lab.figures import save

    return save(out / FIGURES, figures_of(found.runs, found.sheet.title))
