"""The floor of a family: the best reward of answers that need no skill. Pure.

Two kinds are tried: a *constant*, the same answer to every question, and an *echo*, a piece of the
question copied by a fixed rule, such as its last line.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from shoal_tasks.prompts import answer_text
from shoal_tasks.spec import FamilySpec

NUM_QUESTIONS: Final = 150
"""Questions for measuring a floor: a standard error of at most 0.04."""
_NUM_ANSWERS: Final = 10
_DEGENERATE: Final[Mapping[str, Sequence[str]]] = {
    "propositional_logic": ("P ∨ ¬P", "P ∧ ¬P", "P", "Q", "¬P", "P ∨ Q", "P ∧ Q", "P → Q", "P ↔ Q"),
}
"""Constants tried in addition to the most common right answers, by generator."""

_NUMBER: Final = re.compile(r"-?\d+(?:[./]\d+)?")
_PREMISE: Final = re.compile(r"^\.?\d+\. (.+)$", re.MULTILINE)
_OPERANDS: Final = re.compile(r"([\w.]+) ?([-+*/]) ?([\w.]+)")


def _last_line(question: str) -> str:
    lines = question.strip().splitlines()
    return lines[-1].strip() if lines else ""


def _input(question: str) -> str:
    """Return the text after the last colon: the rest of that line, or the lines below it."""
    behind = question.rstrip().rpartition(":")[2]
    first, _, below = behind.partition("\n")
    return first.strip() or below.partition("\n\n")[0].strip()


def _swapped_operands(question: str) -> str:
    found = _OPERANDS.search(_last_line(question))
    return f"{found[3]} {found[2]} {found[1]}" if found else ""


def _joined_premises(question: str) -> str:
    return " ∧ ".join(f"({premise})" for premise in _PREMISE.findall(question))


ECHOES: Final[Mapping[str, Callable[[str], str]]] = {
    "the question's last line": _last_line,
    "the question's input, unchanged": _input,
    "the question's first number": lambda question: "".join(_NUMBER.findall(question)[:1]),
    "the question's last number": lambda question: "".join(_NUMBER.findall(question)[-1:]),
    "the question's operands, swapped": _swapped_operands,
    "the first premise": lambda question: "".join(_PREMISE.findall(question)[:1]),
    "the premises, joined": _joined_premises,
}
"""Answers made from the question alone, by description; empty if a question has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """The best unskilled answer that was found."""

    answer: str
    """The constant itself, or a key of `ECHOES`."""
    is_echo: bool
    reward: float
    """Mean reward over questions."""


def candidates(spec: FamilySpec, answers: Iterable[str]) -> list[str]:
    """Return the constants to try: the most common right answers, and degenerate ones."""
    common = Counter(answers).most_common(_NUM_ANSWERS)
    found = [answer for answer, _ in common]
    return list(dict.fromkeys([*found, *_DEGENERATE.get(spec.generator, ())]))


def best_floor(
    spec: FamilySpec,
    questions: Sequence[str],
    right: Iterable[str],
    rewards_of: Callable[[Sequence[str]], Sequence[float]],
    *,
    form: Callable[[str], str] | None = None,
) -> Floor:
    """Return the constant or echo with the highest mean reward.

    `right` are right answers of the family, the source of constants. `rewards_of` scores one
    completion for each question. `form` converts an answer to a completion; by default, the
    family's answer format does.
    """
    write = form or (lambda answer: answer_text(answer, tagged=spec.is_tagged))
    found = []
    for name, is_echo, answers in _attempts(spec, questions, right):
        reward = statistics.fmean(rewards_of([write(one) for one in answers]))
        found.append(Floor(answer=name, is_echo=is_echo, reward=reward))
    return max(found, key=lambda floor: floor.reward)


def _attempts(
    spec: FamilySpec, questions: Sequence[str], right: Iterable[str]
) -> Iterator[tuple[str, bool, list[str]]]:
    """Yield each attempt's name, whether it is an echo, and its answer to every question."""
    for constant in candidates(spec, right):
        yield constant, False, [constant] * len(questions)
    for name, echo in ECHOES.items():
        answers = [echo(question) for question in questions]
        if any(answers):
            yield name, True, answers
