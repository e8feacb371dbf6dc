"""The table and the figures of a comparison of I/J."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shoal_lab.experiment.folder import FIGURES, LAW, WHOM, done_jobs, lines_of, write_result
from shoal_lab.experiment.plan import Experiment
from shoal_lab.experiment.reading import ceiling as ceilings
from shoal_lab.experiment.reading import whom
from shoal_lab.experiment.reading.results import Run, make_run
from shoal_lab.experiment.reading.summary import (
    ArmSummary,
    Pair,
    comparable,
    pairs,
    summarise,
    to_json,
)
from shoal_lab.experiment.reading.table import markdown, pairs_markdown


def write_report(
    out: Path, experiment: Experiment, *, figures: bool
) -> tuple[list[ArmSummary], dict[str, Any]]:
    """Summarise what is finished and write it down; return summaries and the JSON object."""
    read, lessons = _read(out, experiment)
    runs, told = comparable(read), comparable(lessons)
    summaries, compared = (summarise(runs), pairs(runs)) if runs else ([], [])
    top = ceilings.ceiling(runs) if runs else None
    title = f"shoal experiment {experiment.name}"
    drawn = _draw(out, runs, summaries, title) if figures and runs else []
    document = {
        "mode": "swarm" if experiment.swarm else "in-process",
        "nodes": len(experiment.arms[0].nodes),
        **to_json(summaries, compared),
        **(top.to_json() if top else {}),
        **whom.to_json(told),
        "figures": [str(path.relative_to(out)) for path in drawn],
    }
    document = write_result(
        out, experiment, document, _text(summaries, compared, top) if summaries else None
    )
    _write_law(out, runs)
    if told:
        (out / WHOM).write_text(whom.markdown(whom.courses(told)))
    return summaries, document


def _read(out: Path, experiment: Experiment) -> tuple[list[Run], list[whom.Told]]:
    """Read every finished job once: its series, and its lessons where it has some."""
    runs, lessons = [], []
    for job in done_jobs(out, experiment):
        lines = list(lines_of(out, job))
        runs.append(make_run(job, lines))
        if (told := whom.told(job, lines)) is not None:
            lessons.append(told)
    return runs, lessons


def _text(
    summaries: Sequence[ArmSummary], compared: Sequence[Pair], top: ceilings.Ceiling | None
) -> str:
    parts = [markdown(summaries), pairs_markdown(compared)]
    return "\n".join([*parts, *([ceilings.markdown(top)] if top else [])])


def _draw(
    out: Path, runs: Sequence[Run], summaries: Sequence[ArmSummary], title: str
) -> list[Path]:
    """The figures; none where matplotlib is not installed."""
    try:
        from shoal_lab.experiment.reading.figures import draw_all
    except ImportError:
        return []
    return draw_all(out / FIGURES, runs, summaries, title)


def _write_law(out: Path, runs: Sequence[Run]) -> None:
    """How fast nodes learn by what they look at, where the runs can say so, and scipy is there."""
    try:
        from shoal_lab.experiment.reading import law, law_page
    except ImportError:
        return
    if (found := law.find(runs)) is not None:
        (out / LAW).write_text(law_page.markdown(found))
