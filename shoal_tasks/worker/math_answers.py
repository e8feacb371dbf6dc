"""Equality of mathematical answers, by math-verify (extra `math`). For the worker process only.

Answers are parsed as LaTeX. math-verify builds numbers through sympy's parser, which evaluates
text; in the worker, the audit hook allows that for plain numbers only. math-verify's own time-outs
are off, because the worker's item limit covers parsing and comparing.
"""

from __future__ import annotations

import importlib
import logging
import re
from typing import Any, Final

from shoal_tasks.worker.sympy_parts import load_sympy

math_verify: Any = importlib.import_module("math_verify")

_CONFIG: Final = [math_verify.LatexExtractionConfig()]

_WARM_UP: Final = (
    ("\\frac{3}{4}", "0.75"),
    ("x^2+1", "1+x^2"),
    ("\\frac{\\sqrt{2}}{2}", "\\frac{1}{\\sqrt{2}}"),
    ("\\{1,2\\}", "\\{2,1\\}"),
    ("(1,2)", "[0,1)"),
    ("2\\pi", "6.28"),
    ("x=5", "5"),
    ("50\\%", "0.5"),
    ("\\begin{pmatrix}1 & 2\\end{pmatrix}", "\\text{A}"),
    ("\\sin(x) + \\log(2) < 3", "e^{i}"),
)
"""One example of each kind, so that all imports happen before the disk is closed."""


def warm_up() -> None:
    """Import and build what parsing and comparing need. Evaluates only the texts above."""
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    load_sympy()
    for expected, answer in _WARM_UP:
        is_equal(answer, expected)


def is_equal(answer: str, expected: str) -> bool:
    """Return whether two answers are mathematically equal. Unreadable text is not equal.

    If a number is expected, the answer may have a unit or a full stop: 72, "72." and "72 clips" are
    equal. It may not contain a second number, or guessing several would be rewarded. Nor may it be
    an unevaluated sum or product, or copying the question would be.
    """
    if _NUMBER.fullmatch(expected.strip()):
        bare = _number_in(answer)
        if bare is not None:
            answer = bare
        elif _UNDONE.search(_POWER_OF_TEN.sub("", answer)):
            return False
    return bool(math_verify.verify(_read(expected), _read(answer), timeout_seconds=None))


_NUMBER: Final = re.compile(r"[-+−]?\$?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?<=\d)")
"""A whole or decimal number only, with separators of thousands or a dollar sign."""
_WITH_UNIT: Final = re.compile(rf"(?P<number>{_NUMBER.pattern})(?:\s+[^\W\d_][^\d\\{{}}=<>^]*|\.)?")
"""The same, followed by a unit in words or a full stop."""


_UNDONE: Final = re.compile(
    r"[\d)\]}]\s*(?:[-+−*×·÷]|\\times|\\cdot|\\div)\s*[\d([{\\.]|[\d)]\s+[\d(]|\)\s*\("
)
"""Two numbers joined by an operator, or by a blank, which is parsed as a product."""
_POWER_OF_TEN: Final = re.compile(r"\s*(?:[*×·]|\\times|\\cdot)\s*10\^(?:\d|\{[-+−]?\d+\})")
"""A power of ten, as part of one number: 1.5 \\times 10^3."""


def _number_in(answer: str) -> str | None:
    """Return the only number of an answer such as ``72 clips.``; None for any other answer."""
    found = _WITH_UNIT.fullmatch(answer.strip())
    return found["number"] if found is not None and found["number"] else None


def _read(text: str) -> Any:
    bare = text.strip().removeprefix("$").removesuffix("$")
    return math_verify.parse(f"${bare}$", extraction_config=_CONFIG, parsing_timeout=None)
