"""A table of an experiment: declared once by its columns, shown in a terminal, Markdown and JSON.

rows ──▶ Sheet (columns) ──▶ rich (by width) · Markdown with its caption · JSON by figure
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.table import Table

from shoal_lab.experiment.report.measures import Difference
from shoal_lab.experiment.report.results import JobRun
from shoal_lab.significance import Spread

NOTHING: Final = "–"
"""Shown in place of a missing figure, such as the interval of one seed."""
WIDE: Final = 120
"""Terminal width that fits all columns of a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The runs that one line is about; at least one."""

    name: str
    runs: Sequence[JobRun]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One figure of every row."""

    of: Callable[[Row], Any]
    """Returns a Spread, number, text, or None where the row has no such figure."""
    head: str = ""
    """Title in the table; without one it stands in the JSON alone."""
    key: str = ""
    """Key in the JSON; without one it stands in the table alone."""
    shown: Callable[[Any], str] = str
    is_text: bool = False
    in_narrow: bool = True
    """True if a narrow terminal shows it."""

    def cell(self, row: Row) -> str:
        """Return the cell's text."""
        value = self.of(row)
        return NOTHING if value is None else self.shown(value)

    def json(self, row: Row) -> Any:
        """Return the value for the JSON."""
        value = self.of(row)
        return value.to_json() if isinstance(value, Spread) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """A table's columns, title and caption. Empty columns are omitted."""

    title: str
    caption: str
    columns: Sequence[Column]

    def rich(self, rows: Sequence[Row], width: int) -> Table:
        """Return the table for a terminal; a narrow one gets the columns that matter most."""
        table = Table(title=self.title, title_justify="left")
        table.caption, table.caption_justify = self.caption, "left"
        shown = [one for one in self._shown(rows) if width >= WIDE or one.in_narrow]
        for one in shown:
            table.add_column(one.head, justify="left" if one.is_text else "right", no_wrap=True)
        for row in rows:
            table.add_row(*(one.cell(row) for one in shown))
        return table

    def markdown(self, rows: Sequence[Row]) -> str:
        """Return the table as Markdown, with its caption."""
        shown = self._shown(rows)
        lines = ["| " + " | ".join(one.head for one in shown) + " |", "|" + "---|" * len(shown)]
        lines += ["| " + " | ".join(one.cell(row) for one in shown) + " |" for row in rows]
        return "\n".join([*lines, "", f"{self.caption}."]) + "\n"

    def by_measure(self, rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
        """Return each key's figures by the rows' names, for rows that have it."""
        return {
            one.key: {row.name: found for row in rows if (found := one.json(row)) is not None}
            for one in self.columns
            if one.key
        }

    def _shown(self, rows: Sequence[Row]) -> list[Column]:
        return [
            one for one in self.columns if one.head and any(one.of(row) is not None for row in rows)
        ]


def interval_of(digits: int, sign: str = "") -> Callable[[Spread], str]:
    """Return a formatter of a mean with its 95 % interval."""

    def shown(value: Spread) -> str:
        half = NOTHING if value.half is None else f"{value.half:.{digits}f}"
        return f"{value.mean:{sign}.{digits}f} ± {half}"

    return shown


def percent_of(value: Spread) -> str:
    """Show a share in percent, with its 95 % interval if there are enough seeds."""
    found = f"{100 * value.mean:.1f}"
    return f"{found}%" if value.half is None else f"{found} ± {100 * value.half:.1f}%"


def mean_of(form: str, scale: float = 1.0, unit: str = "") -> Callable[[Spread], str]:
    """Return a formatter of a mean alone."""
    return lambda value: f"{value.mean * scale:{form}}{unit}"


def p_of(value: float | None) -> str:
    """Show a p-value."""
    if value is None:
        return NOTHING
    return "<0.0001" if value < 0.0001 else f"{value:.4f}"


def pairs_markdown(
    measures: Mapping[str, Mapping[tuple[str, str], Difference]], caption: str
) -> str:
    """Return the comparison of each pair of rows, by measure, as a Markdown table."""
    heads = " | ".join(f"{head} | p" for head in measures)
    lines = [f"| | minus | {heads} |", "|---|---" + "|---|---" * len(measures) + "|"]
    for pair in next(iter(measures.values())):
        found = [one[pair] for one in measures.values()]
        cells = [f"{interval_of(3, '+')(one.spread)} | {p_of(one.p)}" for one in found]
        lines.append(f"| {' | '.join([*pair, *cells])} |")
    return "\n".join([*lines, "", f"{caption}."]) + "\n"
