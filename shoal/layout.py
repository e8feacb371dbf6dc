"""Layout of what commands show to people: tables, and values in words."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shoal_base.terminal import styled
from shoal_base.visible import visible

MAX_CELL_CHARS = 60
"""Longest sentence in a cell, or line of an answer: what is longer makes every row of a table tall,
and `--json` has the whole."""
PIPE_CELLS = 10_000
"""Width of a line into a pipe: more than any value has."""
_WIDE = 140
"""Columns from which tables show whole peer ids and topics."""


def local_time(at_ms: float) -> str:
    """Return a time as a day and a minute of this machine's clock; empty where none has it."""
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(at_ms / 1000)) if at_ms > 0 else ""
    except (OverflowError, OSError, ValueError):  # a year that no calendar has
        return ""


def pairs() -> Table:
    """Return a table of names and values."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def print_pairs(console: Console, table: Table) -> None:
    """Print a table of names and values. In a pipe no value is broken: grep has it whole."""
    width = console.width
    if not console.is_terminal:
        console.width = PIPE_CELLS
    console.print(table)
    console.width = width


class Rows:
    """A table's rows, before it is known how wide a terminal is.

    Where it is wider than the terminal the widest columns, but for the first, go below their row,
    as many as must: no cell breaks inside.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = list(columns)
        self._rows: list[list[str]] = []

    def add_row(self, *cells: str) -> None:
        """Add one, a cell for each column."""
        self._rows.append([visible(cell) for cell in cells])

    def print(self, console: Console) -> None:
        """Print them all."""
        widths = [
            max(map(cell_len, cells)) for cells in zip(self._columns, *self._rows, strict=True)
        ]
        beside = list(range(len(widths)))
        for place in sorted(beside[1:], key=lambda place: -widths[place]):
            if sum(widths[place] + 3 for place in beside) <= console.width:
                break
            beside.remove(place)
        if len(beside) == len(widths):
            console.print(self._table())
        else:
            self._print_narrow(console, beside, widths)

    def _table(self) -> Table:
        made = Table(box=box.SIMPLE, pad_edge=False)
        for column in self._columns:
            made.add_column(column, overflow="fold")
        for row in self._rows:
            made.add_row(*row)
        return made

    def _print_narrow(self, console: Console, beside: Sequence[int], widths: list[int]) -> None:
        def line(cells: Sequence[str]) -> str:
            padded = (cells[i] + " " * (widths[i] - cell_len(cells[i])) for i in beside)
            return f" {'   '.join(padded)}".rstrip()

        console.print()
        console.print(line(self._columns), style="bold", soft_wrap=True)
        console.print(f" {'─' * (sum(widths[i] + 3 for i in beside) - 3)}", soft_wrap=True)
        for row in self._rows:
            console.print(line(row), soft_wrap=True)
            for place, name in enumerate(self._columns):
                if place not in beside and row[place] not in ("", "-"):
                    console.print(f"   {name} {row[place]}", soft_wrap=True)
        console.print()


def print_wrapped(console: Console, text: str, *, head: str | Text = "  ") -> None:
    """Print a text behind a head, or an indent: on a terminal broken between words, all its lines
    beginning below one another; else one line.
    """
    said, first = styled(text), head if isinstance(head, Text) else styled(head)
    at = first.cell_len if first.cell_len * 2 < console.width else 2
    lines = said.wrap(console, max(20, console.width - at)) if console.is_terminal else [said]
    for number, line in enumerate(lines):
        line.rstrip()
        begin = styled(" " * at) if number else first.copy()
        console.print(begin.append_text(line), soft_wrap=True)


def size(count: float) -> str:
    """Return bytes in binary units."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def number(value: float | None) -> str:
    """Return a reward, or a dash where there is none."""
    return "-" if value is None else f"{value:.3f}"


def cut(text: str, limit: int) -> str:
    """Return a text, or as much of it as fits with a mark that there is more."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def peer_name(console: Console, peer_id: str) -> str:
    """Return a peer id, in a narrow terminal only its end; `--json` has all of it."""
    return peer_id if console.width >= _WIDE else f"…{peer_id[-10:]}"
