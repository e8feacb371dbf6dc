"""Conclusions of propositional logic, scored by how much of the premises they express. Pure.

A formula is represented by the set of assignments that satisfy it, as bits of an integer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, Final

_STRENGTH: Final = {"↔": 1, "→": 2, "∨": 3, "∧": 4}
"""Precedence of each operator, as in reasoning_gym's parser; equal ones are left-associative."""
_PART: Final = re.compile(r"\w+|\S")


def conclusion_score(answer: str, metadata: Mapping[str, Any]) -> float:
    """Return the squared fraction of the assignments excluded by the premises that `answer`
    excludes.

    It is 1 for a conclusion equivalent to the premises. It is 0 for one that does not follow, and
    for a tautology such as P ∨ ¬P. The square keeps weak conclusions from earning much in every
    task.

    Raises ValueError if `answer` is not a formula over the task's variables.
    """
    variables: Sequence[str] = metadata["variables"]
    given = models_of_premises(metadata)
    found = models(answer, variables)
    excluded = _num_excluded(given, variables)
    if given & ~found or not excluded:
        return 0.0
    return float((_num_excluded(found, variables) / excluded) ** 2)


def is_informative(metadata: Mapping[str, Any]) -> bool:
    """Return whether the premises are neither contradictory nor a tautology."""
    given = models_of_premises(metadata)
    return given != 0 and _num_excluded(given, metadata["variables"]) > 0


def strongest_conclusion(metadata: Mapping[str, Any]) -> str:
    """Return a conclusion that earns the full reward: the conjunction of the premises."""
    return " ∧ ".join(f"({premise})" for premise in metadata["premises"])


def models_of_premises(metadata: Mapping[str, Any]) -> int:
    """Return the assignments that satisfy all premises."""
    variables = metadata["variables"]
    held = (models(premise, variables) for premise in metadata["premises"])
    return reduce(lambda one, other: one & other, held, _all(variables))


def models(formula: str, variables: Sequence[str]) -> int:
    """Return the assignments that satisfy a formula. Raises ValueError if it is not one."""
    parts = ["", *reversed(_PART.findall(formula))]
    found = _joined(parts, variables)
    if parts != [""]:
        raise ValueError("more than one formula")
    return found


def _joined(parts: list[str], variables: Sequence[str], binding: int = 1) -> int:
    """Parse operands joined at least as strongly as `binding` from the end of `parts`."""
    everything = _all(variables)
    left = _operand(parts, variables)
    while (strength := _STRENGTH.get(parts[-1], 0)) >= binding:
        operator = parts.pop()
        right = _joined(parts, variables, strength + 1)
        match operator:
            case "∧":
                left &= right
            case "∨":
                left |= right
            case "→":
                left = (everything & ~left) | right
            case _:
                left = everything & ~(left ^ right)
    return left


def _operand(parts: list[str], variables: Sequence[str]) -> int:
    match parts.pop():
        case "¬":
            return _all(variables) & ~_operand(parts, variables)
        case "(":
            found = _joined(parts, variables)
            if parts.pop() != ")":
                raise ValueError("a parenthesis is not closed")
            return found
        case name:
            return _variable(variables.index(name), len(variables))


def _variable(index: int, count: int) -> int:
    return sum(1 << bits for bits in range(1 << count) if bits >> index & 1)


def _all(variables: Sequence[str]) -> int:
    return (1 << (1 << len(variables))) - 1


def _num_excluded(held: int, variables: Sequence[str]) -> int:
    return int((1 << len(variables)) - held.bit_count())
