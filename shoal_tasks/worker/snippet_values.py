"""Values of `snippets`: the operations on numbers, texts, lists and dictionaries. Pure.

Each operation is bounded in size and time, and gives the same result on every machine.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

MAX_SIZE: Final = 1000
"""Maximum number of items or characters of one value."""
_MAX_BITS: Final = 3000
"""Maximum bits of an integer: about 900 digits."""
_MAX_TUPLE: Final = 8
"""Maximum length of a tuple inside another value."""
UNREADABLE: Final = "this is not Python as it is known here"
"""The error for everything that cannot be run, whether or not this Python version parses it."""


class SnippetError(Exception):
    """The program failed; the message is shown to the model."""


OPERATORS: Final[Mapping[type[ast.AST], Callable[..., Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.RShift: operator.rshift,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, items: item in _searched(items),
    ast.NotIn: lambda item, items: item not in _searched(items),
    ast.Is: lambda item, other: item is None if other is None else item == other,
    ast.IsNot: lambda item, other: item is not None if other is None else item != other,
}
METHODS: Final[Mapping[type, frozenset[str]]] = {
    str: frozenset(
        [
            "count",
            "endswith",
            "find",
            "isalpha",
            "isdigit",
            "join",
            "lower",
            "replace",
            "split",
            "startswith",
            "strip",
            "upper",
        ]
    ),
    list: frozenset(
        ["append", "copy", "count", "extend", "index", "insert", "pop", "remove", "reverse", "sort"]
    ),
    dict: frozenset(["get", "items", "keys", "pop", "setdefault", "values"]),
    tuple: frozenset(("count", "index")),
}
CONSTANTS: Final[Mapping[str, Any]] = {"pi": math.pi, "inf": math.inf}


def _power(base: Any, exponent: Any, modulus: Any = None) -> Any:
    whole = isinstance(base, int) and isinstance(exponent, int) and exponent >= 0
    if not whole or not isinstance(modulus, int | None):
        # Other powers differ in the last digit between platforms' math libraries.
        raise SnippetError("a power must be of whole numbers")
    if modulus is None and abs(base) > 1 and exponent * abs(base).bit_length() > _MAX_BITS:
        raise SnippetError("number too long")
    return pow(base, exponent, modulus)


def _product(left: Any, right: Any) -> Any:
    for items, times in ((left, right), (right, left)):
        is_repeated = isinstance(items, str | list | tuple) and isinstance(times, int)
        if is_repeated and len(items) * times > MAX_SIZE:
            raise SnippetError("value too large")
    return left * right


def _remainder(left: Any, right: Any) -> Any:
    if isinstance(left, str):  # a format string, whose width is unbounded
        raise SnippetError("% is of numbers here")
    return left % right


def _shift(left: Any, right: Any) -> Any:
    if not isinstance(right, int) or right > _MAX_BITS:
        raise SnippetError("number too long")
    return left << right


def _searched(items: Any) -> Any:
    if not isinstance(items, str | list | tuple | dict):  # a range may be endless
        raise SnippetError("not a sequence")
    return items


def _scalar(item: Any) -> Any:
    if not isinstance(item, str | int | float | None):
        raise SnippetError("a value within another is a number or a text here")
    return item


def check_element(item: Any) -> Any:
    """Return `item` if a value may contain it. Shared nested lists could grow without bound."""
    if isinstance(item, tuple) and len(item) <= _MAX_TUPLE:
        return tuple(map(_scalar, item))
    return _scalar(item)


def bounded_list(items: Any) -> list[Any]:
    if not isinstance(items, str | list | tuple | dict | range | Iterator):
        raise SnippetError("not a sequence")
    found = list(islice(items, MAX_SIZE + 1))
    if len(found) > MAX_SIZE:
        raise SnippetError("value too large")
    return found


def _total(items: list[Any]) -> Any:
    """Add one by one: the result of Python's own float sum depends on its version."""
    total: Any = 0
    for item in items:
        if not isinstance(item, int | float):
            raise SnippetError("sum of numbers alone")
        total += item
    return total


def _of_numbers(
    name: str, function: Callable[..., Any], count: int, most: int
) -> Callable[..., Any]:
    """Wrap a function of `count` integers, the first of them from 0 to `most`."""

    def bounded(*given: Any) -> Any:
        if len(given) != count:
            raise TypeError
        if not all(isinstance(one, int) for one in given) or not 0 <= given[0] <= most:
            raise SnippetError(f"{name} of 0 to {most} alone")
        return function(*given)

    return bounded


def text_of(value: Any = "") -> str:
    if isinstance(value, str | int | float | list | tuple | dict | range | None):
        return str(value)
    return "<function>"


def _rounded(value: Any, digits: Any = None) -> Any:
    if digits is not None and (not isinstance(digits, int) or abs(digits) > 20):
        raise SnippetError("round to at most 20 digits")
    return round(value, digits)


def _whole(value: Any = 0, base: Any = None) -> int:
    if isinstance(value, str) and len(value) > 1000:
        raise SnippetError("number too long")
    return int(value) if base is None else int(value, base)


FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "abs": abs,
    "all": lambda items: all(bounded_list(items)),
    "any": lambda items: any(bounded_list(items)),
    "bool": bool,
    "ceil": math.ceil,
    "chr": _of_numbers("chr", chr, 1, 127),
    "comb": _of_numbers("comb", math.comb, 2, 2000),
    "divmod": divmod,
    "enumerate": lambda items, start=0: [
        (n, _scalar(i)) for n, i in enumerate(bounded_list(items), start)
    ],
    "factorial": _of_numbers("factorial", math.factorial, 1, 400),
    "float": float,
    "floor": math.floor,
    "gcd": math.gcd,
    "int": _whole,
    "isqrt": math.isqrt,
    "len": len,
    "list": lambda items=(): bounded_list(items),
    "max": lambda *items: max(*(items if len(items) > 1 else (bounded_list(*items),))),
    "min": lambda *items: min(*(items if len(items) > 1 else (bounded_list(*items),))),
    "ord": ord,
    "pow": _power,
    "range": range,
    "reversed": lambda items: bounded_list(items)[::-1],
    "round": _rounded,
    "sorted": lambda items, reverse=False: sorted(bounded_list(items), reverse=reverse),
    "sqrt": math.sqrt,
    "str": text_of,
    "sum": lambda items: _total(bounded_list(items)),
    "tuple": lambda items=(): tuple(bounded_list(items)),
    "zip": lambda *rows: [
        check_element(one) for one in zip(*map(bounded_list, rows), strict=False)
    ],
}
"""Functions that a program may call. They return only numbers, texts, lists and dictionaries."""


def apply_operator(op: ast.operator, left: Any, right: Any) -> Any:
    match op:
        case ast.Pow():
            return _power(left, right)
        case ast.Mult():
            return _product(left, right)
        case ast.Mod():
            return _remainder(left, right)
        case ast.LShift():
            return _shift(left, right)
    if type(op) not in OPERATORS:
        raise SnippetError(UNREADABLE)
    return OPERATORS[type(op)](left, right)


def call_method(value: Any, name: str, given: list[Any]) -> Any:
    if name == "replace" and len(value) * max(len(str(one)) for one in given) > MAX_SIZE * 10:
        raise SnippetError("value too large")
    if name in ("join", "extend"):
        given = [bounded_list(one) for one in given]
        if name == "join" and len(value) * len(given[0]) > MAX_SIZE:
            raise SnippetError("value too large")
    elif name in ("append", "insert", "setdefault"):
        given = [check_element(one) for one in given]
    found = getattr(value, name)(*given)
    check_size(value)
    return list(found) if name in ("items", "keys", "values") else found


def check_size(value: Any) -> Any:
    if isinstance(value, str | list | tuple | dict) and len(value) > MAX_SIZE:
        raise SnippetError("value too large")
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise SnippetError("number too long")
    return value
