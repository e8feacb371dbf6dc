"""The `prompt` of a task file: text with columns in single braces. Pure.

    {problem}            the column's text; dotted names read nested columns
    {{ and }}            braces; \\frac{a}{b} and \\boxed{} are unchanged: a is not a column

Braces are paired first, so that LaTeX's closing braces are not taken for an escape: `{{` and `}}`
are an escape only as a pair.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from shoal_tasks.columns import find_column
from shoal_tasks.conversations import parse_conversation
from shoal_tasks.errors import FamilyError
from shoal_tasks.json_values import number_text
from shoal_tasks.spec import JsonValue

_GROUP: Final = re.compile(r"\{([^{}\n]*)\}")
_WORD: Final = re.compile(r"[^\W\d][\w .:-]*")
"""A group's content that may be meant as a column's name."""
_IN_LATEX: Final = re.compile(r"(\\[a-zA-Z]+\*?(\[[^\]]*\])?\s*(\{[^{}]*\})*|[\^_])$")
"""The text before a group that is a LaTeX argument."""
_LIKENESS: Final = 0.75
"""Minimum similarity to a column's name at which a group counts as a typing error; `qestion` has
0.93, and `name` and `number` have 0.6."""


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A column in a prompt."""

    column: str


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed prompt."""

    parts: tuple[str | Placeholder, ...]
    untouched: tuple[str, ...] = ()
    """Groups that look like names but are not columns: they are not replaced."""

    @classmethod
    def of(cls, text: str, is_column: Callable[[str], bool], names: Sequence[str]) -> Self:
        """Parse a prompt; `names` are the data's columns, to recognise typing errors.

        Raises `FamilyError`: it names no column, or a word in braces resembles one.
        """
        parts: list[str | Placeholder] = []
        untouched: list[str] = []
        for before, piece, is_group in _pieces(text):
            found = _placeholder(piece, is_column) if is_group else None
            is_word = is_group and _WORD.fullmatch(piece[1:-1]) and not _IN_LATEX.search(before)
            if found is None and is_word:
                _check_slip(piece, names)
                untouched.append(piece)
            parts.append(piece if found is None else found)
        template = cls(tuple(parts), tuple(dict.fromkeys(untouched)))
        if not template.placeholders:
            shown = next((name for name in names if f"{{{name}}}" in text), None)
            hint = f": {{{{ and }}}} are literal braces, {{{shown}}} is the column" if shown else ""
            listed = ", ".join(f"{{{name}}}" for name in names[:6])
            raise FamilyError(
                f"prompt shows no column, so every question would be the same{hint}; there are "
                f"{listed}"
            )
        return template

    @property
    def placeholders(self) -> tuple[Placeholder, ...]:
        """The columns that it shows."""
        return tuple(one for one in self.parts if isinstance(one, Placeholder))

    def fill(self, columns: Mapping[str, JsonValue]) -> str:
        """Return the prompt of one row.

        Raises KeyError with the missing column, or `FamilyError` for a value that cannot be shown.
        """
        return "".join(
            one if isinstance(one, str) else _shown(find_column(columns, one.column))
            for one in self.parts
        ).strip()


def _placeholder(piece: str, is_column: Callable[[str], bool]) -> Placeholder | None:
    name = piece[1:-1].strip()
    return Placeholder(name) if is_column(name) else None


def _pieces(text: str) -> Iterator[tuple[str, str, bool]]:
    """Yield the text before each piece, the piece, and whether it is a group in single braces."""
    partner = _partners(text)
    at, plain = 0, ""
    while at < len(text):
        char = text[at]
        if char in "{}" and text[at : at + 2] == char * 2 and _is_escape(at, partner):
            plain, at = plain + char, at + 2
        elif char == "{" and (group := _GROUP.match(text, at)):
            if plain:
                yield "", plain, False
            # Preceding braces belong to LaTeX unless they are part of an escape.
            yield text[:at], group[0], True
            plain, at = "", group.end()
        else:
            plain, at = plain + char, at + 1
    if plain:
        yield "", plain, False


def _partners(text: str) -> dict[int, int]:
    """Return the index of each brace's partner; unpaired braces are absent."""
    found: dict[int, int] = {}
    opened: list[int] = []
    for at, char in enumerate(text):
        if char == "{":
            opened.append(at)
        elif char == "}" and opened:
            found[at] = opened.pop()
            found[found[at]] = at
    return found


def _is_escape(at: int, partner: Mapping[int, int]) -> bool:
    """Return whether two equal braces are an escape: their partners are adjacent too, or absent."""
    one, other = partner.get(at), partner.get(at + 1)
    if one is None or other is None:
        return one is other
    return abs(one - other) == 1


def _check_slip(piece: str, names: Sequence[str]) -> None:
    """Raise `FamilyError` if a word in braces resembles a column's name."""
    word = piece[1:-1].partition(":")[0].strip()
    by_case = {name.casefold(): name for name in names}
    near = difflib.get_close_matches(word.casefold(), by_case, 1, _LIKENESS)
    if near:
        right = by_case[near[0]]
        raise FamilyError(
            f"prompt: {piece} is not a column, but {{{right}}} is: for literal braces, "
            f"write {{{piece}}}"
        )


def _shown(value: JsonValue) -> str:
    """Return a value as a prompt shows it."""
    conversation = parse_conversation(value)
    if conversation is not None:
        return conversation.question or conversation.answer
    if value is None:
        return ""
    text = number_text(value)
    return text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
