"""The meaning of a question, whatever its wording: two texts of one meaning are one question. Pure.

The split of the product is by a question's text, and all peers agree on it. Some generators put one
question in many texts, with operands swapped or names changed. An experiment holds those out by
this normal form, so that no evaluation question is trained on in other words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

_NUMBER: Final = re.compile(r"-?\d+")
_EQUATION: Final = re.compile(r"[^:]*: *(.*)", re.DOTALL)
_VARIABLE: Final = re.compile(r"\b[a-z]\b")
_NAME: Final = re.compile(r"(?<=[a-z,'] )[A-Z][a-z]+|^[A-Z][a-z]+|(?<=\. )[A-Z][a-z]+(?= has)")


def _sorted_numbers(question: str) -> str:
    return " ".join(map(str, sorted(map(int, _NUMBER.findall(question)))))


def _equation(question: str) -> str:
    """Return the equation alone, in x."""
    found = _EQUATION.fullmatch(question)
    return _VARIABLE.sub("x", found[1] if found else question)


def _nameless(question: str) -> str:
    return _NAME.sub("N", question)


_FORMS: Final[Mapping[str, Callable[[str], str]]] = {
    "aiw": _nameless,
    "gcd": _sorted_numbers,
    "lcm": _sorted_numbers,
    "products": _sorted_numbers,
    "simple_equations": _equation,
}
"""Normal forms of the generators that put one question in several texts."""


def has_wordings(generator: str) -> bool:
    """Return whether a generator puts one question in several texts."""
    return generator in _FORMS


def meaning(generator: str, question: str) -> str:
    """Return the question's normal form, which is equal for questions of one meaning."""
    return _FORMS.get(generator, str)(" ".join(question.split()))
