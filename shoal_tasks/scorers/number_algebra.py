"""Plain numbers: exact fractions as long as possible, else floats. For number puzzles. Pure."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

from shoal_tasks.scorers.expressions import ExpressionError, Node, evaluate

Value = Fraction | float

MAX_BITS: Final = 20_000
"""Largest numerator or denominator: far beyond a float, so far beyond any puzzle's target."""

MAX_FACTORIAL: Final = 1000


class NumberAlgebra:
    """Values of expressions without variables. Raises `ExpressionError` where there is none."""

    def number(self, number: float) -> Value:
        return Fraction(number) if isinstance(number, int) else number

    def name(self, name: str) -> Value:
        if name not in _CONSTANTS:
            raise ExpressionError(f"unknown name {name!r}")
        return _CONSTANTS[name]

    def negative(self, value: Value) -> Value:
        return -value

    def join(self, operator: str, left: Value, right: Value) -> Value:
        if operator == "^":
            return _exclusive_or(left, right)
        if operator in ("/", "//", "%") and right == 0:
            raise ExpressionError("division by zero")
        if operator == "+":
            result = left + right
        elif operator == "-":
            result = left - right
        elif operator == "*":
            result = left * right
        elif operator == "/":
            result = left / right
        elif operator == "//":
            result = Fraction(math.floor(left / right))
        else:
            result = _modulo(left, right)
        return _bounded(result)

    def power(self, base: Value, exponent: Value) -> Value:
        if isinstance(exponent, Fraction) and exponent.denominator == 1 and _is_exact(base):
            return _whole_power(Fraction(base), exponent.numerator)
        if base == 0 and exponent < 0:
            raise ExpressionError("division by zero")
        result: object = float(base) ** float(exponent)
        if not isinstance(result, float):
            raise ExpressionError("not a real number")
        return result

    def call(self, name: str, arguments: list[Value]) -> Value:
        if len(arguments) != 1:
            raise ExpressionError("too many arguments")
        value = arguments[0]
        if name == "sqrt":
            return self.power(value, Fraction(1, 2))
        if name in ("abs", "Abs"):
            return -value if value < 0 else value
        if name == "floor":
            return Fraction(math.floor(value))
        if name == "ceiling":
            return Fraction(math.ceil(value))
        if name == "factorial":
            return _factorial(value)
        raise ExpressionError(f"unknown function {name!r}")


_CONSTANTS: Final[dict[str, Value]] = {"pi": math.pi, "E": math.e}


def number_value(node: Node) -> Value:
    """The expression's value. Raises `ExpressionError`, OverflowError."""
    return evaluate(node, NumberAlgebra())


def _modulo(left: Value, right: Value) -> Value:
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return left % right
    return float(left) % float(right)


def _is_exact(value: Value) -> bool:
    return isinstance(value, Fraction)


def _bounded(value: Value) -> Value:
    if isinstance(value, float):
        return value
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise ExpressionError("number too large")
    return value


def _whole_power(base: Fraction, exponent: int) -> Fraction:
    if base == 0 and exponent < 0:
        raise ExpressionError("division by zero")
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(base) != 1 and bits * abs(exponent) > MAX_BITS:
        raise ExpressionError("number too large")
    if abs(base) == 1:
        return Fraction(1) if base == 1 or exponent % 2 == 0 else Fraction(-1)
    return base**exponent


def _exclusive_or(left: Value, right: Value) -> Value:
    # What ^ means in Python, and so to the scorers that this stands in for: not a power.
    if isinstance(left, float) or isinstance(right, float):
        raise ExpressionError("^ of a float")
    if left.denominator != 1 or right.denominator != 1:
        raise ExpressionError("^ of a fraction")
    return Fraction(left.numerator ^ right.numerator)


def _factorial(value: Value) -> Value:
    if value != int(value) or not 0 <= value <= MAX_FACTORIAL:
        raise ExpressionError("no factorial")
    return Fraction(math.factorial(int(value)))
