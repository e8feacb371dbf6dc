"""Multiple choice: parses the choices of a row in the forms of published data sets. Pure.

    choices = "choices"                 ["4", "5"]; or {"text": ["4", "5"], "label": ["A", "B"]};
                                        or {"A": "4", "B": "5"}; or the text "A) 4 B) 5"
    choices = ["optionA", "optionB"]    one column for each choice

A question is shown with lettered choices below it. Its answer is a letter, whether the data has a
letter, a label, a number or the choice's text.
"""

from __future__ import annotations

import hashlib
import json
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from shoal_tasks.columns import unpack
from shoal_tasks.errors import FamilyError
from shoal_tasks.spec import JsonValue

LETTERS: Final = string.ascii_uppercase
CHOICE_INSTRUCTION: Final = "Answer with the letter of the right choice."
"""Shown below the choices."""

_DIGITS: Final = 4
_TEXTS: Final = ("text", "texts", "choices", "choice", "content", "option", "value")
_LABELS: Final = ("label", "labels", "key", "id", "letter")
_NUMBERED: Final = re.compile(r"(?:^|[\n,;])\s*\(?([A-Za-z])\s*[).:]\s*")
_PREFIX: Final = re.compile(r"\s*\(?([A-Za-z])\s*[).:]\s*")
_LETTER: Final = re.compile(r"\(?([A-Za-z])\)?[.):]?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceKeys:
    """A task file's keys for multiple choice."""

    columns: tuple[str, ...]
    """The column of all choices, or one column for each."""
    first: int | None = None
    """The number of the first choice, if answers are numbers. With None, digits in a text are a
    choice's text, and other numbers count from 0."""
    answer: str = "answer"
    """The column of the right answer."""

    @classmethod
    def of_table(cls, table: Mapping[str, Any]) -> Self | None:
        """Read them from a task file's table; None without choices. Raises `FamilyError`."""
        if "choices" not in table:
            if "first_choice" in table:
                raise FamilyError('first_choice needs multiple choice: choices = "COLUMN"')
            return None
        named = table["choices"]
        columns = [named] if isinstance(named, str) else named
        if not columns or not all(isinstance(one, str) for one in columns):
            raise FamilyError('choices must be a column or a list of columns: choices = ["A", "B"]')
        return cls(
            columns=tuple(columns),
            first=table.get("first_choice"),
            answer=table.get("answer", "answer"),
        )

    def read(
        self, values: Sequence[JsonValue], answer: JsonValue, question: str
    ) -> tuple[str, str]:
        """Return the choices as shown, and the letter of the right one.

        If the right choice has the same position in all rows, the question decides the order.
        Raises `ChoiceError`.
        """
        choices = Choices.of(values)
        number = choices.number_of(answer, self.first)
        if self.answer in self.columns or (isinstance(answer, list) and len(answer) > 1):
            right, choices = choices.texts[number], choices.shuffled(question)
            number = choices.texts.index(right)
        return choices.shown, LETTERS[number]


class ChoiceError(ValueError):
    """Choices or an answer that cannot be parsed; the message describes them."""


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices of one row, in the order shown."""

    texts: tuple[str, ...]
    labels: tuple[str, ...] = ()
    """The data's own labels, such as "1" to "4"; empty if it has none."""

    @classmethod
    def of(cls, values: Sequence[JsonValue]) -> Self:
        """Parse one column's value, or one value for each choice. Raises `ChoiceError`."""
        texts, labels = _read(values[0]) if len(values) == 1 else (list(values), [])
        if not 2 <= len(texts) <= len(LETTERS):
            raise ChoiceError(f"holds {len(texts)} choices, not 2 to {len(LETTERS)}")
        found = tuple(" ".join(_text(one).split()) for one in texts)
        if not all(found):
            raise ChoiceError("has an empty choice")
        return cls(_without_letters(found), tuple(labels))

    def shuffled(self, question: str) -> Self:
        """Return them in an order derived from the question: the right one is not always first."""

        def place(text: str) -> bytes:
            return hashlib.sha256(f"{question}\0{text}".encode(errors="replace")).digest()

        return type(self)(tuple(sorted(self.texts, key=place)))

    @property
    def shown(self) -> str:
        """The choices with letters, one per line."""
        pairs = zip(LETTERS, self.texts, strict=False)
        return "\n".join(f"{letter}. {text}" for letter, text in pairs)

    def number_of(self, answer: JsonValue, first: int | None = None) -> int:
        """Return the position of the right choice, from 0; `first` as in `ChoiceKeys`.

        Raises `ChoiceError`: the answer matches no choice, or two.
        """
        if isinstance(answer, list):
            return self._in_list(answer, first)
        if isinstance(answer, float) and answer.is_integer():
            answer = int(answer)
        if isinstance(answer, int) and not isinstance(answer, bool):
            return self._of_number(answer, first or 0)
        if not isinstance(answer, str):
            raise ChoiceError(f"{json.dumps(answer)} is not a choice")
        return self._of_text(answer.strip(), first)

    def letter_of(self, answer: JsonValue, first: int | None = None) -> str:
        """Return the letter of the right choice. Raises `ChoiceError` as `number_of`."""
        return LETTERS[self.number_of(answer, first)]

    def _in_list(self, answer: list[JsonValue], first: int | None) -> int:
        if len(answer) == 1:
            return self.number_of(answer[0], first)
        # One number for each choice, exactly one of them 1: the form of TruthfulQA.
        if len(answer) == len(self.texts) and answer.count(1) == 1 and {0, 1} >= set(answer):
            return answer.index(1)
        raise ChoiceError(f"{json.dumps(answer)} names no single choice")

    def _of_number(self, number: int, first: int) -> int:
        if not 0 <= number - first < len(self.texts):
            raise ChoiceError(f"there is no choice number {number} among {len(self.texts)}")
        return number - first

    def _of_text(self, answer: str, first: int | None) -> int:
        if answer in self.labels:
            return self.labels.index(answer)
        if first is not None and answer.isascii() and answer.isdigit() and len(answer) < _DIGITS:
            return self._of_number(int(answer), first)
        found = {
            number
            for number, text in enumerate(self.texts)
            if " ".join(text.casefold().split()) == " ".join(answer.casefold().split())
        }
        letter = _LETTER.fullmatch(answer)
        if letter and (place := LETTERS.index(letter[1].upper())) < len(self.texts):
            found.add(place)
        if len({self.texts[number] for number in found}) == 1:
            return min(found)
        letters = " or ".join(LETTERS[number] for number in sorted(found))
        why = f"may be choice {letters}" if found else "is none of the choices"
        raise ChoiceError(f"the answer {answer[:60]!r} {why}")


def _read(value: JsonValue) -> tuple[list[JsonValue], list[str]]:
    """Return the texts and labels of one value."""
    value = unpack(value)
    if isinstance(value, str):
        return _of_text(value), []
    if isinstance(value, list):
        return _of_list(value)
    if isinstance(value, dict):
        texts = next((value[key] for key in _TEXTS if isinstance(value.get(key), list)), None)
        labels = next((value[key] for key in _LABELS if isinstance(value.get(key), list)), None)
        if isinstance(texts, list):
            named = list(map(_text, labels)) if isinstance(labels, list) else []
            return texts, named if len(set(named)) == len(texts) else []
        stated = {key: one for key, one in value.items() if one is not None}
        return list(stated.values()), list(stated)
    raise ChoiceError(f"is {json.dumps(value)[:60]}, not a list of choices")


def _of_list(value: list[JsonValue]) -> tuple[list[JsonValue], list[str]]:
    if not all(isinstance(one, dict) for one in value):
        return value, []
    texts: list[JsonValue] = []
    labels: list[str] = []
    for one in value:
        assert isinstance(one, dict)
        texts.append(next((one[key] for key in _TEXTS if key in one), None))
        labels += [_text(one[key]) for key in _LABELS if key in one][:1]
    return texts, labels if len(labels) == len(texts) else []


def _of_text(value: str) -> list[JsonValue]:
    """Return the choices in a text, which are lettered or one per line."""
    marks = list(_NUMBERED.finditer(value))
    named = "".join(one[1] for one in marks).upper()
    if len(marks) > 1 and LETTERS.startswith(named):
        ends = [one.start() for one in marks[1:]] + [len(value)]
        return [value[one.end() : end].strip() for one, end in zip(marks, ends, strict=True)]
    return [line for line in value.splitlines() if line.strip()]


def _without_letters(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return texts without leading letters, if all have them."""
    marks = [_PREFIX.match(text) for text in texts]
    if "".join(one[1].upper() for one in marks if one) != LETTERS[: len(texts)]:
        return texts
    bare = tuple(text[one.end() :] for one, text in zip(marks, texts, strict=True) if one)
    return bare if all(bare) else texts


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
