"""Polynomials in the form in which they are written, for scorers that compare forms. Pure.

Sums are collected, powers of one variable are joined, and a number before a bracket is multiplied
in; a product or power of sums stays as it stands and equals no expanded polynomial. That is what
sympy does by itself when it reads an expression, and it matters: the product as the question
states it is no answer.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

from shoal_tasks.scorers.expressions import ExpressionError, Node, evaluate

Monomial = tuple[tuple[str, int], ...]
"""Variables in alphabetical order, each with an exponent that is not 0."""

Polynomial = dict[Monomial, Fraction]
"""Coefficients by monomial; none is 0."""

MAX_EXPONENT: Final = 10_000
MAX_BITS: Final = 20_000

_NOT_VARIABLES: Final = frozenset("EINOQS")
"""Single letters that are constants or classes to sympy."""


class PolynomialAlgebra:
    """Expanded polynomials; everything that would have to be multiplied out is an error."""

    def number(self, number: float) -> Polynomial:
        if not isinstance(number, int):
            raise ExpressionError("a float is not an exact coefficient")
        return _constant(Fraction(number))

    def name(self, name: str) -> Polynomial:
        if name in _NOT_VARIABLES:
            raise ExpressionError(f"{name!r} is not a variable")
        return {((name, 1),): Fraction(1)}

    def negative(self, value: Polynomial) -> Polynomial:
        return {monomial: -factor for monomial, factor in value.items()}

    def join(self, operator: str, left: Polynomial, right: Polynomial) -> Polynomial:
        if operator == "+":
            return _sum(left, right)
        if operator == "-":
            return _sum(left, self.negative(right))
        if operator == "*":
            return _product(left, right)
        if operator == "/":
            return _product(left, self.power(right, _constant(Fraction(-1))))
        raise ExpressionError(f"{operator} of polynomials")

    def power(self, base: Polynomial, exponent: Polynomial) -> Polynomial:
        value = _as_constant(exponent)
        if value is None or value.denominator != 1 or abs(value) > MAX_EXPONENT:
            raise ExpressionError("exponent is not a small whole number")
        if value == 0:
            return _constant(Fraction(1))
        if value == 1:
            return base
        if not base and value > 0:
            return {}
        if len(base) != 1:
            raise ExpressionError("a power of a sum" if base else "a division by zero")
        ((monomial, factor),) = base.items()
        bits = max(factor.numerator.bit_length(), factor.denominator.bit_length())
        if abs(factor) != 1 and bits * abs(value) > MAX_BITS:
            raise ExpressionError("number too large")
        powers = tuple((name, power * int(value)) for name, power in monomial)
        return {powers: factor ** int(value)}

    def call(self, name: str, arguments: list[Polynomial]) -> Polynomial:
        value = _as_constant(arguments[0]) if name == "sqrt" and len(arguments) == 1 else None
        if value is None or value < 0:
            raise ExpressionError(f"function {name!r} in a polynomial")
        root = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
        if root * root != value:
            raise ExpressionError("an irrational coefficient")
        return _constant(root)


def polynomial_value(node: Node) -> Polynomial:
    """The expression as an expanded polynomial. Raises `ExpressionError` where it is none."""
    return evaluate(node, PolynomialAlgebra())


def _constant(value: Fraction) -> Polynomial:
    return {(): value} if value else {}


def _as_constant(value: Polynomial) -> Fraction | None:
    if not value:
        return Fraction(0)
    return value.get(()) if len(value) == 1 else None


def _sum(left: Polynomial, right: Polynomial) -> Polynomial:
    result = dict(left)
    for monomial, factor in right.items():
        total = result.get(monomial, Fraction(0)) + factor
        if total:
            result[monomial] = total
        else:
            del result[monomial]
    return result


def _product(left: Polynomial, right: Polynomial) -> Polynomial:
    if len(left) > 1 and len(right) > 1:
        raise ExpressionError("a product of sums")
    one, many = (left, right) if len(left) <= 1 else (right, left)
    if not one:
        return {}
    ((monomial, factor),) = one.items()
    if monomial and len(many) > 1:
        raise ExpressionError("a product of a variable and a sum")
    return {_merge(monomial, other): _times(factor, value) for other, value in many.items()}


def _times(left: Fraction, right: Fraction) -> Fraction:
    result = left * right
    if max(result.numerator.bit_length(), result.denominator.bit_length()) > MAX_BITS:
        raise ExpressionError("number too large")
    return result


def _merge(left: Monomial, right: Monomial) -> Monomial:
    powers = dict(left)
    for name, power in right:
        powers[name] = powers.get(name, 0) + power
    if any(abs(power) > MAX_EXPONENT for power in powers.values()):
        raise ExpressionError("exponent too large")
    return tuple(sorted((name, power) for name, power in powers.items() if power))
