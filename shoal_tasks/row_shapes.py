"""One record of a user's data as a task: question, answer, and a reward's columns. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from shoal_tasks.answers import MAX_ANSWER_CHARS
from shoal_tasks.errors import FamilyError
from shoal_tasks.json_values import Record, as_json
from shoal_tasks.spec import JsonValue, canonical_json
from shoal_tasks.unit_tests.forms import KEYS, code_row, question_column

_PLACE: Final = re.compile(r"\{(\w+)\}")
MAX_ROW_QUESTION_CHARS: Final = 32 * 1024
_COMPARED: Final = ("exact", "math")
"""Verifiers that compare an answer with the row's own."""


class RowError(FamilyError):
    """A row that cannot be used."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind
        """The fault without the row: rows with the same one are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowKeys:
    """The keys of a task file that say how rows are read."""

    question: str = "question"
    answer: str = "answer"
    answer_after: str = ""
    prompt: str = ""
    verifier: str = "exact"
    """`exact` or `math`; anything else means that a program scores, and is given the columns."""
    held_out: int | None = None
    case_matters: bool = False
    code: Mapping[str, str] = field(default_factory=dict)
    """Columns of rows with unit tests, by their keys (`unit_tests.forms`)."""

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Self:
        """Take them from a task file's table."""
        names = ("question", "answer", "answer_after", "prompt", "held_out", "case_matters")
        verifier = "reward" if "reward" in table else table.get("verifier", "exact")
        code = {name: table[name] for name in KEYS if name in table}
        stated = {name: table[name] for name in names if name in table}
        return cls(verifier=verifier, code=code, **stated)

    @property
    def is_compared(self) -> bool:
        """True if an answer is compared with the row's: the row then needs one."""
        return self.verifier in _COMPARED

    @property
    def is_maths(self) -> bool:
        """True if answers are compared as mathematics."""
        return self.verifier == "math"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapedRow:
    """One task, and where it comes from."""

    question: str
    answer: str
    line: str
    """The row as it stands in the rows file."""
    place: str
    """The words that name its place in the data: `line 3`."""
    worked: str = ""
    """The text before the answer, where `answer_after` cut it off."""


def shape_row(record: Record, keys: RowKeys, place: str) -> ShapedRow:
    """Return one record as a row. Raises `RowError`."""
    columns = {key: as_json(value) for key, value in record.items()}
    has_tests = keys.verifier == "tests"
    named = question_column(columns, keys.question) if has_tests else keys.question
    question = _column(columns, named, "question", place)
    if keys.prompt:
        question = _filled(keys.prompt, columns, place)
    asked = _checked(question, "question", place, MAX_ROW_QUESTION_CHARS)
    answer, worked = "", ""
    if keys.is_compared or (keys.answer in columns and not has_tests):
        text = number_text(_column(columns, keys.answer, "answer", place))
        if keys.answer_after:
            worked, text = _cut(str(text), keys.answer_after, place)
        answer = _checked(text, "answer", place, MAX_ANSWER_CHARS).strip()
    row: dict[str, JsonValue] = {"question": asked, "answer": answer}
    if has_tests:
        row["columns"] = _code(columns, keys, place)
    elif not keys.is_compared:
        row["columns"] = _given(columns, keys, asked, answer)
    return ShapedRow(
        question=asked,
        answer=answer,
        line=canonical_json(row),
        place=place,
        worked=worked.strip(),
    )


def _given(
    columns: Mapping[str, JsonValue], keys: RowKeys, question: str, answer: str
) -> dict[str, JsonValue]:
    """Return what a reward is given: the file's own columns under their own names.

    `question` and `answer` are there too, unless columns of these names hold something else; the
    answer is the one that `answer_after` cut.
    """
    given = {"question": question, **columns}
    if answer and ((keys.answer_after and keys.answer == "answer") or "answer" not in given):
        given["answer"] = answer
    return given


def _code(columns: Mapping[str, JsonValue], keys: RowKeys, place: str) -> dict[str, JsonValue]:
    try:
        return code_row(columns, keys.code, place)
    except FamilyError as error:
        raise RowError(str(error), "tests") from None


def number_text(value: Any) -> Any:
    """Return a number as the text that people write for it (5, not 5.0); other values unchanged."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def checked_text(value: Any, key: str, where: str, limit: int) -> str:
    """Return a text that can travel. Raises `FamilyError` naming `where` and `key`."""
    if not isinstance(value, str) or not value.strip() or "\0" in value or len(value) > limit:
        raise FamilyError(f"{where}: {key!r} must be a text of 1 to {limit} characters")
    if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
        raise FamilyError(f"{where}: {key!r} holds half a character")
    return value


def _checked(value: Any, key: str, place: str, limit: int) -> str:
    try:
        return checked_text(value, key, place, limit)
    except FamilyError as error:
        raise RowError(str(error), key) from None


def _column(columns: Mapping[str, JsonValue], name: str, key: str, place: str) -> JsonValue:
    if not columns:
        raise RowError(f"{place} is empty", "empty")
    if name not in columns:
        raise RowError(
            f"{place} has no column {name!r}, but {', '.join(map(repr, columns))}: "
            f'name the one that holds the {key}, {key} = "…"',
            f"no {name}",
        )
    value = columns[name]
    # A prompt in the chat form of `datasets`: one user turn, whose content is the question.
    if key == "question" and isinstance(value, list):
        users = [one for one in value if isinstance(one, dict) and one.get("role") == "user"]
        if len(users) == 1 and len(value) == 1:
            return users[0].get("content")
    return value


def _filled(template: str, columns: Mapping[str, JsonValue], place: str) -> str:
    """Return the template with each `{NAME}` replaced by that column's text."""

    def text_of(found: re.Match[str]) -> str:
        value = number_text(_column(columns, found[1], "text", place))
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    return _PLACE.sub(text_of, template)


def _cut(text: str, mark: str, place: str) -> tuple[str, str]:
    """Return what stands before and behind the last `mark`. Raises `RowError` without one."""
    before, found, answer = text.rpartition(mark)
    if not found:
        raise RowError(f"{place}: {mark!r} (answer_after) is not in its answer", "answer_after")
    return before, answer
