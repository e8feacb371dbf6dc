"""Compares a script's output with the expected output. Pure.

Trailing white space, empty lines at the end and the number of spaces between fields are ignored. A
field that the test writes with a decimal point may differ by one millionth.
"""

from __future__ import annotations

import math
import re
from typing import Final

_CLOSE: Final = 1e-6
_DECIMAL: Final = re.compile(r"[-+]?\d*\.\d+(?:[eE][-+]?\d+)?|[-+]?\d+\.")
_NUMBER: Final = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_MAX_NUMBER_CHARS: Final = 64
_SHOWN_CHARS: Final = 60


def difference(printed: bytes, expected: str) -> str:
    """Describe the first line that differs; empty if none does."""
    found, wanted = _lines(printed.decode(errors="replace")), _lines(expected)
    for number, (one, other) in enumerate(zip(found, wanted, strict=False), start=1):
        if not _are_equal(one, other):
            return f"line {number} is {_shown(one)}, not {_shown(other)}"
    if len(found) != len(wanted):
        return f"it prints {len(found)} lines, not {len(wanted)}"
    return ""


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _are_equal(found: str, wanted: str) -> bool:
    if found == wanted:
        return True
    fields, others = found.split(), wanted.split()
    return len(fields) == len(others) and all(map(_is_field, fields, others))


def _is_field(found: str, wanted: str) -> bool:
    if found == wanted:
        return True
    if max(len(found), len(wanted)) > _MAX_NUMBER_CHARS:
        return False
    if not (_DECIMAL.fullmatch(wanted) and _NUMBER.fullmatch(found)):
        return False
    return math.isclose(float(found), float(wanted), rel_tol=_CLOSE, abs_tol=_CLOSE)


def _shown(line: str) -> str:
    return repr(line if len(line) <= _SHOWN_CHARS else f"{line[:_SHOWN_CHARS]}…")
