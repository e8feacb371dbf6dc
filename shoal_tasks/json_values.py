"""The values of a user's data as JSON has them. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from shoal_tasks.spec import JsonValue

Record = dict[str, Any]
"""One row of a data file: a value of any type by its column."""
Placed = tuple[str, Record]
"""A row behind the words that name its place in the file: `line 3`."""


def as_json(value: Any) -> JsonValue:
    """Return a column's value as JSON has it: what JSON cannot say is its text, NaN is null."""
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
    """Return bytes that are a text; None for a picture or a sound, which no reward looks at."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text
