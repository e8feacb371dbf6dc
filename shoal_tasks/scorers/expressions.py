"""Reads arithmetic written as in Python, without running it: what some scorers hand to sympy.

    text ──ast.parse──> Python's own tree ──evaluate(tree, algebra)──> value

Nothing is compiled: whatever in the tree is no number, name, operator or call is refused. What an
operation means, and how large a number may get, is up to the algebra that walks it. Size and
nesting are bounded here. Pure; used inside the sandboxed worker alone.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Final, Protocol, TypeVar

V = TypeVar("V")

Node = ast.expr

MAX_CHARS: Final = 8000
"""Longest text read. Honest answers have under 500 characters."""

MAX_DEPTH: Final = 120
"""Deepest nesting that is walked; honest answers have under 30 levels."""

MAX_NUMBER: Final = 10**200
"""Bound of a whole number as written, so that no algebra begins with a huge one."""

_FACTORIAL: Final = "_factorial"
"""An exponent of this name is a factorial sign: Python has none, and `!` binds as a power does."""

_OPERATORS: Final[Mapping[type[ast.operator], str]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.BitXor: "^",
}


class ExpressionError(ValueError):
    """The text is no expression of the kind read here, or one too large or undefined."""


class Algebra(Protocol[V]):
    """Meaning of the parts of an expression. Each method may raise `ExpressionError`."""

    def number(self, number: float) -> V:
        """A number's value; an int where it is written as one."""

    def name(self, name: str) -> V:
        """A name's value."""

    def negative(self, value: V) -> V:
        """The value with the other sign."""

    def join(self, operator: str, left: V, right: V) -> V:
        """One of ``+ - * / // % ^``."""

    def power(self, base: V, exponent: V) -> V:
        """The base to the exponent."""

    def call(self, name: str, arguments: list[V]) -> V:
        """A function's value. A factorial sign is a call of ``factorial``."""


def parse_expression(text: str) -> Node:
    """Read an expression. Raises `ExpressionError`."""
    text = text.strip()
    if len(text) > MAX_CHARS or not text.isascii():
        raise ExpressionError("too long, or not ASCII")
    try:
        return ast.parse(text.replace("!", f"**{_FACTORIAL} "), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ExpressionError("not one expression") from None


def evaluate(node: Node, algebra: Algebra[V], depth: int = 0) -> V:
    """The expression's value. Raises `ExpressionError`, and what the algebra raises."""
    if depth > MAX_DEPTH:
        raise ExpressionError("nested too deeply")
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            if isinstance(number, int) and number >= MAX_NUMBER:
                raise ExpressionError("number too long")
            return algebra.number(number)
        case ast.Name(id=name):
            return algebra.name(name)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return evaluate(operand, algebra, depth + 1)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return algebra.negative(evaluate(operand, algebra, depth + 1))
        case ast.BinOp(op=ast.Pow(), left=left, right=right):
            return _power(evaluate(left, algebra, depth + 1), right, algebra, depth + 1)
        case ast.BinOp():
            return _chain(node, algebra, depth)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if arguments:
            return algebra.call(name, [evaluate(one, algebra, depth + 1) for one in arguments])
    raise ExpressionError("not arithmetic")


def _chain(node: Node, algebra: Algebra[V], depth: int) -> V:
    """Operands joined from left to right: a long sum is a deep tree, so its left side is a loop."""
    rest: list[tuple[str, Node]] = []
    while isinstance(node, ast.BinOp) and not isinstance(node.op, ast.Pow):
        if type(node.op) not in _OPERATORS:
            raise ExpressionError("not arithmetic")
        rest.append((_OPERATORS[type(node.op)], node.right))
        node = node.left
    value = evaluate(node, algebra, depth + 1)
    for operator, operand in reversed(rest):
        value = algebra.join(operator, value, evaluate(operand, algebra, depth + 1))
    return value


def _power(base: V, exponent: Node, algebra: Algebra[V], depth: int) -> V:
    match exponent:
        case ast.Name(id="_factorial"):
            return algebra.call("factorial", [base])
        case ast.BinOp(op=ast.Pow(), left=ast.Name(id="_factorial"), right=rest):
            return _power(algebra.call("factorial", [base]), rest, algebra, depth)
    return algebra.power(base, evaluate(exponent, algebra, depth))
