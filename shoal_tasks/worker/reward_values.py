"""Parses the return value of a reward function: a number or None per completion. Pure."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

_ADVICE = "return a list with one number for each completion"
_SHOWN_CHARS = 60


class SingleNumberError(ValueError):
    """The function returned one number for several completions: it scores a single completion."""


def read_values(returned: Any, count: int) -> list[float | None]:
    """Return the rewards of `count` completions; None where the function gives none.

    As in TRL, None and NaN mean no reward. Whatever `float` converts counts as a number: bool,
    Decimal, Fraction, numpy's scalars, and tensors without dimensions.

    Raises ValueError with one line that says what was returned and what to return.
    """
    is_one_thing = isinstance(returned, str | bytes | bytearray | Mapping | Set)
    if is_one_thing or not isinstance(returned, Iterable) or _dimensions(returned) not in (None, 1):
        raise ValueError(f"it returned {_shown(returned)}: {_ADVICE}")
    values = list(returned)
    if len(values) == 1 < count:
        raise SingleNumberError(f"it returned 1 number for {count} completions: {_ADVICE}")
    if len(values) != count:
        raise ValueError(f"it returned {len(values)} numbers for {count} completions: {_ADVICE}")
    return [None if value is None else _number(value) for value in values]


def weighted_sum(values: Sequence[float | None], weights: Sequence[float]) -> float:
    """Return the weighted sum of several functions' rewards for one completion.

    As in TRL, functions that give None do not count. If all do, the sum is 0.
    """
    pairs = zip(values, weights, strict=True)
    return math.fsum(weight * value for value, weight in pairs if value is not None)


def range_hint(values: Iterable[float], bounds: Sequence[float]) -> str:
    """Return a clause that names the values outside `bounds` and proposes a wider range.

    It is empty if all values are inside.
    """
    low, high = bounds
    beyond = {value for value in values if not low <= value <= high}
    if not beyond:
        return ""
    extremes = [max(beyond), min(beyond)] if len(beyond) > 1 else list(beyond)
    named = " and ".join(f"{value:g}" for value in extremes)
    wide = f"[{_plain(_rounded(min(low, *beyond), math.floor))}, "
    wide += f"{_plain(_rounded(max(high, *beyond), math.ceil))}]"
    return (
        f"returned {named}, outside reward_range [{_plain(low)}, {_plain(high)}]: "
        f"write reward_range = {wide}"
    )


def _number(value: Any) -> float | None:
    is_real = not isinstance(value, numbers.Complex) or isinstance(value, numbers.Real)
    is_text = isinstance(value, str | bytes | bytearray)
    if is_text or not is_real or _dimensions(value) or not _converts(value):
        raise ValueError(f"it returned {_shown(value)} for a completion: {_ADVICE}")
    try:
        number = float(value)
    except (TypeError, ValueError, ArithmeticError):
        raise ValueError(f"it returned {_shown(value)} for a completion: {_ADVICE}") from None
    if math.isinf(number):
        raise ValueError(f"it returned {number} for a completion: a reward is a finite number")
    return None if math.isnan(number) else number


def _converts(value: Any) -> bool:
    return hasattr(type(value), "__float__") or hasattr(type(value), "__index__")


def _dimensions(value: Any) -> int | None:
    """Return the number of dimensions of an array or tensor; None for any other value."""
    found = getattr(value, "ndim", None)
    return found if isinstance(found, int) else None


def _shown(value: Any) -> str:
    text = repr(value).replace("\n", " ")
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def _rounded(number: float, towards: Callable[[float], int]) -> float:
    """Round outwards to at most two decimals."""
    return towards(number * 100) / 100 if abs(number) < 1e12 else number


def _plain(number: float) -> str:
    """Format a number as in a task file, such that parsing it gives the same number."""
    return str(int(number)) if float(number).is_integer() else repr(float(number))
