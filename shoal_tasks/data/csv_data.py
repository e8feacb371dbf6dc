"""CSV as spreadsheets and scripts write it. Pure.

The separator is the comma, semicolon, tab or bar that splits the lines into the most cells, the
same number in each. The first line names the columns, unless the user does. A first line that looks
like a row is refused, because its question would be lost.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from shoal_tasks.errors import FamilyError
from shoal_tasks.json_values import Placed

_SEPARATORS: Final = (",", ";", "\t", "|")
_NONE: Final = "\x1f"
"""A separator that occurs in no text."""
_MAX_CELL_CHARS: Final = 1 << 26
"""Maximum length of a cell, equal to the maximum file size: csv's own limit is too small."""
_TRIED_ROWS: Final = 200
_NAME_CHARS: Final = 60
"""Maximum length of a column name."""
_NUMBER: Final = re.compile(r"[-+]?[\d.,]*\d%?")
_EXCEL: Final = re.compile(r"sep=(.)\r?\n")
"""A first line in which a spreadsheet names the separator."""
COMMON_NAMES: Final = frozenset(
    {
        *("question", "answer", "prompt", "problem", "solution", "instruction", "input", "output"),
        *("text", "label", "target", "completion", "response", "query", "id", "choices"),
        *("messages", "title", "subject"),
    }
)
"""Common column names: a first line that contains one is a header."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A parsed table."""

    separator: str
    names: tuple[str, ...]
    rows: tuple[Placed, ...]


def read_csv(
    text: str, name: object, *, columns: Sequence[str] = (), wanted: Collection[str] = ()
) -> Table:
    """Parse a table of texts.

    `columns` names the cells of a file without a header line. `wanted` are the columns that the
    task file uses: a first line that contains one is a header.

    Raises `FamilyError`, one line that names the file and the line number.
    """
    csv.field_size_limit(_MAX_CELL_CHARS)
    stated = _EXCEL.match(text)
    body = text[stated.end() :] if stated else text
    first_line = 2 if stated else 1
    separator = stated[1] if stated else _separator(body, len(columns))
    is_spaced = _is_spaced(body, separator)
    lines = _lines(body, name, separator, is_spaced, first_line)
    if not lines:
        return Table(separator=separator, names=tuple(columns), rows=())
    names = [cell.strip() for cell in lines[0][1]]
    if not columns:
        _check_names(names, name, wanted)
        lines = lines[1:]
    elif names == list(columns):
        lines = lines[1:]
    names = list(columns) or _named(names, [cells for _, cells in lines])
    rows = []
    for number, cells in lines:
        if len(cells) < len(names) or any(cell.strip() for cell in cells[len(names) :]):
            raise FamilyError(
                f"{name}, line {number}: {len(cells)} cells, but there are {len(names)} columns"
                f"{_many(cells, separator)}"
            )
        rows.append((f"line {number}", dict(zip(names, cells, strict=False))))
    return Table(separator=separator, names=tuple(names), rows=tuple(rows))


def _separator(text: str, num_columns: int) -> str:
    """Return the separator that splits the first lines best.

    `num_columns` is the number of cells that the user stated; 0 for that of the first line.
    """

    def merit(separator: str) -> tuple[float, int, int]:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        counts: list[int] = []
        num_spaced = 0
        try:
            for row in reader:
                if any(cell.strip() for cell in row):
                    counts.append(len(row))
                    num_spaced += sum(cell.startswith(" ") for cell in row[1:])
                if len(counts) == _TRIED_ROWS:
                    break
        except csv.Error:
            return (0.0, 0, 0)
        wanted = num_columns or (counts[0] if counts else 0)
        if wanted < 2 and not (counts and len(set(counts[1:])) == 1 and counts[1] > 1):
            return (0.0, 0, 0)
        # In prose, a space follows a comma.
        return (counts.count(wanted) / len(counts), wanted, -num_spaced)

    merits = {separator: merit(separator) for separator in _SEPARATORS}
    best = max(_SEPARATORS, key=merits.__getitem__)
    if num_columns != 1 and any(merits[best]):
        return best
    return _NONE  # one column: its commas separate nothing


def _is_spaced(text: str, separator: str) -> bool:
    """Return whether a space follows each separator of the first line."""
    first = text.split("\n", 1)[0]
    return (
        separator != "\t"
        and separator in first
        and (first.count(separator) == first.count(f"{separator} "))
    )


def _lines(
    text: str, name: object, separator: str, is_spaced: bool, first_line: int
) -> list[tuple[int, list[str]]]:
    """Return the cells of each non-empty line, with the number of its first line."""
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=separator, strict=True, skipinitialspace=is_spaced
    )
    found, number = [], first_line
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                found.append((number, cells))
            number = reader.line_num + first_line
    except csv.Error as error:
        raise FamilyError(f"{name}, line {number}: {_why(str(error))}") from None
    return found


def _why(error: str) -> str:
    if "expected after" in error:
        return "a quote inside a quoted cell must be doubled"
    if "unexpected end" in error:
        return "a quoted cell begins here and does not end"
    return f"it cannot be read as CSV ({error})"


def _many(cells: Sequence[str], separator: str) -> str:
    is_text = separator == "," and any(" " in cell for cell in cells)
    return "; a cell that contains the separator needs quotes" if is_text else ""


def _check_names(names: Sequence[str], name: object, wanted: Collection[str]) -> None:
    """Raise `FamilyError` if the first line has no usable names."""
    known = {one.partition(".")[0] for one in wanted} | set(wanted)
    if not (set(names) & known or {one.casefold() for one in names} & COMMON_NAMES):
        odd = [one for one in names if _is_a_value(one)]
        if odd or len(set(names)) < len(names):
            shown = ", ".join(repr(one[:_NAME_CHARS]) for one in names[:6])
            raise FamilyError(
                f"{name}: its first line ({shown}) looks like a row. Are the names missing? "
                f'columns = ["question", …, "answer"] in the task file names all {len(names)}'
            )
    named = [one for one in names if one]
    twice = next((one for one in named if named.count(one) > 1), None)
    if twice is not None:
        raise FamilyError(f"{name}: two columns have the name {twice!r}")


def _is_a_value(text: str) -> bool:
    is_number = _NUMBER.fullmatch(text) is not None
    return is_number or len(text) > _NAME_CHARS or text.endswith(("?", ".", "!")) or "\n" in text


def _named(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the column names, filling in missing ones, without empty columns at the end."""
    count = len(names)
    while (
        count
        and not names[count - 1]
        and not any(cell.strip() for row in rows for cell in row[count - 1 : count])
    ):
        count -= 1
    return [one or f"column {number}" for number, one in enumerate(names[:count], start=1)]
