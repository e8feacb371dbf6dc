"""A table of an experiment: declared once by its columns, shown in a terminal, Markdown and JSON.

rows ──▶ Sheet (columns) ──▶ rich (by width) · Markdown with its caption · JSON objects
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rich.table import Table

from shoal_lab.experiment.reading.measures import Difference
from shoal_lab.experiment.reading.results import Run
from shoal_lab.significance import Spread

NOTHING: Final = "–"
"""Shown where a figure does not exist, such as the interval of one seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The runs that one line is about."""

    runs: Sequence[Run]
    """The runs of one arm, or of one role in it; at least one."""
    labels: Mapping[str, Any] = field(default_factory=dict)
    """The row's names, and figures that were computed for all rows together."""
    beside: Mapping[str, Sequence[Run]] = field(default_factory=dict)
    """Runs that this line is compared with, by what they are to it; empty where there are none."""


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
    digits: int | None = 6
    """Digits of a plain number in the JSON; None keeps all."""
    is_text: bool = False
    in_narrow: bool = True
    """Whether a narrow terminal has room for it."""

    def cell(self, row: Row) -> str:
        """Return what the table shows."""
        value = self.of(row)
        return NOTHING if value is None else self.shown(value)

    def json(self, row: Row) -> Any:
        """Return what the JSON has."""
        value = self.of(row)
        if isinstance(value, Spread):
            return value.to_json()
        if isinstance(value, float) and self.digits is not None:
            return round(value, self.digits)
        return value


def label(name: str, head: str = "", *, key: str | None = None, **more: Any) -> Column:
    """Return the column of a row's label; its key is its name unless `key` says otherwise."""
    return Column(
        of=lambda row: row.labels[name], head=head, key=name if key is None else key, **more
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """A table's columns, and the words around it."""

    title: str
    caption: str
    columns: Sequence[Column]
    wide: int = 0
    """Terminal columns that all of the table's fit into."""

    def rich(self, rows: Sequence[Row], width: int, notes: Sequence[str] = ()) -> Table:
        """Return the table for a terminal; a narrow one gets the columns that matter most."""
        caption = "; ".join([self.caption, *notes])
        table = Table(title=self.title, title_justify="left")
        table.caption, table.caption_justify = caption, "left"
        shown = [one for one in self._shown() if width >= self.wide or one.in_narrow]
        for place, one in enumerate(shown):
            is_left = one.is_text or not place
            table.add_column(one.head, justify="left" if is_left else "right", no_wrap=True)
        for row in rows:
            table.add_row(*(one.cell(row) for one in shown))
        return table

    def markdown(self, rows: Sequence[Row], notes: Sequence[str] = ()) -> str:
        """Return the table as Markdown, with its caption."""
        shown = self._shown()
        lines = ["| " + " | ".join(one.head for one in shown) + " |", "|" + "---|" * len(shown)]
        lines += ["| " + " | ".join(one.cell(row) for one in shown) + " |" for row in rows]
        return "\n".join([*lines, "", f"{self.caption}.", *(f"\n{one}." for one in notes)]) + "\n"

    def objects(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """Return an object for each row."""
        return [{one.key: one.json(row) for one in self.columns if one.key} for row in rows]

    def by_measure(self, rows: Sequence[Row], name: str) -> dict[str, dict[str, Any]]:
        """Return for each key its figure by the rows' label `name`, where a row has it."""
        return {
            one.key: {
                row.labels[name]: found for row in rows if (found := one.json(row)) is not None
            }
            for one in self.columns
            if one.key
        }

    def _shown(self) -> list[Column]:
        return [one for one in self.columns if one.head]


def interval_of(digits: int, sign: str = "") -> Callable[[Spread], str]:
    """Return what shows a mean with its 95 % interval."""

    def shown(value: Spread) -> str:
        half = NOTHING if value.half is None else f"{value.half:.{digits}f}"
        return f"{value.mean:{sign}.{digits}f} ± {half}"

    return shown


def percent_of(value: Spread, sign: str = "") -> str:
    """Show a share with its 95 % interval, in percent."""
    half = NOTHING if value.half is None else f"{value.half:.0%}"
    return f"{value.mean:{sign}.0%} ± {half}"


def mean_of(form: str, scale: float = 1.0, unit: str = "") -> Callable[[Spread], str]:
    """Return what shows a mean alone."""
    return lambda value: f"{value.mean * scale:{form}}{unit}"


def p_of(value: float) -> str:
    """Show a p-value."""
    return "<0.0001" if value < 0.0001 else f"{value:.4f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The differences of one measure, and how they are shown."""

    head: str
    found: Mapping[tuple[str, str], Difference]
    digits: int
    sign: str = ""

    def cells(self, pair: tuple[str, str]) -> str:
        """Return a pair's difference and p."""
        one = self.found[pair]
        p = NOTHING if one.p is None else p_of(one.p)
        return f"{interval_of(self.digits, self.sign)(one.spread)} | {p}"


def pairs_markdown(measures: Sequence[Compared], caption: str) -> str:
    """Return pairs of arms beside each other, by each measure, as Markdown."""
    heads: Iterable[str] = (f"{one.head} | p" for one in measures)
    lines = [f"| | minus | {' | '.join(heads)} |", "|---|---" + "|---|---" * len(measures) + "|"]
    lines += [
        f"| {' | '.join([*pair, *(one.cells(pair) for one in measures)])} |"
        for pair in measures[0].found
    ]
    return "\n".join([*lines, "", f"{caption}."]) + "\n"
