"""Renders parts as text: cut to a screen for `shoal watch`, whole for `shoal status` and `debug`.

    parts of a block, or of any answer ─┬─lines_of──▶ lines that fit: what does not is absent
                                        └─print_parts─▶ every value, in columns or below its row

Text from peers comes from the view model, where control characters are escaped.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final, get_args, get_origin, get_type_hints

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from shoal.layout import MAX_CELL_CHARS, Rows, cut, pairs, peer_name, print_pairs
from shoal.view.model import Cell, Fact, Figures, Part, Table
from shoal.view.table import as_text
from shoal_base.terminal import styled
from shoal_ipc.answers.words import duration

COLOURS: Final = {
    "ok": "green",
    "warn": "yellow",
    "bad": "red",
    "down": "magenta",
    "doubted": "yellow",
    "banned": "red",
    "blocked": "red",
    "dim": "dim",
}
"""Colours of tones. The word of a state is always printed too."""
_STATES: Final = ("ok", "warn", "bad", "down")
_GAP: Final = 2
_MIN_CUT: Final = 8
"""Cells of a column, at least, where it is cut."""
_PEERS: Final = ("peer_id", "publisher")
_SENTENCES: Final = ("last_error",)


def lines_of(parts: Iterable[Part], room: int, *, at_unix: float) -> Iterator[Text]:
    """Yield the lines of a block; those of tables fit into `room`, others are to be wrapped."""
    for part in parts:
        if isinstance(part, Cell):
            fits = cell_len(part.text) + cell_len(part.note) + 2 <= room
            more = f"  {part.note}" if fits and part.note else ""
            yield _line(part).append_text(styled((more, "dim")))
        elif isinstance(part, Figures):
            yield styled("  ".join(f"{one.name} {_value(one)}" for one in part.facts))
        else:
            yield from _rows(part, room, at_unix)


def _line(cell: Cell) -> Text:
    if cell.tone in _STATES:
        return styled((f"{cell.tone}: ", COLOURS[cell.tone]), cell.text)
    arrow = "→ " if cell.tone == "remedy" else ""
    return styled((f"{arrow}{cell.text}", COLOURS.get(cell.tone, "")))


def _value(fact: Fact) -> str:
    return f"{fact.value} {fact.more}".strip()


def _rows(table: Table, room: int, at_unix: float) -> Iterator[Text]:
    """Yield a table's rows with the columns that fit, from the left; none of them is wrapped.

    The last column may be cut, unless it has numbers. A single number needs no headings.
    """
    heads = tuple(Cell(text=one.text, tone="dim") for one in table.columns)
    rows = [[(_text(cell, at_unix), cell) for cell in row] for row in (heads, *table.rows)]
    widths = [
        max(cell_len(text) for text, _ in column) if any(text for text, _ in column[1:]) else 0
        for column in zip(*rows, strict=True)
    ]
    numbers = [one.tone == "number" for one in table.columns]
    shown, start = list[int](), 0
    for at, width in enumerate(widths):
        if width and heads[at].text:
            needs = width if numbers[at] else min(width, _MIN_CUT)
            if shown and start + needs > room:
                break
            shown.append(at)
            start += width + _GAP
    has_headings = sum(numbers[at] for at in shown) > 1
    for row in rows if has_headings else rows[1:]:
        line = Text(no_wrap=True)
        for at in shown:
            text, cell = row[at]
            blanks = " " * (widths[at] - cell_len(text))
            words = blanks + text if numbers[at] else text + blanks
            space = " " * _GAP if line else ""
            line.append_text(styled(space, (words, COLOURS.get(cell.tone, ""))))
        line.rstrip()
        yield line
        yield from (_line(cell) for text, cell in row if text and cell.tone == "remedy")


def _text(cell: Cell, at_unix: float) -> str:
    if cell.at_ms is not None:
        return f"{duration(max(0.0, at_unix - cell.at_ms / 1000))} ago"
    return cell.text


def print_parts(console: Console, parts: Iterable[Part], *, at_unix: float | None = None) -> None:
    """Print parts whole; no value is cut or absent."""
    now = time.time() if at_unix is None else at_unix
    for part in parts:
        if isinstance(part, Cell):
            console.print(_line(part), soft_wrap=True)
        elif isinstance(part, Figures):
            shown = pairs()
            for one in part.facts:
                shown.add_row(one.name, _value(one))
            print_pairs(console, shown)
        else:
            _print_table(console, part, now)


def _print_table(console: Console, table: Table, at_unix: float) -> None:
    rows = [
        [peer_name(console, cell.peer) if cell.peer else _text(cell, at_unix) for cell in row]
        for row in table.rows
    ]
    # The first cell identifies the row.
    shown = [at for at in range(len(table.columns)) if at == 0 or any(row[at] for row in rows)]
    printed = Rows([table.columns[at].text for at in shown])
    for row in rows:
        printed.add_row(*(row[at] or "-" for at in shown))
    printed.print(console)


def show(console: Console, answer: Any) -> None:
    """Print any answer: a table for each list of rows, and then its values.

    The names and units of fields determine headings and formats, so that new views and fields need
    no code here.
    """
    facts = []
    for name, value in _parts(answer):
        if name in _tables(type(answer)):
            _show_rows(console, _title(name), value)
            continue
        text = _inside(value) if is_dataclass(value) else _format(name, value)
        facts.append(Fact(name=_title(name), value=text or "-"))
    if facts:
        print_parts(console, [Figures(facts=tuple(facts))])


def _parts(answer: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields that have a value, by name."""
    for one in fields(answer):
        value = getattr(answer, one.name)
        if one.name != "schema_version" and value is not None:
            yield one.name, value


def _tables(kind: Any) -> frozenset[str]:
    """Return the names of a type's fields that are lists of rows."""
    hints = get_type_hints(kind)
    return frozenset(
        name
        for name, hint in hints.items()
        if get_origin(hint) is tuple and is_dataclass(get_args(hint)[0])
    )


def _show_rows(console: Console, title: str, rows: Sequence[Any]) -> None:
    if not rows:
        console.print(f"{title}: none")
        return
    console.print(title, style="bold", soft_wrap=True)
    names = [one.name for one in fields(rows[0]) if one.name != "is_local"]
    columns = tuple(Cell(text=_title(name)) for name in names)
    cells = tuple(tuple(_cell(row, name) for name in names) for row in rows)
    print_parts(console, [Table(columns=columns, rows=cells)])


def _cell(row: Any, name: str) -> Cell:
    value = getattr(row, name)
    if name in _PEERS:
        return Cell(text="this node") if getattr(row, "is_local", False) else Cell(peer=value)
    return Cell(text=str(len(value)) if name == "topics" else _format(name, value))


def _inside(value: Any) -> str:
    found = ((_title(name), _format(name, one)) for name, one in _parts(value))
    return ", ".join(f"{title} {text}" for title, text in found if text)


def _format(name: str, value: Any) -> str:
    text = as_text(name, value)
    return cut(text, MAX_CELL_CHARS) if name in _SENTENCES else text


def _title(name: str) -> str:
    """Return a field's name as a column heading."""
    if not name.endswith("per_s"):
        for unit in ("_ms", "_s", "_id"):
            name = name.removesuffix(unit)
    return name.replace("_", " ")
