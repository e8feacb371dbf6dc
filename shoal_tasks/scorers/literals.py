"""Reads Python list literals without evaluating them: what some scorers pass to `eval`.

A literal here is made of lists, tuples, strings and whole numbers; what else `ast.literal_eval`
reads is none. Pure; used inside the sandboxed worker alone.
"""

from __future__ import annotations

import ast
from typing import Any, Final

MAX_CHARS: Final = 64 * 1024
"""Longest text read: the size of the largest completion that the wire takes."""

MAX_DEPTH: Final = 8
"""Deepest nesting read; the answers asked for have two levels."""

MAX_NUMBER: Final = 10**200
"""Bound of a number, so that none is long to write out."""


def parse_literal(text: str) -> Any:
    """The value of a Python literal, or None where the text is not one of those read here."""
    if len(text) > MAX_CHARS:
        return None
    try:
        value = ast.literal_eval(text.strip())
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return None
    return value if _is_plain(value, MAX_DEPTH) else None


def _is_plain(value: object, depth: int) -> bool:
    if isinstance(value, list | tuple):
        return depth > 0 and all(_is_plain(item, depth - 1) for item in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) < MAX_NUMBER
    return isinstance(value, str)


def rows_of(value: Any) -> list[list[str]] | None:
    """The value as rows of cells, each cell as `str` gives it; None where it has no rows.

    A string counts as its characters, as it does to whoever iterates.
    """
    if not isinstance(value, list | tuple) or any(isinstance(row, int) for row in value):
        return None
    return [[str(cell) for cell in row] for row in value]


def cells_of(value: Any) -> list[str] | None:
    """The value's items, each as `str` gives it; None where it has none to iterate over."""
    return None if value is None or isinstance(value, int) else [str(item) for item in value]
