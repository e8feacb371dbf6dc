"""Scorers that replace reasoning_gym's where those evaluate, explode on, or overpay a text.

Each agrees with the original on every honest answer, right, wrong or malformed; the tests check
that differentially. Pure: no reasoning_gym import, nothing is ever evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from shoal_tasks.scorers.calculus import is_antiderivative
from shoal_tasks.scorers.expressions import ExpressionError, parse_expression
from shoal_tasks.scorers.literals import cells_of, parse_literal, rows_of
from shoal_tasks.scorers.logic import conclusion_score
from shoal_tasks.scorers.number_algebra import number_value
from shoal_tasks.scorers.polynomial_algebra import polynomial_value

Entry = Mapping[str, Any]
"""A generated item of reasoning_gym: question, answer, metadata."""

SafeScorer = Callable[[str, Entry], float]
Original = Callable[[str, Entry], float]

MAX_FORMULA_CHARS: Final = 512
"""The formula parser is quadratic and recursive; honest conclusions have under 40 characters."""


def score_binary_matrix(answer: str, entry: Entry) -> float:
    """1.0 for the expected matrix, 0.1 for it as a Python list of lists, else 0.0."""
    expected: str = entry["answer"]
    if answer == expected:
        return 1.0
    # The literal of a k × k matrix is at most ~4 times its plain form; longer is no such literal.
    if len(answer) > 8 * len(expected) + 64:
        return 0.0
    rows = rows_of(parse_literal(answer))
    if rows is None:
        return 0.0
    return 0.1 if "\n".join(" ".join(row) for row in rows) == expected else 0.0


def score_n_queens(answer: str, entry: Entry) -> float:
    """1.0 for a board that solves the puzzle, 0.5 for one as a Python list of rows, else 0.0."""
    boards: Sequence[str] = entry["metadata"]["valid_answers"]
    if answer in boards:
        return 1.0
    rows = rows_of(parse_literal(answer))
    if rows is None:
        return 0.0
    return 0.5 if "\n".join(" ".join(row) for row in rows) in boards else 0.0


def score_spiral_matrix(answer: str, entry: Entry) -> float:
    """1.0 for the expected numbers, 0.1 for them as a Python list, else 0.0."""
    expected: str = entry["answer"].strip()
    answer = answer.strip()
    if answer == expected:
        return 1.0
    cells = cells_of(parse_literal(answer))
    return 0.1 if cells is not None and " ".join(cells) == expected else 0.0


def score_string_insertion(answer: str, entry: Entry) -> float:
    """1.0 for the expected string, 0.1 for it as a Python list of strings, else 0.0."""
    expected: str = entry["answer"]
    if answer == expected:
        return 1.0
    value = parse_literal(answer)
    if isinstance(value, list | tuple) and not all(isinstance(item, str) for item in value):
        return 0.0
    cells = cells_of(value)
    return 0.1 if cells is not None and "".join(cells) == expected else 0.0


_WRITTEN_NUMBER: Final = re.compile(r"\b\d+\b")
"""A number as the two number puzzles count them in an answer: as written, not as read."""


def score_countdown(answer: str, entry: Entry) -> float:
    """1.0 for an expression over the given numbers that makes the target, else at most 0.05.

    The original's tolerance is kept: numpy.isclose, 1e-6 and 1e-5 of the target.
    """
    try:
        value = float(number_value(parse_expression(answer)))
    except (ExpressionError, ArithmeticError):
        return 0.01
    numbers = [int(number) for number in _WRITTEN_NUMBER.findall(answer)]
    target = entry["metadata"]["target"]
    if sorted(numbers) != sorted(entry["metadata"]["numbers"]):
        return 0.05
    return 1.0 if abs(value - target) <= 1e-6 + 1e-5 * abs(target) else 0.05


def score_puzzle24(answer: str, entry: Entry) -> float:
    """1.0 for an expression of four numbers in range whose whole part is 24, else 0.01.

    As in the original, they need not be the four numbers that were given.
    """
    low, high = entry["metadata"]["difficulty"]["value"]
    try:
        value = _whole_part(number_value(parse_expression(answer)))
    except (ExpressionError, ArithmeticError):
        return 0.01
    numbers = [int(number) for number in _WRITTEN_NUMBER.findall(answer)]
    in_range = len(numbers) == 4 and all(low <= number <= high for number in numbers)
    return 1.0 if value == 24 and in_range else 0.01


def _whole_part(value: Fraction | float) -> int:
    if isinstance(value, float) and abs(value - round(value)) <= 1e-12 * abs(value):
        return round(value)  # a root that is whole but for its rounding
    return int(value)


def score_polynomial_multiplication(answer: str, entry: Entry) -> float:
    """1.0 for the expected polynomial, multiplied out; else 0.0."""
    try:
        polynomial = polynomial_value(parse_expression(answer))
    except (ExpressionError, ArithmeticError):
        return 0.0
    return float(polynomial == polynomial_value(parse_expression(entry["answer"])))


def score_integration(answer: str, entry: Entry) -> float:
    """1.0 for an antiderivative of the integrand, else 0.0. For both integration data sets."""
    variable: str = entry["metadata"]["variable"]
    integrand: str = entry["metadata"]["integrand"]
    try:
        found = parse_expression(answer)
        right = is_antiderivative(found, parse_expression(integrand), variable, salt=integrand)
    except (ExpressionError, ArithmeticError):
        return 0.0
    return float(right)


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


def score_propositional_logic(answer: str, entry: Entry) -> float:
    """1.0 for a conclusion that says all that the premises say, less for a weaker one, else 0.0.

    The original pays 1.0 for whatever follows: "P ∨ Q" does in four tasks of five. It also tries
    all assignments of every name in the answer: thirty names are a billion rows.
    """
    metadata = entry["metadata"]
    variables = frozenset(metadata["variables"])
    if len(answer) > MAX_FORMULA_CHARS or not set(answer) <= variables | _CONNECTIVES:
        return 0.0
    try:
        return conclusion_score(answer, metadata)
    except ValueError:
        return 0.0


_SCORERS: Final[Mapping[str, SafeScorer]] = {
    "binary_matrix": score_binary_matrix,
    "countdown": score_countdown,
    "intermediate_integration": score_integration,
    "n_queens": score_n_queens,
    "polynomial_multiplication": score_polynomial_multiplication,
    "propositional_logic": score_propositional_logic,
    "puzzle24": score_puzzle24,
    "simple_integration": score_integration,
    "spell_backward": score_spell_backward,
    "spiral_matrix": score_spiral_matrix,
    "string_insertion": score_string_insertion,
}


def safe_score(generator: str, answer: str, entry: Entry, original: Original) -> float:
    """Score ``answer``, by the replacement where ``generator`` has one, else by ``original``."""
    if generator in _SCORERS:
        return _SCORERS[generator](answer, entry)
    return original(answer, entry)
