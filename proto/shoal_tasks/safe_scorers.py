"""Scorers that replace reasoning_gym's where those evaluate, explode on, or overpay a text.

Each agrees with the original on every honest answer, right, wrong or malformed; the tests check
that differentially. Pure: no reasoning_gym import, nothing is ever evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

Entry = Mapping[str, Any]
"""A generated item of reasoning_gym: question, answer, metadata."""

SafeScorer = Callable[[str, Entry], float]
Original = Callable[[str, Entry], float]

MAX_FORMULA_CHARS: Final = 512
"""The formula parser is quadratic and recursive; honest conclusions have under 40 characters."""

_CELL: Final = r"(?:[+-]?(?:0+|[1-9][0-9]*)|'[0-9]+'|\"[0-9]+\")"
_CELLS: Final = rf"\s*{_CELL}\s*(?:,\s*{_CELL}\s*)*,?\s*"
_ROW: Final = re.compile(rf"\[({_CELLS})\]|\(({_CELLS})\)")


def score_binary_matrix(answer: str, entry: Entry) -> float:
    """1.0 for the expected matrix, 0.1 for it as a Python list of lists, else 0.0."""
    expected: str = entry["answer"]
    if answer == expected:
        return 1.0
    # The literal of a k × k matrix is at most ~4 times its plain form; longer is no such literal.
    if len(answer) > 8 * len(expected) + 64:
        return 0.0
    rows = parse_matrix(answer)
    if rows is None:
        return 0.0
    return 0.1 if "\n".join(" ".join(row) for row in rows) == expected else 0.0


def parse_matrix(text: str) -> list[list[str]] | None:
    """Read a Python literal of rows of integers (or quoted digits); None when it is not one."""
    body = text.strip(" \t\n\r\f")
    if not body:
        return None
    bracketed = body[0] + body[-1] in ("[]", "()") and body[1:].lstrip(" \t\n\r\f")[:1] in "[("
    if bracketed:
        body = body[1:-1].strip(" \t\n\r\f")
    rows: list[list[str]] = []
    position = 0
    while position < len(body):
        match = _ROW.match(body, position)
        if match is None:
            return None
        cells = match.group(1) or match.group(2)
        rows.append([_cell_text(cell) for cell in cells.split(",") if cell.strip()])
        position = _skip_comma(body, match.end())
        if position < 0:
            return None
    # One row without an outer pair is a list of numbers, not of rows.
    return rows if bracketed or len(rows) > 1 else None


def _skip_comma(body: str, position: int) -> int:
    rest = body[position:].lstrip(" \t\n\r\f")
    if not rest:
        return len(body)
    if not rest.startswith(","):
        return -1
    rest = rest[1:].lstrip(" \t\n\r\f")
    return len(body) - len(rest)


def _cell_text(cell: str) -> str:
    cell = cell.strip()
    if cell[0] in "'\"":
        return cell[1:-1]
    number = cell.lstrip("+-").lstrip("0") or "0"
    return f"-{number}" if cell.startswith("-") and number != "0" else number


def score_spell_backward(answer: str, entry: Entry) -> float:
    """1.0 for the reversed word, else the share of letters in place, always below full.

    The original adds 1/n n times and compares with 1.0 exactly: where the sum falls short of 1.0
    in the last bit, a right answer followed by anything scores as right.
    """
    expected: str = entry["answer"].lower()
    answer = answer.lower()
    if answer == expected:
        return 1.0
    in_place = sum(a == b for a, b in zip(expected, answer, strict=False))
    return in_place / len(expected) if in_place < len(expected) else 0.8


_CONNECTIVES: Final = frozenset("∧∨¬→↔() \t\n")


def score_propositional_logic(answer: str, entry: Entry, original: Original) -> float:
    """The original on formulas over the task's own variables, 0.0 on everything else.

    The original tries all assignments of every name in the answer, lower-case names included:
    thirty names are a billion rows. Each variable of the task is one capital letter.
    """
    variables = frozenset(entry["metadata"]["variables"])
    if len(answer) > MAX_FORMULA_CHARS or not set(answer) <= variables | _CONNECTIVES:
        return 0.0
    # Two names with no connective between them would be read as one new name.
    bare = re.sub(r"\s", "", answer)
    if re.search(r"[A-Z)][A-Z(¬]", bare):
        return 0.0
    return original(answer, entry)


def safe_score(generator: str, answer: str, entry: Entry, original: Original) -> float:
    """Score ``answer``, by the replacement where ``generator`` has one, else by ``original``."""
    if generator == "binary_matrix":
        return score_binary_matrix(answer, entry)
    if generator == "spell_backward":
        return score_spell_backward(answer, entry)
    if generator == "propositional_logic":
        return score_propositional_logic(answer, entry, original)
    return original(answer, entry)
