"""The one report of every preset: read the runs, write table, numbers, pages and figures.

finished jobs ──▶ runs ──▶ Reading (of the preset) ──▶ result.json · table.md · pages · figures/
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from shoal_lab.experiment.folder import FIGURES, write_result
from shoal_lab.experiment.plan import Experiment
from shoal_lab.experiment.reading.measures import comparable
from shoal_lab.experiment.reading.results import Run, load_runs
from shoal_lab.experiment.reading.sheet import Row, Sheet

if TYPE_CHECKING:  # matplotlib, which takes a second
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a preset finds in its runs."""

    sheet: Sheet
    rows: Sequence[Row]
    document: Mapping[str, Any]
    """Numbers for the JSON."""
    notes: Sequence[str] = ()
    """Sentences beneath the table, without a full stop."""
    sections: Sequence[str] = ()
    """Further Markdown of the table's page."""
    pages: Mapping[str, str] = field(default_factory=dict)
    """Further pages, by file name."""
    figures: Callable[[], Iterator[tuple[str, Figure]]]
    """Draws each figure, under its file's name."""


Read = Callable[[Sequence[Run], Experiment], Reading]
"""Given comparable runs, perhaps none."""


def report(
    out: Path, experiment: Experiment, read: Read, *, figures: bool
) -> tuple[Callable[[int], Table] | None, dict[str, Any]]:
    """Sum up what is finished and write it down.

    Returns the terminal's table by its width, None without one finished job, and the JSON object.
    """
    runs = comparable(load_runs(out, experiment))
    found = read(runs, experiment)
    drawn = _draw(out, found) if figures and runs else []
    document = {**found.document, "figures": [str(path.relative_to(out)) for path in drawn]}
    if not runs:
        return None, write_result(out, experiment, document, None)
    text = "\n".join([found.sheet.markdown(found.rows, found.notes), *found.sections])
    document = write_result(out, experiment, document, text)
    for name, page in found.pages.items():
        (out / name).write_text(page)
    return lambda width: found.sheet.rich(found.rows, width, found.notes), document


def _draw(out: Path, found: Reading) -> list[Path]:
    from shoal_lab.figures import save

    return save(out / FIGURES, found.figures())
