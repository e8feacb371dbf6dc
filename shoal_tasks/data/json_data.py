"""Data sets in JSON: lines, a list, an object with a list, or columns. Pure.

{"question": …}⏎{"question": …}            JSON lines; objects over several lines too
[{"question": …}, {"question": …}]
{"data": [{…}, {…}], "version": 1}         one list of rows
{"question": [… , …], "answer": [… , …]}   columns, also as pandas writes them
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from shoal_tasks.errors import FamilyError
from shoal_tasks.json_values import Placed, Record

_LISTS: Final = frozenset(
    {
        *("data", "rows", "examples", "items", "records", "instances", "questions", "problems"),
        *("dataset", "samples", "tasks", "train", "test", "validation", "results"),
    }
)
"""Keys under which a file stores its list of rows."""
_TURN_KEYS: Final = ({"role", "content"}, {"from", "value"})
"""Keys of a conversation turn: a list of such objects is a conversation, not a list of rows."""


def read_json(text: str, name: object, columns: Sequence[str] = ()) -> tuple[bool, list[Placed]]:
    """Return whether the text is JSON lines, and its rows, each with its place in words.

    `columns` names the values of rows that are lists. Raises `FamilyError` that names the file and
    the line.
    """
    # Not splitlines: a text may contain other characters that end a line.
    lines = text.split("\n") if "\n" in text else text.split("\r")
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not numbered:
        return True, []
    values = _values_of_lines(numbered, name) if _is_value(numbered[0][1]) else None
    if values is None or (len(values) == 1 and not _is_record(values[0][1], columns)):
        return False, _rows_of_document(text, name, columns)
    return True, [(f"line {at}", _record(one, f"line {at}", name, columns)) for at, one in values]


def _is_value(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _values_of_lines(lines: Sequence[tuple[int, str]], name: object) -> list[tuple[int, Any]]:
    values = []
    for number, line in lines:
        try:
            values.append((number, json.loads(line)))
        except (ValueError, RecursionError) as error:
            raise FamilyError(f"{name}, line {number}: {_not_json(line, error)}") from None
    return values


def _not_json(text: str, error: Exception) -> str:
    """Return why a text is not JSON, in one line."""
    if isinstance(error, RecursionError):
        return "not JSON: too deeply nested"
    bare = text.lstrip()
    if bare.startswith(("{'", "[{'", "[{ '", "{ '")):
        return "Python notation, not JSON: names and texts need double quotes (json.dumps)"
    at = f" in column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
    if isinstance(error, json.JSONDecodeError) and error.pos >= len(text.rstrip()):
        return "not JSON: it ends too early"
    return f"not JSON{at}"


def _rows_of_document(text: str, name: object, columns: Sequence[str]) -> list[Placed]:
    """Return the rows of a text that is one JSON value, or several objects in a row."""
    decoder, values, at = json.JSONDecoder(), [], 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            position = getattr(error, "pos", at)
            line = text.count("\n", 0, position) + 1
            raise FamilyError(f"{name}, line {line}: {_not_json(text, error)}") from None
        values.append(value)
    rows = _rows_in(values[0], name) if len(values) == 1 else values
    if columns and rows and rows[0] == list(columns):
        rows = rows[1:]  # a header row
    return [
        (f"row {number}", _record(one, f"row {number}", name, columns))
        for number, one in enumerate(rows, start=1)
    ]


def _is_record(value: Any, columns: Sequence[str]) -> bool:
    """Return whether a file's only value is a row, rather than a container of rows."""
    if isinstance(value, list):
        return bool(columns) and not any(isinstance(one, dict | list) for one in value)
    return isinstance(value, dict) and not _list_names(value) and _columns_of(value) is None


def _record(value: Any, place: str, name: object, columns: Sequence[str]) -> Record:
    if isinstance(value, list) and columns:
        if len(value) != len(columns):
            counts = f"{len(value)} values, but columns names {len(columns)}"
            raise FamilyError(f"{name}, {place} has {counts}")
        return dict(zip(columns, value, strict=True))
    if not isinstance(value, dict):
        hint = '; columns = ["question", …] names its values' if isinstance(value, list) else ""
        raise FamilyError(f"{name}, {place}: not a JSON object{hint}")
    return value


def _rows_in(value: Any, name: object) -> Sequence[Any]:
    """Return the rows in a whole JSON value."""
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        raise FamilyError(f"{name}: not a list of JSON objects")
    names = _list_names(value)
    if len(names) > 1:
        listed = ", ".join(map(repr, names))
        raise FamilyError(
            f"{name} contains several lists of rows, {listed}: save the one you want as a file"
        )
    if names:
        return value[names[0]]  # type: ignore[no-any-return]
    found = _columns_of(value)
    if found is not None:
        return list(found)
    if not value:
        raise FamilyError(f"{name}: not a list of JSON objects")
    return [value]


def _list_names(value: Mapping[str, Any]) -> list[str]:
    """Return the keys of an object's lists of rows; empty if the object is a row itself."""
    found = [key for key, one in value.items() if _is_list_of_rows(one)]
    others = [one for key, one in value.items() if key not in found]
    is_container = len(value) == 1 or any(key.casefold() in _LISTS for key in found)
    return found if is_container or (len(found) > 1 and not others) else []


def _is_list_of_rows(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(one, dict) for one in value)
        and not any(keys <= set(value[0]) for keys in _TURN_KEYS)
    )


def _columns_of(value: Mapping[str, Any]) -> Iterator[Record] | None:
    """Return the rows of an object of columns; None if it is not one."""
    inner = list(value.values())
    if len(inner) == 3 and set(value) == {"columns", "index", "data"}:  # pandas, orient="split"
        return (dict(zip(value["columns"], row, strict=True)) for row in value["data"])
    if len(inner) > 1 and all(isinstance(one, list) for one in inner):
        if len({len(one) for one in inner}) == 1 and len(inner[0]) > 1:
            return (dict(zip(value, row, strict=True)) for row in zip(*inner, strict=True))
        return None
    if not (inner and all(isinstance(one, dict) and one for one in inner)):
        return None
    if all(key.isdigit() for key in value):  # pandas, orient="index"
        return iter(inner)
    if len({tuple(one) for one in inner}) == 1 and all(key.isdigit() for key in inner[0]):
        return ({key: one[at] for key, one in value.items()} for at in inner[0])
    return None
