"""Conclusions of propositional logic, weighed by how much of the premises they keep. Pure.

A formula is the set of assignments under which it holds, as bits of an integer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, Final

_STRENGTH: Final = {"↔": 1, "→": 2, "∨": 3, "∧": 4}
"""Strength of each operator, as reasoning_gym's parser has it; equals join from the left."""
_PART: Final = re.compile(r"\w+|\S")


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
    parts = ["", *reversed(_PART.findall(formula))]
    found = _joined(parts, variables)
    if parts != [""]:
        raise ValueError("more than one formula")
    return found


def _joined(parts: list[str], variables: Sequence[str], binding: int = 1) -> int:
    """Take what joins operands at least so strongly off the end of `parts`; return its models."""
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
                raise ValueError("a parenthesis without its end")
            return found
        case name:
            return _variable(variables.index(name), len(variables))


def _variable(index: int, count: int) -> int:
    return sum(1 << bits for bits in range(1 << count) if bits >> index & 1)


def _all(variables: Sequence[str]) -> int:
    return (1 << (1 << len(variables))) - 1


def _num_excluded(held: int, variables: Sequence[str]) -> int:
    return int((1 << len(variables)) - held.bit_count())
