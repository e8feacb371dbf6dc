"""Conversion of a user's data to JSON values. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from shoal_tasks.spec import JsonValue

Record = dict[str, Any]
"""One row of a data file: values of any type, by column."""
_SHOWN_KEYS: Final = 6
Placed = tuple[str, Record]
"""A row with its place in the file in words, such as `line 3`."""


def as_json(value: Any) -> JsonValue:
    """Convert a value to JSON: other types become text, and NaN becomes null."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {str(key): as_json(one) for key, one in value.items()}
        case list() | tuple():
            return [as_json(one) for one in value]
        case bytes():
            return _text_of(value)
        case _:
            return str(value)


def _text_of(value: bytes) -> str | None:
    """Decode bytes as text; None for a picture or a sound, which no reward can use."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def number_text(value: JsonValue) -> JsonValue:
    """Return a number as people write it (5, not 5.0); other values are unchanged."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def describe(value: JsonValue) -> str:
    """Describe a value in words: `a list of 2 texts`."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {number_text(value)}"
        case str():
            if not value.strip():
                return "an empty text" if not value else "a text of blanks"
            return f"a text of {len(value):,} characters"
        case list():
            return f"a list of {_counted(value)}" if value else "an empty list"
        case _:
            names = ", ".join(repr(key) for key in list(value)[:_SHOWN_KEYS])
            return f"an object with {names}" if value else "an empty object"


def _counted(values: list[JsonValue]) -> str:
    kinds = {
        "text"
        if isinstance(one, str)
        else "list"
        if isinstance(one, list)
        else "object"
        if isinstance(one, dict)
        else "number"
        if isinstance(one, int | float) and not isinstance(one, bool)
        else "value"
        for one in values
    }
    kind = kinds.pop() if len(kinds) == 1 else "value"
    return f"{len(values)} {kind}{'' if len(values) == 1 else 's'}"
