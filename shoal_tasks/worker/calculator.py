"""The calculator tool of environments: parses arithmetic and never executes it. Pure.

    text ──ast.parse──> Python's own tree ──walked──> value

Nothing is compiled. Any node that is not a number, name, operator or call is refused. Every peer
recomputes the results when it replays a game, so results and error texts must never change.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Final

_MAX_DEPTH: Final = 120
"""Maximum nesting. A guess: people write fewer than 30 levels."""
_MAX_NUMBER: Final = 10**200
"""Bound of every intermediate number."""
_MAX_FACTORIAL: Final = next(n for n in count() if math.factorial(n + 1) >= _MAX_NUMBER)
"""The largest number with a factorial below that bound: 120."""
_FACTORIAL: Final = "_factorial"
"""Placeholder exponent for a factorial: Python has no `!`, which binds as tightly as a power."""
_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "abs": abs,
    "factorial": math.factorial,
    "gcd": math.gcd,
    "max": max,
    "min": min,
    "round": round,
    "sqrt": math.sqrt,
}


class _ExpressionError(ValueError):
    """The text is not an expression of the supported kind, is too large, or is undefined."""


def calculate(expression: str) -> str:
    """Return the value of an expression as text, or one line with the error."""
    try:
        return str(_value(_parsed(expression.strip())))
    except _ExpressionError as error:
        return f"error: {error}"
    except (OverflowError, ValueError, ZeroDivisionError):
        return "error: not a number"


def _parsed(text: str) -> ast.expr:
    if not text.isascii():
        raise _ExpressionError("too long, or not ASCII")
    try:
        return ast.parse(text.replace("!", f"**{_FACTORIAL} "), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise _ExpressionError("not one expression") from None


def _value(node: ast.expr, depth: int = 0) -> float:
    if depth > _MAX_DEPTH:
        raise _ExpressionError("nested too deeply")
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return _bounded(number)
        case ast.Name(id="pi"):
            return math.pi
        case ast.Name(id=name):
            raise _ExpressionError(f"no name {name[:20]}")
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand, depth + 1)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, depth + 1)
        case ast.BinOp(op=ast.Pow(), left=left, right=right):
            return _raised(_value(left, depth + 1), right, depth + 1)
        case ast.BinOp():
            return _chain(node, depth)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if arguments:
            return _called(name, [_value(one, depth + 1) for one in arguments])
    raise _ExpressionError("not arithmetic")


def _chain(node: ast.expr, depth: int) -> float:
    """Evaluate a left-associative chain. A long sum is a deep tree, so its left side is a loop."""
    rest: list[tuple[ast.operator, ast.expr]] = []
    while isinstance(node, ast.BinOp) and not isinstance(node.op, ast.Pow):
        if not isinstance(node.op, _OPERATORS):
            raise _ExpressionError("not arithmetic")
        rest.append((node.op, node.right))
        node = node.left
    value = _value(node, depth + 1)
    for operator, operand in reversed(rest):
        value = _joined(operator, value, _value(operand, depth + 1))
    return value


_OPERATORS: Final = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.BitXor)


def _joined(operator: ast.operator, left: float, right: float) -> float:
    match operator:
        case ast.Add():
            return _bounded(left + right)
        case ast.Sub():
            return _bounded(left - right)
        case ast.Mult():
            return _bounded(left * right)
        case ast.BitXor():
            return _power(left, right)
    if right == 0:
        raise _ExpressionError("division by zero")
    if isinstance(operator, ast.Mod):
        return _bounded(left % right)
    is_whole = isinstance(left, int) and isinstance(right, int) and left % right == 0
    floors = is_whole or isinstance(operator, ast.FloorDiv)
    return _bounded(left // right if floors else left / right)


def _raised(base: float, exponent: ast.expr, depth: int) -> float:
    match exponent:
        case ast.Name(id="_factorial"):
            return _called("factorial", [base])
        case ast.BinOp(op=ast.Pow(), left=ast.Name(id="_factorial"), right=rest):
            return _raised(_called("factorial", [base]), rest, depth)
    return _power(base, _value(exponent, depth))


def _power(base: float, exponent: float) -> float:
    if exponent == 0.5 and base >= 0:
        return math.sqrt(base)
    # Other powers differ in the last digit between platforms' math libraries.
    if not isinstance(exponent, int) or not isinstance(base, int) or exponent < 0:
        raise _ExpressionError("a power must be of whole numbers")
    if abs(base) > 1 and exponent * abs(base).bit_length() > 2 * _MAX_NUMBER.bit_length():
        raise _ExpressionError("number too long")
    return _bounded(base**exponent)


def _called(name: str, arguments: list[float]) -> float:
    if name not in _FUNCTIONS:
        raise _ExpressionError(f"no function {name[:20]}")
    if name == "factorial" and arguments[0] > _MAX_FACTORIAL:
        raise _ExpressionError("number too long")
    if name == "round" and not all(one in range(20) for one in arguments[1:]):
        raise _ExpressionError("round does not take this")
    try:
        return _bounded(_FUNCTIONS[name](*arguments))
    except (TypeError, ValueError, OverflowError):
        raise _ExpressionError(f"{name} does not take this") from None


def _bounded(number: float) -> float:
    if not abs(number) < _MAX_NUMBER:
        raise _ExpressionError("number too long")
    return number
