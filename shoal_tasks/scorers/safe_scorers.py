"""Scorers that replace those of reasoning_gym that evaluate text, blow up, or reward too much.

Each agrees with the original on every honest answer, correct, wrong or malformed, which tests
check differentially. Pure: no reasoning_gym import, nothing is ever evaluated.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any, Final

from shoal_tasks.scorers.logic import conclusion_score

Entry = Mapping[str, Any]
"""A generated item of reasoning_gym: question, answer, metadata."""

Scorer = Callable[[str, Entry], float]

MAX_FORMULA_CHARS: Final = 512
"""The formula parser is quadratic and recursive; honest conclusions have under 40 characters."""


def score_binary_matrix(answer: str, entry: Entry) -> float:
    """Return 1.0 for the expected matrix, 0.1 for it as a Python list of lists, otherwise 0.0."""
    expected: str = entry["answer"]
    if answer == expected:
        return 1.0
    # The literal of a k × k matrix is at most ~4 times its plain form.
    if len(answer) > 8 * len(expected) + 64:
        return 0.0
    try:
        rows = ast.literal_eval(answer.strip())
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return 0.0
    # A row that is a string counts as its characters, as in the original.
    if not isinstance(rows, list | tuple) or not all(
        isinstance(r, list | tuple | str) for r in rows
    ):
        return 0.0
    return 0.1 if "\n".join(" ".join(map(str, row)) for row in rows) == expected else 0.0


def score_spell_backward(answer: str, entry: Entry) -> float:
    """Return 1.0 for the reversed word, otherwise the share of correct letters, always below 1.

    The original adds 1/n n times and compares with exactly 1.0: if the sum falls short in the last
    bit, a correct answer followed by anything counts as correct.
    """
    expected: str = entry["answer"].lower()
    answer = answer.lower()
    if answer == expected:
        return 1.0
    in_place = sum(a == b for a, b in zip(expected, answer, strict=False))
    return in_place / len(expected) if in_place < len(expected) else 0.8


_CONNECTIVES: Final = frozenset("∧∨¬→↔() \t\n")


def score_propositional_logic(answer: str, entry: Entry) -> float:
    """Return 1.0 for a conclusion equivalent to the premises, less for a weaker one, otherwise 0.0.

    The original gives 1.0 to anything that follows: "P ∨ Q" does in four tasks of five. It also
    tries all assignments of every name in the answer: thirty names are a billion rows.
    """
    metadata = entry["metadata"]
    variables = frozenset(metadata["variables"])
    if len(answer) > MAX_FORMULA_CHARS or not set(answer) <= variables | _CONNECTIVES:
        return 0.0
    try:
        return conclusion_score(answer, metadata)
    except ValueError:
        return 0.0


_SCORERS: Final[Mapping[str, Scorer]] = {
    "binary_matrix": score_binary_matrix,
    "propositional_logic": score_propositional_logic,
    "spell_backward": score_spell_backward,
}


def safe_score(generator: str, answer: str, entry: Entry, original: Scorer) -> float:
    """Score ``answer`` by the replacement for ``generator``, if any, otherwise by ``original``."""
    if generator in _SCORERS:
        return _SCORERS[generator](answer, entry)
    return original(answer, entry)
