"""Reads arithmetic written as in Python, without evaluating it: what some scorers hand to sympy.

    text ──tokens──> recursive descent ──> tree ──evaluate(tree, algebra)──> value

The tree is data. What an operation means, and how large a number may get, is up to the algebra
that walks it. Size and nesting are bounded here. Pure; nothing of `ast`, `eval` or sympy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

V = TypeVar("V")

MAX_TOKENS: Final = 2000
MAX_DEPTH: Final = 40
"""Deepest nesting of brackets, signs and powers; answers have under ten levels."""

MAX_DIGITS: Final = 200
"""Longest number, in characters."""

_DECIMAL: Final = r"(?:0(?:_?0)*(?![0-9_])|[1-9](?:_?[0-9])*)"
_DIGITS: Final = r"[0-9](?:_?[0-9])*"
_TOKEN: Final = re.compile(
    rf"""[ \t\f]*(?:
        (?P<float>(?:{_DIGITS}\.(?:{_DIGITS})?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?
                 |{_DIGITS}[eE][+-]?{_DIGITS})
      | (?P<integer>{_DECIMAL})
      | (?P<name>[A-Za-z_][A-Za-z_0-9]*)
      | (?P<mark>\*\*|//|[-+*/%^(),!])
      | (?P<newline>\r?\n)
      | (?P<comment>\#[^\n]*)
      | (?P<end>\Z)
    )""",
    re.VERBOSE,
)


class ExpressionError(ValueError):
    """The text is no expression of the kind read here, or one too large or undefined."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number as written."""

    text: str
    is_float: bool


@dataclass(frozen=True, slots=True)
class Name:
    """A variable or a constant."""

    name: str


@dataclass(frozen=True, slots=True)
class Negative:
    """An operand with a minus before it."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Chain:
    """Operands joined from left to right by operators of one rank."""

    first: Node
    rest: tuple[tuple[str, Node], ...]


@dataclass(frozen=True, slots=True)
class Power:
    """A base and its exponent."""

    base: Node
    exponent: Node


@dataclass(frozen=True, slots=True)
class Call:
    """A function by name, with its arguments. A factorial sign is a call of ``factorial``."""

    name: str
    arguments: tuple[Node, ...]


Node = Number | Name | Negative | Chain | Power | Call


class Algebra(Protocol[V]):
    """What the parts of an expression mean. Each method may raise `ExpressionError`."""

    def number(self, number: Number) -> V:
        """A number's value."""

    def name(self, name: str) -> V:
        """A name's value."""

    def negative(self, value: V) -> V:
        """The value with the other sign."""

    def join(self, operator: str, left: V, right: V) -> V:
        """One of ``+ - * / // % ^``."""

    def power(self, base: V, exponent: V) -> V:
        """The base to the exponent."""

    def call(self, name: str, arguments: list[V]) -> V:
        """A function's value."""


def parse_expression(text: str) -> Node:
    """Read an expression. Raises `ExpressionError`. Time is linear in the text."""
    parser = _Parser(_tokens(text.strip()))
    node = parser.expression(0)
    if parser.kind != "end":
        raise ExpressionError("more than one expression")
    return node


def evaluate(node: Node, algebra: Algebra[V]) -> V:
    """The expression's value. Raises what the algebra raises. The parser bounds the recursion."""
    if isinstance(node, Number):
        return algebra.number(node)
    if isinstance(node, Name):
        return algebra.name(node.name)
    if isinstance(node, Negative):
        return algebra.negative(evaluate(node.operand, algebra))
    if isinstance(node, Power):
        return algebra.power(evaluate(node.base, algebra), evaluate(node.exponent, algebra))
    if isinstance(node, Call):
        return algebra.call(node.name, [evaluate(part, algebra) for part in node.arguments])
    value = evaluate(node.first, algebra)
    for operator, operand in node.rest:
        value = algebra.join(operator, value, evaluate(operand, algebra))
    return value


def _tokens(text: str) -> list[tuple[str, str]]:
    """Kind and text of each token. A line may end only inside brackets, as in Python."""
    tokens: list[tuple[str, str]] = []
    position = brackets = 0
    while not tokens or tokens[-1][0] != "end":
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise ExpressionError(f"unreadable at character {position}")
        kind, token = match.lastgroup, match[match.lastgroup]
        position = match.end()
        brackets += (token == "(") - (token == ")")
        if kind == "newline" and brackets <= 0:
            raise ExpressionError("more than one line")
        if kind not in ("newline", "comment"):
            tokens.append((kind, token))
        is_number = kind in ("integer", "float")
        if len(tokens) > MAX_TOKENS or (is_number and len(token) > MAX_DIGITS):
            raise ExpressionError("too long")
    return tokens


class _Parser:
    """Recursive descent by Python's ranks: ``^``, ``+ -``, ``* / // %``, sign, ``**``, ``!``."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._next = 0

    @property
    def kind(self) -> str:
        return self._tokens[self._next][0]

    def _mark(self, *marks: str) -> str | None:
        """The next token where it is one of these marks, which is then consumed."""
        kind, token = self._tokens[self._next]
        if kind != "mark" or token not in marks:
            return None
        self._next += 1
        return token

    def expression(self, depth: int) -> Node:
        return self._chain(0, depth)

    def _chain(self, rank: int, depth: int) -> Node:
        if rank == len(_RANKS):
            return self._signed(depth)
        first = self._chain(rank + 1, depth)
        rest: list[tuple[str, Node]] = []
        while operator := self._mark(*_RANKS[rank]):
            rest.append((operator, self._chain(rank + 1, depth)))
        return Chain(first, tuple(rest)) if rest else first

    def _signed(self, depth: int) -> Node:
        negative = signed = False
        while sign := self._mark("+", "-"):
            negative, signed = negative != (sign == "-"), True
        node = self._power(_deeper(depth) if signed else depth)
        return Negative(node) if negative else node

    def _power(self, depth: int) -> Node:
        base = self._atom(depth)
        while self._mark("!"):
            base = Call("factorial", (base,))
        if self._mark("**"):
            return Power(base, self._signed(_deeper(depth)))
        return base

    def _atom(self, depth: int) -> Node:
        kind, token = self._tokens[self._next]
        if kind in ("integer", "float"):
            self._next += 1
            return Number(token, is_float=kind == "float")
        if kind == "name":
            self._next += 1
            return Call(token, self._arguments(depth)) if self._mark("(") else Name(token)
        if self._mark("("):
            node = self.expression(_deeper(depth))
            self._close()
            return node
        raise ExpressionError("an operand is missing")

    def _arguments(self, depth: int) -> tuple[Node, ...]:
        arguments = [self.expression(_deeper(depth))]
        while self._mark(","):
            arguments.append(self.expression(_deeper(depth)))
        self._close()
        return tuple(arguments)

    def _close(self) -> None:
        if not self._mark(")"):
            raise ExpressionError("a bracket is not closed")


_RANKS: Final = (("^",), ("+", "-"), ("*", "/", "//", "%"))


def _deeper(depth: int) -> int:
    if depth >= MAX_DEPTH:
        raise ExpressionError("nested too deeply")
    return depth + 1
