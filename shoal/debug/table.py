"""Prints any view: its values, and a table for each list of rows.

The name and the unit of a field determine its heading and format, so that new views and fields need
no code here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final, get_args, get_origin, get_type_hints

from rich.console import Console

from shoal.layout import (
    MAX_CELL_CHARS,
    Rows,
    cut,
    local_time,
    number,
    pairs,
    peer_name,
    print_pairs,
    size,
)
from shoal_ipc.answers.words import duration

_SENTENCES: Final = ("last_error",)
_PEERS: Final = ("peer_id", "publisher")


def show(console: Console, answer: Any) -> None:
    """Print an answer."""
    facts = pairs()
    for name, value in _parts(answer):
        if name in _tables(type(answer)):
            _show_rows(console, _title(name), value)
        elif is_dataclass(value):
            facts.add_row(_title(name), _inside(console, value))
        else:
            facts.add_row(_title(name), _format(console, name, value) or "-")
    if facts.row_count:
        print_pairs(console, facts)


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


def _show_rows(console: Console, title: str, rows: tuple[Any, ...]) -> None:
    if not rows:
        console.print(f"{title}: none")
        return
    console.print(title, style="bold", soft_wrap=True)
    # The first cell identifies the row.
    names = [one.name for one in fields(rows[0]) if one.name != "is_local"]
    cells = [[_cell(console, row, name) for name in names] for row in rows]
    shown = [at for at in range(len(names)) if at == 0 or any(row[at] for row in cells)]
    table = Rows([_title(names[at]) for at in shown])
    for row in cells:
        table.add_row(*(row[at] or "-" for at in shown))
    table.print(console)


def _cell(console: Console, row: Any, name: str) -> str:
    """Return a cell; empty for no value."""
    if name in _PEERS and getattr(row, "is_local", False):
        return "this node"
    value = getattr(row, name)
    return str(len(value)) if name == "topics" else _format(console, name, value)


def _inside(console: Console, value: Any) -> str:
    return ", ".join(
        f"{_title(name)} {text}"
        for name, one in _parts(value)
        if (text := _format(console, name, one))
    )


def _format(console: Console, name: str, value: Any) -> str:
    """Return a value formatted by its type and unit; empty for no value."""
    match value:
        case None | () | "":
            return ""
        case bool():
            return "yes" if value else ""
        case Mapping():
            found = ((key, _format(console, name, one)) for key, one in value.items() if one)
            return ", ".join(f"{one} {key}" for key, one in found)
        case tuple():
            return ", ".join(_format(console, name, one) for one in value)
        case str():
            return _text(console, name, value)
        case _:
            return _number(name, value)


def _text(console: Console, name: str, value: str) -> str:
    if name in _PEERS:
        return peer_name(console, value)
    return cut(value, MAX_CELL_CHARS) if name in _SENTENCES else value


def _number(name: str, value: float) -> str:
    if name == "at_ms":
        return local_time(value)
    if name.endswith("_ms"):
        return f"{value:.1f} ms"
    if name.endswith("per_s"):
        return f"{value:g}"
    if name.endswith("_s"):
        return duration(value)
    if "bytes" in name:
        return size(value)
    if name.endswith("share"):
        return f"{value:.0%}"
    if "reward" in name:
        return number(value)
    return str(value) if isinstance(value, int) else f"{value:.2f}"


def _title(name: str) -> str:
    """Return a field's name as a column heading."""
    if not name.endswith("per_s"):
        for unit in ("_ms", "_s", "_id"):
            name = name.removesuffix(unit)
    return name.replace("_", " ")
