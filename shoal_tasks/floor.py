"""What a family pays for one and the same answer to everything: its floor. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from shoal_tasks.spec import AnswerFormat, FamilySpec

NUM_QUESTIONS: Final = 150
"""Questions that a floor is measured on: a standard error of at most 0.04."""
_NUM_ANSWERS: Final = 10
_DEGENERATE: Final[Mapping[str, Sequence[str]]] = {
    "propositional_logic": ("P ∨ ¬P", "P ∧ ¬P", "P", "Q", "¬P", "P ∨ Q", "P ∧ Q", "P → Q", "P ↔ Q"),
}
"""Tried beside the commonest right answers; by generator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """The best constant answer that was found."""

    answer: str
    reward: float
    """Its mean over questions."""


def candidates(spec: FamilySpec, answers: Iterable[str]) -> list[str]:
    """Return the constants worth trying: the commonest of right answers, and degenerate ones."""
    common = Counter(answers).most_common(_NUM_ANSWERS)
    found = [answer for answer, _ in common]
    return list(dict.fromkeys([*found, *_DEGENERATE.get(spec.generator, ())]))


def as_completion(spec: FamilySpec, answer: str) -> str:
    """Return a completion of the family that gives `answer`."""
    tagged = spec.answer_format is AnswerFormat.TAGGED
    return f"<answer>{answer}</answer>" if tagged else answer


def floor_of(constants: Iterable[str], rewards_of: Callable[[str], Sequence[float]]) -> Floor:
    """Return the constant with the best mean reward; `rewards_of` asks all questions."""
    found = (Floor(answer=one, reward=statistics.fmean(rewards_of(one))) for one in constants)
    return max(found, key=lambda floor: floor.reward)
