"""Suggests a task file's keys from the rows of a data set. Pure.

    rows ─▶ columns, nested ones by dotted names ─▶ question, choices, answer, context ─▶ keys

Unused columns are named, with an example, so that nothing is dropped silently.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from shoal_tasks.choices import ChoiceError, ChoiceKeys
from shoal_tasks.column_names import (
    ANSWERS,
    CHOICE_ANSWERS,
    CHOICES,
    CONTEXTS,
    DETAILS,
    EACH_CHOICE,
    PREFERENCES,
    QUESTIONS,
    UNITS,
)
from shoal_tasks.errors import FamilyError
from shoal_tasks.json_values import Record, as_json, number_text
from shoal_tasks.spec import JsonValue
from shoal_tasks.unit_tests.forms import PROGRAM, USED_COLUMNS, question_column, read_tests

_MOST: Final = 0.9
"""Fraction of rows that must have a property before the file counts as having it."""
_MARKS: Final = ("####", "\\boxed", "The answer is:", "The answer is", "Answer:")
"""Marks that separate the worked answer from the final one, most telling first."""
_MATHS: Final = re.compile(r"[-+−]?[$]?[\d.,/]+%?|.*\\[a-zA-Z]+.*", re.DOTALL)
"""A number, or LaTeX."""
_LONG_CHARS: Final = 120
"""If half of the answers are longer, they are prose, which two people would hardly write alike."""
_FEW: Final = 8
"""Maximum number of different answers that the prompt names, if there are many rows."""
_DEPTH: Final = 3
_ENTRY_POINTS: Final = ("entry_point", "fn_name", "func_name", "function_name")
_TESTING: Final = re.compile(r"\bassert|\bcheck\(|\bunittest\b")
"""A word that every program testing another contains."""
_LAST_TURN: Final = " the assistant's last turn"
"""A column of our own, with a name that no data set uses."""
_ASSISTANTS: Final = ("assistant", "gpt", "model", "bot")
_LONE_LETTERS: Final = 3
"""Minimum number of columns such as A, B and C that count as choices."""
_SHOWN_CHARS: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedColumns:
    """Columns that the user has named; empty for those to be found."""

    question: str = ""
    answer: str = ""
    choices: tuple[str, ...] = ()
    first_choice: int | None = None
    prompt: str = ""
    reward: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """Keys of a task file that fit a data set."""

    keys: Mapping[str, Any]
    """The keys and their values, in the file's order, without name and rows."""
    unused: Mapping[str, str]
    """Columns that no key uses, with an example of their content."""
    notes: tuple[str, ...] = ()
    """Decisions that the author should know, one sentence each."""
    is_maths: bool = False
    """True if answers are numbers or formulas, whether or not they are compared as such."""


class NoSuggestionError(FamilyError):
    """No question, or no answer, was found."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key
        """The key that the user should set, `question` or `answer`; empty for a wrong name."""


@dataclass(slots=True)
class _Found:
    """The keys found so far."""

    records: Sequence[Mapping[str, JsonValue]]
    columns: dict[str, list[JsonValue]]
    given: NamedColumns
    has_maths: bool
    keys: dict[str, Any] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    is_maths: bool = False

    def named(self, names: Sequence[str], fits: Callable[[list[JsonValue]], bool]) -> str:
        """Return the first of these columns that is unused and whose values fit; empty if none."""
        by_name = {name.casefold(): name for name in reversed(list(self.columns))}
        for name in names:
            column = by_name.get(name)
            if column and column not in self.used and fits(self.columns[column]):
                return column
        return ""


def suggest(records: Sequence[Record], given: NamedColumns, *, has_maths: bool) -> Suggestion:
    """Return the keys that fit these rows; `has_maths` is True if math-verify is installed.

    Raises `NoSuggestionError`, one line with the columns' contents.
    """
    rows = [{key: as_json(value) for key, value in record.items()} for record in records]
    found = _Found(rows, collect_columns(rows), given, has_maths)
    found.used |= _places(found, given.prompt)
    if given.reward:
        found.keys["reward"] = given.reward
    if not _choose_tests(found):
        _choose_question(found)
        _choose_choices(found)
        if "choices" not in found.keys:
            _choose_answer(found)
        _choose_prompt(found)
        _choose_scoring(found)
    whole = {key for row in rows for key in row}
    unused = {
        name: example(values)
        for name, values in found.columns.items()
        if name != _LAST_TURN and not any(_covers(name, used, whole) for used in found.used)
    }
    # The parts of an unused object need no lines of their own.
    parts = {name for name in unused if any(name.startswith(f"{other}.") for other in unused)}
    unused = {name: text for name, text in unused.items() if name in whole or name not in parts}
    order = ("question", "answer", "choices", "first_choice", "answer_after", "prompt")
    keys = {key: found.keys[key] for key in order if key in found.keys}
    for key in ("question", "answer"):
        if keys.get(key) == key:
            del keys[key]
    rest = {key: value for key, value in found.keys.items() if key not in order}
    return Suggestion(
        keys={**keys, **rest},
        unused=unused,
        notes=tuple(found.notes),
        is_maths=found.is_maths,
    )


def collect_columns(rows: Sequence[Mapping[str, JsonValue]]) -> dict[str, list[JsonValue]]:
    """Return the values of each column that every row has, also nested ones by dotted names."""
    found: dict[str, list[JsonValue]] = {}
    for row in rows:
        for name, value in _flat(row, ""):
            found.setdefault(name, []).append(value)
    return {name: values for name, values in found.items() if len(values) == len(rows)}


def _flat(row: Mapping[str, JsonValue], before: str) -> Iterator[tuple[str, JsonValue]]:
    for name, value in row.items():
        yield f"{before}{name}", value
        if isinstance(value, dict) and before.count(".") < _DEPTH:
            yield from _flat(value, f"{before}{name}.")


def example(values: Sequence[JsonValue]) -> str:
    """Describe a column: its first non-empty value, truncated, with its type."""
    value = next((one for one in values if one not in (None, "", [], {})), values[0])
    kinds = {bool: "true or false", int: "number", float: "number", str: "text", list: "list",
             dict: "object", type(None): "nothing"}  # fmt: skip
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    bare = " ".join(text.split())
    shown = bare if len(bare) <= _SHOWN_CHARS else f"{bare[:_SHOWN_CHARS]}…"
    return f"{kinds[type(value)]}: {shown}"


def _choose_tests(found: _Found) -> bool:
    """Choose unit tests if every row has some and a question; return whether it did."""
    if found.given.reward or found.given.answer or found.given.choices:
        return False
    for row in found.records:
        try:
            tests = read_tests(row, {}, "")
        except FamilyError:
            return False
        # Any word parses as Python, but only some programs are tests.
        if tests["kind"] == PROGRAM and not _TESTING.search(str(tests["program"])):
            return False
    question = found.given.question or question_column(found.records[0], "question")
    if question not in found.columns and not found.given.prompt:
        return False
    found.keys |= {"question": question} if question in found.columns else {}
    prompt = found.given.prompt or _code_prompt(found, question)
    found.keys |= {"prompt": prompt} if prompt else {}
    found.keys["verifier"] = "tests"
    found.used |= {question, *USED_COLUMNS} | _places(found, prompt)
    return True


def _code_prompt(found: _Found, question: str) -> str:
    """Return a prompt with the name that the tests call; empty if the question has it."""
    columns = found.columns
    if any(map(_is_filled, columns.get("starter_code", ()))):
        return f"{{{question}}}\n\n{{starter_code}}"
    tests = columns.get("test_list", ())
    if tests and all(isinstance(one, list) and one for one in tests):
        return f"{{{question}}}\n\nYour code should pass tests such as:\n{{test_list.0}}"
    for name in _ENTRY_POINTS:
        named = list(zip(columns.get(name, ()), columns[question], strict=False))
        if named and not all(str(entry) in str(text) for entry, text in named):
            return f"{{{question}}}\n\nName the function {{{name}}}."
    return ""


def _is_filled(value: JsonValue) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _choose_question(found: _Found) -> None:
    given = found.given
    column = _existing(found, given.question, "--question") or found.named(QUESTIONS, _is_question)
    if column:
        found.keys["question"] = column
        found.used.add(column)
    elif not given.prompt:
        raise NoSuggestionError(
            f"no column has a known name for the question: {_listed(found)}; give --question "
            'COLUMN, or --prompt "… {COLUMN} …"',
            "question",
        )


def _is_question(values: list[JsonValue]) -> bool:
    texts = sum(isinstance(one, str) and bool(one.strip()) for one in values)
    chats = sum(_is_chat(one) for one in values)
    return max(texts, chats) >= _MOST * len(values)


def _is_chat(value: JsonValue) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(one, dict) and ("content" in one or "value" in one) for one in value)
    )


def _choose_choices(found: _Found) -> None:
    """Find the choices, and the column with the right one."""
    for columns in _choice_columns(found):
        named = [_existing(found, found.given.answer, "--answer")] if found.given.answer else [
            found.named([name], lambda _values: True) for name in CHOICE_ANSWERS
        ]  # fmt: skip
        for answer in filter(None, named):
            keys = _fitting(found, columns, answer)
            if keys is None:
                continue
            one = len(columns) == 1
            found.keys |= {"answer": answer, "choices": columns[0] if one else list(columns)}
            found.keys |= {} if keys.first is None else {"first_choice": keys.first}
            found.used |= {answer, *columns}
            return
    if found.given.choices:
        named_ones = ", ".join(found.given.choices)
        raise NoSuggestionError(
            f"no column has the right one of the choices in {named_ones}: {_listed(found)}; "
            "give --answer COLUMN",
            "answer",
        )


def _choice_columns(found: _Found) -> Iterator[tuple[str, ...]]:
    if found.given.choices:
        yield tuple(_existing(found, one, "--choices") for one in found.given.choices)
        return
    for name in CHOICES:
        if column := found.named([name], lambda _values: True):
            yield (column,)
    groups: dict[str, list[str]] = {}
    for column in found.columns:
        is_free = column not in found.used and column != found.given.answer
        if is_free and (named := EACH_CHOICE.fullmatch(column)):
            groups.setdefault(named["kind"].casefold().rstrip("_ "), []).append(column)
    for kind, columns in groups.items():
        right = "" if kind not in ("incorrect answer", "distractor") else found.named(
            ("correct answer", "correct_answer"), lambda _values: True
        )  # fmt: skip
        if len(columns) + bool(right) >= (2 if kind else _LONE_LETTERS):
            yield tuple(sorted(columns) + ([right] if right else []))


def _right_choices(found: _Found, keys: ChoiceKeys) -> list[int] | None:
    """Return the number of each row's right choice; None if these keys do not fit every row."""
    numbers = []
    question = found.keys.get("question", "")
    for row in range(len(found.records)):
        try:
            values = [found.columns[name][row] for name in keys.columns]
            text = str(found.columns[question][row]) if question else ""
            _, letter = keys.read(values, found.columns[keys.answer][row], text)
        except ChoiceError:
            return None
        numbers.append(ord(letter) - ord("A"))
    return numbers


def _fitting(found: _Found, columns: tuple[str, ...], answer: str) -> ChoiceKeys | None:
    """Return the keys with which every row's answer is one of its choices; None if there are none.

    Raises `NoSuggestionError` if numbers may count from 0 or from 1.
    """
    stated = found.given.first_choice
    fitting = [
        (keys, numbers)
        for first in ((None, 0, 1) if stated is None else (stated,))
        if (numbers := _right_choices(
            found, keys := ChoiceKeys(columns=columns, first=first, answer=answer)
        )) is not None
    ]  # fmt: skip
    if not fitting:
        return None
    keys, numbers = fitting[0]
    by_text = all(isinstance(one, str) for one in found.columns[answer]) and keys.first is None
    if not by_text and fitting[-1][1] != numbers:
        raise NoSuggestionError(
            f"the numbers in {answer!r} may count the choices from 0 or from 1: give "
            "--first-choice 0 or --first-choice 1"
        )
    return keys


def _choose_answer(found: _Found) -> None:
    given = found.given
    column = _existing(found, given.answer, "--answer") or found.named(ANSWERS, _is_answer)
    if column:
        found.keys["answer"] = _first_of_list(found, column)
        found.used.add(column)
        return
    if "question" in found.keys and (turns := _last_turns(found)):
        found.columns[_LAST_TURN] = turns
        return
    if given.reward:
        return
    if all(found.named([name], lambda _values: True) for name in PREFERENCES):
        raise NoSuggestionError(
            "'chosen' and 'rejected' are preferences, not right answers; give --reward FILE "
            "with a function that scores, or --answer COLUMN with a column to compare",
            "answer",
        )
    raise NoSuggestionError(
        f"no column has a known name for the right answer: {_listed(found)}; give --answer "
        "COLUMN, or --reward FILE with a function that scores",
        "answer",
    )


def _first_of_list(found: _Found, column: str) -> str:
    """Return the column of the answer; for a list of right ones, of the first."""
    values = found.columns[column]
    if not all(isinstance(one, list) and one for one in values):
        return column
    first = f"{column}.0"
    found.columns[first] = [one[0] for one in values if isinstance(one, list)]
    if any(isinstance(one, list) and len(set(map(str, one))) > 1 for one in values):
        found.notes.append(
            f"{column!r} has several right answers, and only the first is accepted; --reward "
            "FILE with a function can accept all"
        )
    found.used.add(column)
    return first


def _last_turns(found: _Found) -> list[JsonValue]:
    """Return the assistant's last turn of each conversation; empty if one has none."""
    turns: list[JsonValue] = []
    for value in found.columns[found.keys["question"]]:
        last = value[-1] if _is_chat(value) and isinstance(value, list) else None
        if not isinstance(last, dict) or last.get("role", last.get("from")) not in _ASSISTANTS:
            return []
        turns.append(last.get("content", last.get("value")))
    return turns


def _is_answer(values: list[JsonValue]) -> bool:
    def is_one(value: JsonValue) -> bool:
        if isinstance(value, list):
            return bool(value) and all(isinstance(one, str | int | float) for one in value)
        return isinstance(value, bool | int | float) or (
            isinstance(value, str) and bool(value.strip())
        )

    return sum(map(is_one, values)) >= _MOST * len(values)


def _choose_prompt(found: _Found) -> None:
    """Add the columns that belong to the question to the prompt."""
    if found.given.prompt:
        found.keys["prompt"] = found.given.prompt
        return
    question = found.keys["question"]
    prompt = f"{{{question}}}"
    if context := found.named(CONTEXTS, _is_question):
        prompt = f"{{{context}}}\n\n{prompt}"
        found.used.add(context)
    if question.casefold() == "instruction" and (detail := found.named(DETAILS, _is_text)):
        prompt = f"{prompt}\n\n{{{detail}}}"
        found.used.add(detail)
    if unit := found.named(UNITS, _is_question):
        prompt = f"{prompt}\n\nGive the answer in {{{unit}}}."
        found.used.add(unit)
    if instruction := _few_answers(found):
        prompt = f"{prompt}\n\n{instruction}"
    if prompt != f"{{{question}}}":
        found.keys["prompt"] = prompt


def _is_text(values: list[JsonValue]) -> bool:
    return all(isinstance(one, str) for one in values) and any(map(str, values))


def _few_answers(found: _Found) -> str:
    """Return a sentence with all answers if there are few, because a model could not guess them."""
    if found.keys.keys() & {"choices", "reward"} or "answer" not in found.keys:
        return ""
    values = [number_text(one) for one in found.columns[found.keys["answer"]]]
    texts = sorted({_as_answer(one) for one in values})
    if not 2 <= len(texts) <= _FEW or len(values) < 3 * len(texts):
        return ""
    if all(_MATHS.fullmatch(one) for one in texts):
        is_class = found.keys["answer"].casefold().startswith("label")
        if is_class:
            found.notes.append(
                f"answers are the numbers {', '.join(texts)}, but nothing shows the model what "
                "they mean; explain them with --prompt"
            )
        return f"Answer with one of: {', '.join(texts)}." if is_class else ""
    if max(map(len, texts)) > _SHOWN_CHARS:
        return ""
    return f"Answer with one of: {', '.join(texts)}."


def _as_answer(value: JsonValue) -> str:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value.strip() if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _choose_scoring(found: _Found) -> None:
    if found.given.reward:
        return
    if "choices" in found.keys:
        found.keys |= {"verifier": "exact", "answer_format": "tagged"}
        return
    column = found.columns[found.keys.get("answer", _LAST_TURN)]
    answers = [_as_answer(number_text(value)) for value in column]
    for mark in _MARKS:
        if _share(answers, lambda text, mark=mark: mark in text) >= _MOST:  # type: ignore[misc]
            found.keys["answer_after"] = mark
            answers = [text.rpartition(mark)[2] for text in answers if mark in text]
            break
    maths = _share(answers, lambda text: _MATHS.fullmatch(text.strip()) is not None) >= _MOST
    found.is_maths = maths or found.keys.get("answer_after") == "\\boxed"
    found.keys["verifier"] = "math" if found.is_maths and found.has_maths else "exact"
    found.keys["answer_format"] = "tagged"
    if not found.is_maths and statistics.median(map(len, answers)) > _LONG_CHARS:
        found.notes.append(
            "answers are long texts, and only the identical text is right; --reward FILE with a "
            "function can score them"
        )


def _share(texts: Sequence[str], holds: Callable[[str], bool]) -> float:
    return sum(map(holds, texts)) / len(texts)


def _existing(found: _Found, named: str, flag: str) -> str:
    """Return a column that the user has named. Raises `NoSuggestionError` if it does not exist."""
    if named and named not in found.columns:
        raise NoSuggestionError(f"{flag} {named!r} is not a column of every row: {_listed(found)}")
    return named


def _places(found: _Found, prompt: str) -> set[str]:
    return {name for name in found.columns if f"{{{name}}}" in prompt}


def _covers(name: str, used: str, whole: Collection[str]) -> bool:
    """Return whether a column is used, directly or as a part or parent of a used one."""
    is_part = name not in whole and name.startswith(f"{used}.")
    is_parent = used not in whole and used.startswith(f"{name}.")
    return name == used or is_part or is_parent


def _listed(found: _Found) -> str:
    """Describe the content of every column in one line."""
    tops = [name for name in found.columns if "." not in name] or list(found.columns)
    return "it has " + ", ".join(f"{name!r} ({example(found.columns[name])})" for name in tops)
