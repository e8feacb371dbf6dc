"""Checks an antiderivative by its derivative at many complex points. Pure.

An answer is read into a tree and walked with dual numbers, so its derivative is exact up to
rounding, and the cost is that of a few hundred operations: nothing is simplified symbolically.
The points are complex because identities that hold on the positive axis only, such as
sqrt(x**2) = x, are not identities.
"""

from __future__ import annotations

import ast
import cmath
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from shoal_tasks.scorers.expressions import ExpressionError, Node, evaluate

_RADII: Final = (0.31, 0.47, 0.73, 0.94, 1.21, 1.63, 2.2, 3.1, 4.7, 7.3, 11.0, 15.0)
"""Small ones, where exponentials stay finite; large ones, where a constant cannot hide a sign."""

_MIN_POINTS: Final = 5
"""Fewer usable points than this prove nothing: the answer counts as wrong."""

_MAX_TURNS: Final = 4
"""Times that the radii are gone through, each time in other directions, for want of such points: an
exponential of a large polynomial is all but 0 in most directions."""

_TOLERANCE: Final = 1e-9
"""Relative. Rounding stays below 1e-11 where a point is used; a wrong coefficient is far above."""

_MAX_CANCELLATION: Final = 1e4
"""Ratio of terms to their sum above which a point is not used: rounding would decide there."""

_SMALLEST: Final = 1e-290
"""Below this a number has lost digits, so that two ways to it differ."""

_SYMBOL_CHARS: Final = 3
_NOT_SYMBOLS: Final = frozenset("EINOQS")
"""Single letters that are constants or classes to sympy."""


@dataclass(frozen=True, slots=True)
class Dual:
    """A value and its derivative by the variable."""

    value: complex
    slope: complex


class DualAlgebra:
    """Values and derivatives at one point. Remembers the largest term that went into a sum."""

    def __init__(self, variable: str, point: complex, symbols: Mapping[str, complex]) -> None:
        self._variable = variable
        self._point = point
        self._symbols = symbols
        self.scale = 0.0

    def number(self, number: float) -> Dual:
        return Dual(complex(number), 0j)

    def name(self, name: str) -> Dual:
        if name == self._variable:
            return Dual(self._point, 1 + 0j)
        if name in _CONSTANTS:
            return Dual(_CONSTANTS[name], 0j)
        if name not in self._symbols:
            raise ExpressionError(f"unknown name {name!r}")
        return Dual(self._symbols[name], 0j)

    def negative(self, value: Dual) -> Dual:
        return Dual(-value.value, -value.slope)

    def join(self, operator: str, left: Dual, right: Dual) -> Dual:
        if operator in ("+", "-"):
            sign = 1 if operator == "+" else -1
            slope = self._sum(left.slope, sign * right.slope)
            return Dual(left.value + sign * right.value, slope)
        if operator == "*":
            slope = self._sum(left.slope * right.value, left.value * right.slope)
            return Dual(left.value * right.value, slope)
        if operator == "/":
            quotient = left.value / right.value
            slope = self._sum(left.slope / right.value, -quotient * right.slope / right.value)
            return Dual(quotient, slope)
        raise ExpressionError(f"{operator} of functions")

    def power(self, base: Dual, exponent: Dual) -> Dual:
        value = base.value**exponent.value
        slope = 0j
        if base.slope:
            slope = exponent.value * base.value ** (exponent.value - 1) * base.slope
        if exponent.slope:
            slope = self._sum(slope, value * cmath.log(base.value) * exponent.slope)
        return Dual(value, slope)

    def call(self, name: str, arguments: list[Dual]) -> Dual:
        if name == "log" and len(arguments) == 2:
            return self.join("/", *(self.call("log", [argument]) for argument in arguments))
        if len(arguments) != 1 or name not in _FUNCTIONS:
            raise ExpressionError(f"unknown function {name!r}")
        inner = arguments[0]
        value, slope = _FUNCTIONS[name](inner.value)
        return Dual(value, slope * inner.slope)

    def _sum(self, left: complex, right: complex) -> complex:
        self.scale = max(self.scale, abs(left), abs(right))
        return left + right


def is_antiderivative(answer: Node, integrand: Node, variable: str, *, salt: str) -> bool:
    """Return whether the answer's derivative is the integrand. ``salt`` decides the points.

    Raises `ExpressionError` on names, functions or operators it does not know.
    """
    rng = random.Random(salt)
    symbols = {name: complex(rng.uniform(1, 3), rng.uniform(1, 3)) for name in _names(answer)}
    usable = 0
    for _ in range(_MAX_TURNS):
        for radius in _RADII:
            point = cmath.rect(radius, rng.uniform(-cmath.pi, cmath.pi))
            agree = _agree_at(point, answer, integrand, variable, symbols)
            if agree is False:
                return False
            usable += agree is True
        if usable >= _MIN_POINTS:
            return True
    return False


def _agree_at(
    point: complex, answer: Node, integrand: Node, variable: str, symbols: Mapping[str, complex]
) -> bool | None:
    """Return whether derivative and integrand agree at a point; None where it proves nothing."""
    try:
        dual = DualAlgebra(variable, point, symbols)
        slope = evaluate(answer, dual).slope
        wanted = evaluate(integrand, DualAlgebra(variable, point, {})).value
    except (OverflowError, ZeroDivisionError):
        return None
    size = abs(wanted) or 1.0
    if not cmath.isfinite(slope) or not cmath.isfinite(wanted):
        return None
    if 0 < min(abs(slope), abs(wanted)) < _SMALLEST:
        return None
    if abs(slope) <= _MAX_CANCELLATION * size < dual.scale:
        return None
    return abs(slope - wanted) <= _TOLERANCE * size


def _names(node: Node) -> set[str]:
    """Names that stand for constants of integration: a letter and at most two digits, or so."""
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return {
        name
        for name in names
        if name not in _NOT_SYMBOLS
        and (name.lower() in ("const", "constant") or _is_short_symbol(name))
    }


def _is_short_symbol(name: str) -> bool:
    rest = name[1:].lstrip("_")
    return len(name) <= _SYMBOL_CHARS and name[0].isalpha() and (not rest or rest.isdecimal())


Function = Callable[[complex], tuple[complex, complex]]
"""A function and its derivative at a point."""


def _tan(z: complex) -> tuple[complex, complex]:
    value = cmath.tan(z)
    return value, 1 + value * value


def _cot(z: complex) -> tuple[complex, complex]:
    value = 1 / cmath.tan(z)
    return value, -1 - value * value


def _sec(z: complex) -> tuple[complex, complex]:
    value = 1 / cmath.cos(z)
    return value, value * cmath.tan(z)


def _csc(z: complex) -> tuple[complex, complex]:
    value = 1 / cmath.sin(z)
    return value, -value / cmath.tan(z)


def _tanh(z: complex) -> tuple[complex, complex]:
    value = cmath.tanh(z)
    return value, 1 - value * value


def _exp(z: complex) -> tuple[complex, complex]:
    value = cmath.exp(z)
    return value, value


def _sqrt(z: complex) -> tuple[complex, complex]:
    value = cmath.sqrt(z)
    return value, 0.5 / value


_FUNCTIONS: Final[Mapping[str, Function]] = {
    "sin": lambda z: (cmath.sin(z), cmath.cos(z)),
    "cos": lambda z: (cmath.cos(z), -cmath.sin(z)),
    "tan": _tan,
    "cot": _cot,
    "sec": _sec,
    "csc": _csc,
    "asin": lambda z: (cmath.asin(z), 1 / cmath.sqrt(1 - z * z)),
    "acos": lambda z: (cmath.acos(z), -1 / cmath.sqrt(1 - z * z)),
    "atan": lambda z: (cmath.atan(z), 1 / (1 + z * z)),
    "acot": lambda z: (cmath.atan(1 / z), -1 / (1 + z * z)),
    "sinh": lambda z: (cmath.sinh(z), cmath.cosh(z)),
    "cosh": lambda z: (cmath.cosh(z), cmath.sinh(z)),
    "tanh": _tanh,
    "asinh": lambda z: (cmath.asinh(z), 1 / cmath.sqrt(1 + z * z)),
    "acosh": lambda z: (cmath.acosh(z), 1 / (cmath.sqrt(z - 1) * cmath.sqrt(z + 1))),
    "atanh": lambda z: (cmath.atanh(z), 1 / (1 - z * z)),
    "exp": _exp,
    "log": lambda z: (cmath.log(z), 1 / z),
    "ln": lambda z: (cmath.log(z), 1 / z),
    "sqrt": _sqrt,
}

_CONSTANTS: Final = {"pi": complex(cmath.pi), "E": complex(cmath.e), "I": 1j}
