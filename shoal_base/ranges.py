"""Ranges and units of settings, stated in the declaration and checked at construction. Pure.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class GapLimits(Ranged):
        grace_seconds: Seconds = 1.5
        max_tries: Annotated[int, Range("tries", 1, 100)] = 5

`GapLimits(max_tries=0)` raises ValueError: "GapLimits.max_tries = 0: must be a whole number from 1
to 100 tries".
"""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

_HINTS: Final[dict[type, dict[str, Any]]] = {}
_KINDS: Final = {int: "be a whole number", float: "be a number"}


@dataclass(frozen=True, slots=True)
class Range:
    """The unit of a number (empty if it has none), with its smallest and largest value; of a text
    or a collection, those of its length.

    A bound is a number, or the name of a field that is declared before this one.
    """

    unit: str
    least: float | str = 0
    most: float | str = 0
    is_open: bool = False
    """True if `least` itself is refused."""

    def has(self, value: Any, kind: Any, owner: object = None) -> bool:
        """Return whether a value is of type `kind` and in the range. `owner` has the fields that
        bounds name."""
        if not _is_a(value, kind):
            return False
        number = len(value) if isinstance(value, Sized) else value
        least, most = _number(self.least, owner), _number(self.most, owner)
        return bool(least < number <= most or (number == least and not self.is_open))

    def rule(self, kind: Any, owner: object = None) -> str:
        """Return what a value of type `kind` must be, as a sentence without its subject."""
        low, high = _shown(self.least, owner), _shown(self.most, owner)
        between = f"above {low}, at most {high}" if self.is_open else f"from {low} to {high}"
        return f"must {_KINDS.get(kind, 'have a length')} {between} {self.unit}".rstrip()


def _number(bound: float | str, owner: object) -> Any:
    return getattr(owner, bound) if isinstance(bound, str) else bound


def _shown(bound: float | str, owner: object) -> str:
    number = f"{_number(bound, owner):,}"
    return f"{bound} ({number})" if isinstance(bound, str) else number


Seconds: TypeAlias = Annotated[float, Range("s", 0, 365 * 86_400, is_open=True)]
SecondsOrZero: TypeAlias = Annotated[float, Range("s", 0, 365 * 86_400)]
Bytes: TypeAlias = Annotated[int, Range("bytes", 1, 1 << 40)]
Share: TypeAlias = Annotated[float, Range("", 0, 1)]


class Ranged:
    """Base class of frozen dataclasses that check their fields when they are made.

    A field whose own type has ranges, such as `Rate`, states a unit: `Annotated[Rate, "bytes"]`.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        """Raise ValueError for the first bad value: one line with field, value, range and unit."""
        for name, hint in hints_of(type(self)).items():
            value = getattr(self, name)
            if fault := _fault(hint, value, self):
                # Bytes may be a key, which is no text for a log.
                shown = f"{len(value)} bytes" if isinstance(value, bytes) else f"{value!r:.80}"
                raise ValueError(f"{type(self).__name__}.{name} = {shown}: {fault}")


def hints_of(of: type) -> dict[str, Any]:
    """Return the types of a class's fields, with their ranges."""
    if of not in _HINTS:
        _HINTS[of] = get_type_hints(of, include_extras=True)
    return _HINTS[of]


def _fault(hint: Any, value: object, owner: object) -> str | None:
    """Return what is wrong with a value of a field; None if it has the type and is in the range."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        kind, note = parts
        if not isinstance(note, Range):
            return _fault(kind, value, owner)
        return None if note.has(value, kind, owner) else note.rule(kind, owner)
    if origin is Union:  # X | None
        return None if value is None else _fault(parts[0], value, owner)
    if origin is Literal:
        return None if value in parts else f"must be one of {', '.join(map(str, parts))}"
    return None if _is_a(value, hint) else f"must be of type {hint.__name__}"


def _is_a(value: object, kind: Any) -> bool:
    """Return whether a value has a type; a switch is no number, and a whole number is a float."""
    if kind in (int, float):
        return isinstance(value, int | kind) and not isinstance(value, bool)
    return isinstance(value, get_origin(kind) or kind)
