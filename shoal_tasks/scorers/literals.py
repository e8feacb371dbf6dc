"""Reads Python list literals without evaluating them: what some scorers pass to `eval`.

A literal here is made of lists, tuples, strings and whole numbers. Whatever else Python could
evaluate is not read, so a completion is data and never a program. Pure.
"""

from __future__ import annotations

import re
from typing import Final

Literal = int | str | list["Literal"]
"""Lists and tuples are both lists: the scorers only iterate."""

MAX_DEPTH: Final = 8
"""Deepest nesting read; the answers asked for have two levels."""

MAX_DIGITS: Final = 200
"""Longest number read, in characters."""

_TOKEN: Final = re.compile(
    r"""[ \t\f]*(?:
        (?P<number>0(?:_?0)*(?![0-9_])|[1-9](?:_?[0-9])*)
      | (?P<string>'[^'\\\n]*'|"[^"\\\n]*")
      | (?P<mark>[][(),+-])
      | (?P<newline>\r?\n)
      | (?P<comment>\#[^\n]*)
      | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_OPEN: Final = {"[": "]", "(": ")"}


class NotALiteralError(ValueError):
    """The text is no literal of the kinds read here."""


def parse_literal(text: str) -> Literal | None:
    """The value of a Python literal, or None where the text is not one of those read here.

    As in Python, ``1, 2`` is a tuple, ``(1)`` is a number, neighbouring strings are one string,
    and a line ends only inside brackets. Time is linear in the text.
    """
    try:
        reader = _Reader(text.strip())
        value = reader.sequence(closing="", depth=0)
    except NotALiteralError:
        return None
    return value


class _Reader:
    """The tokens of one text, read once from front to back."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._brackets = 0
        self.kind = ""
        self.token = ""
        self.advance()

    def advance(self) -> None:
        while True:
            match = _TOKEN.match(self._text, self._position)
            if match is None or match.lastgroup is None:
                raise NotALiteralError
            self._position = match.end()
            self.kind, self.token = match.lastgroup, match[match.lastgroup]
            if self.kind == "newline" and not self._brackets:
                raise NotALiteralError
            if self.kind not in ("newline", "comment"):
                return

    def sequence(self, *, closing: str, depth: int) -> Literal:
        """Items up to ``closing``: a list, or the item itself where brackets only group."""
        items: list[Literal] = []
        comma = False
        while not self._at_end(closing):
            if items and not comma:
                raise NotALiteralError
            items.append(self._item(depth))
            comma = self.kind == "mark" and self.token == ","
            if comma:
                self.advance()
        if closing == "]" or comma or len(items) != 1:
            if not items and not closing:
                raise NotALiteralError
            return items
        return items[0]

    def _at_end(self, closing: str) -> bool:
        if self.kind == "end":
            if closing:
                raise NotALiteralError
            return True
        return bool(closing) and self.kind == "mark" and self.token == closing

    def _item(self, depth: int) -> Literal:
        if self.kind == "string":
            return self._string()
        sign = self._sign()
        if self.kind == "number":
            if len(self.token) > MAX_DIGITS:
                raise NotALiteralError
            value = sign * int(self.token)
            self.advance()
            return value
        if sign == 1 and self.kind == "mark" and self.token in _OPEN and depth < MAX_DEPTH:
            return self._bracketed(depth)
        raise NotALiteralError

    def _string(self) -> str:
        parts = []
        while self.kind == "string":
            parts.append(self.token[1:-1])
            self.advance()
        return "".join(parts)

    def _sign(self) -> int:
        sign, signed = 1, False
        while self.kind == "mark" and self.token in "+-":
            sign, signed = (-sign if self.token == "-" else sign), True
            self.advance()
        if signed and self.kind != "number":
            raise NotALiteralError
        return sign

    def _bracketed(self, depth: int) -> Literal:
        closing = _OPEN[self.token]
        self._brackets += 1
        self.advance()
        value = self.sequence(closing=closing, depth=depth + 1)
        self._brackets -= 1
        self.advance()
        return value


def rows_of(value: Literal | None) -> list[list[str]] | None:
    """The value as rows of cells, each cell as `str` gives it; None where it has no rows.

    A string counts as its characters, as it does to whoever iterates.
    """
    if not isinstance(value, list):
        return None
    rows: list[list[str]] = []
    for row in value:
        if isinstance(row, int):
            return None
        rows.append([str(cell) for cell in row])
    return rows


def cells_of(value: Literal | None) -> list[str] | None:
    """The value's items, each as `str` gives it; None where it has none to iterate over."""
    if value is None or isinstance(value, int):
        return None
    return [str(item) for item in value]
