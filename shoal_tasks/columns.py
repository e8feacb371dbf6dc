"""Access to a row's columns by name, nested ones by dotted names. Pure.

    reward_model.ground_truth     a field of an object
    messages.0.content            an element of a list, counted from 0; -1 is the last
    a.b                           a column with exactly this name, which takes precedence

Objects and lists that are JSON inside a text, as in a CSV file, are parsed too.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from typing import Final

from shoal_tasks.json_values import as_json
from shoal_tasks.spec import JsonValue

_MAX_NESTED: Final = 8
_SHOWN_NAMES: Final = 12


def find_column(columns: Mapping[str, JsonValue], name: str) -> JsonValue:
    """Return the value of a column. Raises KeyError if the row has no such column."""
    if name in columns:
        return columns[name]
    parts = name.split(".")
    for count in range(len(parts) - 1, 0, -1):
        head = ".".join(parts[:count])
        if head in columns:
            return _inside(columns[head], parts[count:])
    raise KeyError(name)


def has_column(columns: Mapping[str, JsonValue], name: str) -> bool:
    """Return whether a row has this column, nested or not."""
    try:
        find_column(columns, name)
    except KeyError:
        return False
    return True


def _inside(value: JsonValue, parts: list[str]) -> JsonValue:
    name = ".".join(parts)
    found = unpack(value)
    if isinstance(found, dict):
        return find_column(found, name)
    if isinstance(found, list):
        try:
            element = found[int(parts[0])]
        except (ValueError, IndexError):
            raise KeyError(name) from None
        return _inside(element, parts[1:]) if parts[1:] else element
    raise KeyError(name)


def unpack(value: JsonValue) -> JsonValue:
    """Parse an object or list in a text, as JSON or Python notation; otherwise return the value.

    Text tables can hold objects only in this way, and scripts write both notations.
    """
    if not isinstance(value, str):
        return value
    bare = value.strip()
    if bare[:1] + bare[-1:] not in ("[]", "{}"):
        return value
    try:
        found = json.loads(bare)
    except (ValueError, RecursionError):
        try:
            found = as_json(ast.literal_eval(bare))
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            return value
    return found if isinstance(found, dict | list) else value


def iter_names(columns: Mapping[str, JsonValue], depth: int = _MAX_NESTED) -> Iterator[str]:
    """Yield the names of a row's values; for an object, the dotted names of its fields."""
    for name, value in columns.items():
        if isinstance(value, dict) and value and depth:
            for inner in iter_names(value, depth - 1):
                yield f"{name}.{inner}"
        else:
            yield name


def listed_names(columns: Mapping[str, JsonValue]) -> str:
    """Return the names of a row's values for a message."""
    names = list(map(repr, iter_names(columns)))
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(names[:_SHOWN_NAMES]) + more
