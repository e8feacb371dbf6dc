"""Conclusions of propositional logic, weighed by how much of the premises they keep. Pure.

A formula is the set of assignments under which it holds, as bits of an integer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, Final

_WEAKEST_FIRST: Final = ("↔", "→", "∨", "∧")
"""Order of reasoning_gym's parser: the last operator of the weakest kind splits a formula."""


def conclusion_score(answer: str, metadata: Mapping[str, Any]) -> float:
    """Return the square of the share of what the premises exclude that the answer excludes.

    1 for a conclusion that says all that the premises say; 0 for one that does not follow, and for
    one that excludes nothing, such as P ∨ ¬P. Squared, so that no weak one earns much in all tasks.
    Raises ValueError on what is no formula over the task's variables.
    """
    variables: Sequence[str] = metadata["variables"]
    given = models_of_premises(metadata)
    found = models(answer, variables)
    excluded = _num_excluded(given, variables)
    if given & ~found or not excluded:
        return 0.0
    return float((_num_excluded(found, variables) / excluded) ** 2)


def says_something(metadata: Mapping[str, Any]) -> bool:
    """Return whether the premises can hold and can fail: else anything follows, or nothing."""
    given = models_of_premises(metadata)
    return given != 0 and _num_excluded(given, metadata["variables"]) > 0


def all_that_is_said(metadata: Mapping[str, Any]) -> str:
    """Return a conclusion that earns everything: the premises, joined."""
    return " ∧ ".join(f"({premise})" for premise in metadata["premises"])


def models_of_premises(metadata: Mapping[str, Any]) -> int:
    """Return the assignments under which all premises hold."""
    variables = metadata["variables"]
    held = (models(premise, variables) for premise in metadata["premises"])
    return reduce(lambda one, other: one & other, held, _all(variables))


def models(formula: str, variables: Sequence[str]) -> int:
    """Return the assignments under which a formula holds. Raises ValueError where it is none."""
    formula = _bare(formula.strip())
    if not formula:
        raise ValueError("an empty formula")
    for operator in _WEAKEST_FIRST:
        place = _last_outside(formula, operator)
        if place is not None:
            left = models(formula[:place], variables)
            right = models(formula[place + 1 :], variables)
            return _joined(operator, left, right, _all(variables))
    if formula[0] == "¬":
        return _all(variables) & ~models(formula[1:], variables)
    return _variable(variables.index(formula), len(variables))


def _joined(operator: str, left: int, right: int, everything: int) -> int:
    match operator:
        case "∧":
            return left & right
        case "∨":
            return left | right
        case "→":
            return (everything & ~left) | right
        case _:
            return everything & ~(left ^ right)


def _bare(formula: str) -> str:
    """Return the formula without the parentheses around the whole of it."""
    while len(formula) > 1 and formula[0] == "(" and formula[-1] == ")":
        depth = 0
        for char in formula[1:-1]:
            depth += (char == "(") - (char == ")")
            if depth < 0:
                return formula
        if depth:
            return formula
        formula = formula[1:-1].strip()
    return formula


def _last_outside(formula: str, operator: str) -> int | None:
    depth = 0
    for place in range(len(formula) - 1, -1, -1):
        char = formula[place]
        depth += (char == ")") - (char == "(")
        if char == operator and depth == 0:
            return place
    return None


def _variable(index: int, count: int) -> int:
    return sum(1 << bits for bits in range(1 << count) if bits >> index & 1)


def _all(variables: Sequence[str]) -> int:
    return (1 << (1 << len(variables))) - 1


def _num_excluded(held: int, variables: Sequence[str]) -> int:
    return int((1 << len(variables)) - held.bit_count())
