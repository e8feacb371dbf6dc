"""Layout of the output of commands: tables, and values with units."""

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
"""Longest sentence in a table cell, and longest line of an answer. A longer one would make every
row tall; `--json` prints all of it."""
PIPE_CELLS = 10_000
"""Width of a line in a pipe: longer than any value."""
_WIDE = 140
"""Columns from which tables show whole peer ids and topics."""


def local_time(at_ms: float) -> str:
    """Return a time as date and minute in local time; empty if it is out of range."""
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
    """Print a table of names and values. In a pipe no value is wrapped, so that grep finds it."""
    width = console.width
    if not console.is_terminal:
        console.width = PIPE_CELLS
    console.print(table)
    console.width = width


class Rows:
    """Rows of a table that fits itself to the terminal.

    If the table is too wide, its widest columns except the first are printed below their row, as
    many as necessary, and always a column without a heading. No cell is wrapped.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = list(columns)
        self._rows: list[list[str]] = []

    def add_row(self, *cells: str) -> None:
        """Add a row with a cell for each column."""
        self._rows.append([visible(cell) for cell in cells])

    def print(self, console: Console) -> None:
        """Print all rows."""
        widths = [
            max(map(cell_len, cells)) for cells in zip(self._columns, *self._rows, strict=True)
        ]
        columns = [index for index, name in enumerate(self._columns) if name]
        for index in sorted(columns[1:], key=lambda index: -widths[index]):
            if sum(widths[index] + 3 for index in columns) <= console.width:
                break
            columns.remove(index)
        if len(columns) == len(widths):
            console.print(self._table())
        else:
            self._print_narrow(console, columns, widths)

    def _table(self) -> Table:
        made = Table(box=box.SIMPLE, pad_edge=False)
        for column in self._columns:
            made.add_column(column, overflow="fold")
        for row in self._rows:
            made.add_row(*row)
        return made

    def _print_narrow(self, console: Console, columns: Sequence[int], widths: list[int]) -> None:
        def line(cells: Sequence[str]) -> str:
            padded = (cells[i] + " " * (widths[i] - cell_len(cells[i])) for i in columns)
            return f" {'   '.join(padded)}".rstrip()

        console.print()
        console.print(line(self._columns), style="bold", soft_wrap=True)
        console.print(f" {'─' * (sum(widths[i] + 3 for i in columns) - 3)}", soft_wrap=True)
        for row in self._rows:
            console.print(line(row), soft_wrap=True)
            for index, name in enumerate(self._columns):
                if index not in columns and row[index] not in ("", "-"):
                    console.print(f"   {name or '→'} {row[index]}", soft_wrap=True)
        console.print()


def print_wrapped(console: Console, text: str, *, head: str | Text = "  ") -> None:
    """Print a text after a heading or an indent. A terminal gets wrapped, aligned lines; a pipe
    gets one line.
    """
    body, first = styled(text), head if isinstance(head, Text) else styled(head)
    at = first.cell_len if first.cell_len * 2 < console.width else 2
    lines = body.wrap(console, max(20, console.width - at)) if console.is_terminal else [body]
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
    """Return a reward, or a dash for None."""
    return "-" if value is None else f"{value:.3f}"


def cut(text: str, limit: int) -> str:
    """Return a text, cut to `limit` characters with a final ellipsis if it is longer."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def peer_name(console: Console, peer_id: str) -> str:
    """Return a peer id; in a narrow terminal only its end."""
    return peer_id if console.width >= _WIDE else f"…{peer_id[-10:]}"
