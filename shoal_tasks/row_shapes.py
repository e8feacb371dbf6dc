"""Converts a record of a user's data to a task: question, answer, and reward columns. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from shoal_tasks.answers import MAX_ANSWER_CHARS
from shoal_tasks.choices import CHOICE_INSTRUCTION, ChoiceError, ChoiceKeys
from shoal_tasks.columns import find_column, has_column, iter_names, listed_names
from shoal_tasks.conversations import Conversation, is_conversation, parse_conversation
from shoal_tasks.errors import FamilyError
from shoal_tasks.json_values import Record, as_json, describe, number_text
from shoal_tasks.spec import JsonValue, canonical_json
from shoal_tasks.templates import Template
from shoal_tasks.unit_tests.forms import KEYS, code_row, question_column

BOXED: Final = "\\boxed"
"""The value of `answer_after` that takes the content of the last `\\boxed{…}`."""
MAX_ROW_QUESTION_CHARS: Final = 32 * 1024
CHOICES: Final = "choices"
"""The name by which a prompt places a row's lettered choices."""
_COMPARED: Final = ("exact", "math")
"""Verifiers that compare an answer with the row's own."""
_LIKELY: Final = re.compile("answer|truth|gold|target|label|solution|value", re.IGNORECASE)
"""Names of fields that may hold the answer."""
_LOOKED_AT_ROWS: Final = 256
"""Number of first rows whose columns a prompt may name."""


class RowError(FamilyError):
    """A row that cannot be used."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind
        """The fault without the row, for counting rows with the same fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowKeys:
    """The keys of a task file that define how rows are read."""

    question: str = "question"
    answer: str = "answer"
    answer_after: str = ""
    choices: ChoiceKeys | None = None
    """The keys for multiple choice, whose answers are letters."""
    prompt: str = ""
    prompt_shows_answer: bool = False
    verifier: str = "exact"
    """`exact` or `math`; with any other, a program scores and receives the columns."""
    system: str = ""
    held_out: int | None = None
    case_matters: bool = False
    code: Mapping[str, str] = field(default_factory=dict)
    """Columns of rows with unit tests, by key (`unit_tests.forms`)."""
    is_answer_named: bool = False
    """True if the task file has the key `answer`."""

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Self:
        """Read them from a task file's table."""
        names = (
            *("question", "answer", "answer_after", "prompt", "prompt_shows_answer"),
            *("system", "held_out", "case_matters"),
        )
        verifier = "reward" if "reward" in table else table.get("verifier", "exact")
        code = {name: table[name] for name in KEYS if name in table}
        stated = {name: table[name] for name in names if name in table}
        return cls(
            verifier=verifier,
            code=code,
            choices=ChoiceKeys.of_table(table),
            is_answer_named="answer" in table,
            **stated,
        )

    @property
    def is_compared(self) -> bool:
        """True if answers are compared with the row's, which therefore needs one."""
        return self.verifier in _COMPARED

    @property
    def has_tests(self) -> bool:
        """True if completions are programs for the row's unit tests."""
        return self.verifier == "tests"

    @property
    def is_maths(self) -> bool:
        """True if answers are compared as mathematics."""
        return self.verifier == "math"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapedRow:
    """One task, and its origin in the data."""

    question: str
    answer: str
    columns: Mapping[str, JsonValue] | None
    """The columns passed to a reward; None if answers are compared."""
    place: str
    """Its place in the data, in words: `line 3`."""
    system: str = ""
    """The row's own system turn; empty without one."""
    worked: str = ""
    """The text before the answer, removed by `answer_after`."""

    @property
    def line(self) -> str:
        """The row as a line of the rows file."""
        row: dict[str, JsonValue] = {"question": self.question, "answer": self.answer}
        if self.columns is not None:
            # Stored once: `parse_rows` restores the columns that equal question or answer.
            known = {"question": self.question, "answer": self.answer or None}
            row["columns"] = {
                key: one
                for key, one in self.columns.items()
                if known.get(key) is None or known[key] != one
            }
        return canonical_json(row)


class RowShaper:
    """Converts a data set's records to rows, and collects notes for the user."""

    def __init__(self, keys: RowKeys, first: Sequence[Record]) -> None:
        """`first` are the first records, whose columns a prompt may name.

        Raises `FamilyError`: the prompt names no column, or shows the answer.
        """
        self._keys = keys
        self._template: Template | None = None
        self._num_unused_turns = 0
        self._aliases: set[str] = set()
        if keys.prompt:
            looked_at = [_columns(record) for record in first[:_LOOKED_AT_ROWS]]
            names = list(dict.fromkeys(name for one in looked_at for name in iter_names(one)))
            self._template = Template.of(
                keys.prompt,
                lambda name: (
                    (name == CHOICES and keys.choices is not None)
                    or any(has_column(one, name) for one in looked_at)
                ),
                names,
            )
            self._check_names(looked_at[0])
            self._aliases = {one.column for one in self._template.placeholders}

    def _check_names(self, columns: Mapping[str, JsonValue]) -> None:
        """Raise `FamilyError` if the prompt names the answer's column, or one that contains it."""
        assert self._template is not None
        for place in self._template.placeholders:
            name = place.column
            is_inside = self._keys.answer.startswith(f"{name}.") and not (
                has_column(columns, name) and is_conversation(find_column(columns, name))
            )
            if (name == self._keys.answer or is_inside) and not self._keys.prompt_shows_answer:
                raise FamilyError(_shows_answer(name, "holds the answer" if is_inside else ""))

    def shape(self, record: Record, place: str) -> ShapedRow:
        """Convert one record to a row. Raises `RowError`."""
        columns = _columns(record)
        if not columns:
            raise RowError(f"{place} is empty", "empty")
        shown, letter = self._choices(columns, place)
        question, spoken = self._question({**columns, **shown}, place)
        text = _checked(question, "question", place, MAX_ROW_QUESTION_CHARS)
        raw = letter or self._answer(columns, spoken, place)
        answer = worked = ""
        if isinstance(raw, str):
            if self._keys.answer_after and not letter:
                worked, raw = _cut(raw, self._keys.answer_after, place)
            if self._keys.is_compared or len(raw) <= MAX_ANSWER_CHARS:
                answer = _checked(raw, "answer", place, MAX_ANSWER_CHARS).strip()
        self._drop_aliases(columns, answer, f"{worked}{self._keys.answer_after}{raw or ''}")
        return ShapedRow(
            question=text,
            answer=answer,
            columns=self._given(columns, text, answer, place),
            place=place,
            system="\n\n".join(dict.fromkeys(one.system for one in spoken if one.system)),
            worked=worked.strip(),
        )

    def _choices(
        self, columns: Mapping[str, JsonValue], place: str
    ) -> tuple[dict[str, JsonValue], str]:
        """Return a row's choices as a prompt shows them, and the letter of the right one.

        Both are empty if the family is not multiple choice. Raises `RowError`.
        """
        keys = self._keys.choices
        if keys is None:
            return {}, ""
        values = [_column(columns, name, None, place, "choices") for name in keys.columns]
        answer = _column(columns, keys.answer, None, place, "answer")
        name = self._keys.question
        question = str(find_column(columns, name)) if has_column(columns, name) else ""
        try:
            shown, letter = keys.read(values, answer, question)
        except ChoiceError as error:
            named = ", ".join(map(repr, keys.columns))
            raise RowError(f"{place}: {named} (choices): {error}", "choices") from None
        return {CHOICES: shown}, letter

    def _with_choices(self, question: JsonValue, columns: Mapping[str, JsonValue]) -> JsonValue:
        """Append the choices to a question, unless its prompt places them."""
        if self._keys.choices is None or not isinstance(question, str):
            return question
        places = () if self._template is None else self._template.placeholders
        if any(one.column == CHOICES for one in places):
            return question
        return f"{question.rstrip()}\n\n{columns[CHOICES]}\n{CHOICE_INSTRUCTION}"

    def _question(
        self, columns: Mapping[str, JsonValue], place: str
    ) -> tuple[JsonValue, list[Conversation]]:
        """Return the question, and the conversations that it was taken from."""
        shown = [self._keys.question]
        if self._keys.has_tests and not has_column(columns, shown[0]):
            shown = [question_column(columns, shown[0])]
        if self._template is not None:
            shown = [one.column for one in self._template.placeholders]
        values = [_column(columns, name, self._template, place) for name in shown]
        spoken = []
        for name, value in zip(shown, values, strict=True):
            try:
                found = parse_conversation(value)
            except FamilyError as error:
                raise RowError(f"{place}: {name} {error}", f"conversation {error}") from None
            if found is not None:
                spoken.append(found)
        if self._template is not None:
            try:
                return self._with_choices(self._template.fill(columns), columns), spoken
            except FamilyError as error:
                raise RowError(f"{place}: prompt: {error}", "prompt") from None
        question = spoken[0].question if spoken else values[0]
        return self._with_choices(question, columns), spoken

    def _answer(
        self, columns: Mapping[str, JsonValue], spoken: Sequence[Conversation], place: str
    ) -> str | None:
        """Return the answer as text; None if a reward needs none. Raises `RowError`."""
        keys = self._keys
        if keys.has_tests:
            return None
        stated = next((one.answer for one in spoken if one.answer), None)
        if not has_column(columns, keys.answer):
            if stated is not None and not keys.is_answer_named:
                return stated
            if keys.is_compared or keys.is_answer_named:
                raise _missing(columns, keys.answer, "answer", place)
            return None
        self._num_unused_turns += stated is not None
        value = find_column(columns, keys.answer)
        try:
            turns = parse_conversation(value)
        except FamilyError as error:
            raise RowError(f"{place}: {keys.answer} {error}", f"conversation {error}") from None
        if turns is not None and turns.answer:
            self._num_unused_turns -= turns.answer == stated
            value = turns.answer
        text = number_text(value)
        if isinstance(text, bool):
            text = "true" if text else "false"
        if not isinstance(text, str) and keys.is_compared:
            raise RowError(
                f"{place}: answer is {describe(text)}{_hint(text, keys.answer)}", "answer kind"
            )
        return text if isinstance(text, str) and (text.strip() or keys.is_compared) else None

    def _given(
        self, columns: Mapping[str, JsonValue], question: str, answer: str, place: str
    ) -> dict[str, JsonValue] | None:
        """Return the columns passed to a reward: the file's own columns under their own names.

        For a family with tests, these are the tests; None if answers are compared. `question` and
        `answer` are included, unless columns with these names hold something else. The answer is
        the one after `answer_after`, or the letter in multiple choice.
        """
        if self._keys.is_compared:
            return None
        if self._keys.has_tests:
            try:
                return code_row(columns, self._keys.code, place)
            except FamilyError as error:
                raise RowError(str(error), "tests") from None
        given: dict[str, JsonValue] = {"question": question, **columns}
        is_made = bool(self._keys.answer_after) and self._keys.answer == "answer"
        is_own = is_made or self._keys.choices is not None
        if answer and (is_own or "answer" not in given):
            given["answer"] = answer
        return given

    def _drop_aliases(self, columns: Mapping[str, JsonValue], answer: str, raw: str) -> None:
        """Keep only the prompt's columns that have equalled the answer in every row so far."""
        for name in list(self._aliases):
            value = find_column(columns, name) if has_column(columns, name) else None
            text = str(number_text(value)).strip()
            if not answer or text not in (answer, raw.strip()):
                self._aliases.discard(name)

    def check(self) -> None:
        """Raise `FamilyError`, after all rows, if the prompt showed the answer in each of them."""
        if self._aliases and not self._keys.prompt_shows_answer:
            name = min(self._aliases)
            raise FamilyError(_shows_answer(name, "is the answer in every row"))

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines for the user about how the data was read."""
        found = []
        if self._template is not None and self._template.untouched:
            listed = ", ".join(self._template.untouched)
            found.append(f"prompt: {listed} is not a column and is shown unchanged")
        if self._num_unused_turns:
            found.append(
                f"{self._num_unused_turns:,} conversations end with a turn of the assistant, which "
                f"is unused: the answer is the column {self._keys.answer}"
            )
        return tuple(found)


def _shows_answer(name: str, why: str) -> str:
    because = f", which {why}" if why else ""
    return (
        f"prompt shows the answer: {{{name}}} is its column{because}. Write {{{{{name}}}}} for the "
        "braces themselves, or set prompt_shows_answer = true if it is intended"
    )


def _columns(record: Record) -> dict[str, JsonValue]:
    return {str(key): as_json(value) for key, value in record.items()}


def _column(
    columns: Mapping[str, JsonValue],
    name: str,
    template: Template | None,
    place: str,
    key: str = "question",
) -> JsonValue:
    try:
        return find_column(columns, name)
    except KeyError:
        raise _missing(columns, name, "prompt" if template else key, place) from None


def _missing(columns: Mapping[str, JsonValue], name: str, key: str, place: str) -> RowError:
    what = (
        "and prompt = … shows it"
        if key == "prompt"
        else f'name the one that holds the {key}, {key} = "…"'
    )
    return RowError(f"{place} has no column {name!r}, but {listed_names(columns)}: {what}", name)


def _hint(value: JsonValue, name: str) -> str:
    """Suggest what to do about an answer that is not text."""
    if isinstance(value, list) and value:
        return f'; name an element, answer = "{name}.0", or score by a reward'
    if isinstance(value, dict) and value:
        likely = next((key for key in value if _LIKELY.search(key)), next(iter(value)))
        return f'; name a field, answer = "{name}.{likely}", or score by a reward'
    return "; remove such rows, or score by a reward"


def _checked(value: JsonValue, key: str, place: str, limit: int) -> str:
    """Check that a text can be sent. Raises `RowError` that names `place` and `key`."""
    if not isinstance(value, str):
        raise RowError(f"{place}: {key} is {describe(value)}, not a text", f"{key} kind")
    if not value.strip():
        raise RowError(f"{place}: {key} is {describe(value)}", f"{key} empty")
    if len(value) > limit:
        size = f"{len(value):,} characters; the limit is {limit:,}"
        raise RowError(f"{place}: {key} has {size}", f"{key} length")
    if "\0" in value:
        raise RowError(f"{place}: {key} contains a NUL character", f"{key} NUL")
    if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
        raise RowError(f"{place}: {key} contains a lone surrogate", f"{key} half")
    return value


def _cut(text: str, mark: str, place: str) -> tuple[str, str]:
    """Return the text before and after the last `mark`. Raises `RowError` without one."""
    if mark == BOXED:
        return _cut_box(text, place)
    before, found, answer = text.rpartition(mark)
    if not found:
        raise RowError(f"{place}: {mark!r} (answer_after) is not in its answer", "answer_after")
    return before, answer


def _cut_box(text: str, place: str) -> tuple[str, str]:
    """Return the text before the last `\\boxed{…}`, and its content."""
    before, found, rest = text.rpartition(BOXED)
    depth = 0
    for number, char in enumerate(rest):
        depth += (char == "{") - (char == "}")
        if depth <= 0:
            inside = rest[1:number].strip()
            if not number or not inside:
                break
            return before, inside
    what = (
        "its last \\boxed{…} is not closed, or empty" if found else "no \\boxed{…} is in its answer"
    )
    raise RowError(f"{place}: {what} (answer_after)", "answer_after")
