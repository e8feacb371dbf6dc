"""Converts frozen dataclasses to and from protobuf messages whose fields have the same names.

Plain values are unchanged, tuples become repeated fields, dataclasses nested messages (absent for
None). Types with another encoding are in the protocol's own table. A class is inspected once, on
first use.

Bounds in a field's `Annotated` type are applied to values that are read; constructing a value
checks nothing. Define a bound with a lambda as an alias above its class: within the annotations of
a class it sees no globals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from google.protobuf.message import Message

from shoal_wire.errors import RemoteError

Value = TypeVar("Value")
Items = TypeVar("Items", bound=Sequence[object])


class OutOfBoundsError(RemoteError):
    """A field that is not within its bounds."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} out of bounds")
        self.what = what


def holding(test: Callable[[Value], bool], what: str) -> Callable[[Value], Value]:
    """Return the bound that `test` is true; otherwise OutOfBoundsError names the field `what`."""

    def bound(value: Value) -> Value:
        if not test(value):
            raise OutOfBoundsError(what)
        return value

    return bound


def within(low: float, high: float, what: str) -> Callable[[float], float]:
    """Return the bound low ≤ value ≤ high."""
    return holding(lambda value: low <= value <= high, what)


def sized(low: int, high: int, what: str) -> Callable[[Items], Items]:
    """Return the bound low ≤ length ≤ high, of bytes, of a text's UTF-8 bytes, or of items."""

    def bound(value: Items) -> Items:
        if not low <= len(value.encode() if isinstance(value, str) else value) <= high:
            raise OutOfBoundsError(what)
        return value

    return bound


def at_most(high: int) -> Callable[[int], int]:
    """Return the bound that reduces larger values to `high`."""
    return lambda value: min(value, high)


Member = TypeVar("Member", bound=Enum)
Convert = Callable[[Any], Any]
_PLAIN = (bool, bytes, float, int, str)


def _as_it_is(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """The conversion of one type's values to the wire and back."""

    write: Convert = _as_it_is
    """Converts a value to an argument of a message's constructor: a dataclass to named fields."""
    read: Convert = _as_it_is
    """Converts a message's value back. Raises RemoteError if the protocol forbids the value."""


def coded(
    codes: Mapping[Member, int | str], *, unknown: str = "", default: Member | None = None
) -> Wire:
    """Return the conversion of an enumeration. An unknown code gives `default`, or, without one, a
    RemoteError with the text `unknown`."""
    members = {code: member for member, code in codes.items()}

    def read(code: int | str) -> Member:
        member = members.get(code, default)
        if member is None:
            raise RemoteError(unknown)
        return member

    return Wire(write=codes.__getitem__, read=read)


class Wires:
    """The conversions of one protocol's types: `special` ones as given, others by their fields."""

    def __init__(self, special: Mapping[Any, Wire] | None = None) -> None:
        self._known: dict[Any, Wire] = dict(special or {})

    def of(self, kind: Any) -> Wire:
        """Return the conversion of a type or an annotation."""
        if kind not in self._known:
            self._known[kind] = self._resolved(kind)
        return self._known[kind]

    def _resolved(self, kind: Any) -> Wire:
        if is_dataclass(kind):
            return self._message(kind)
        if get_origin(kind) is tuple:
            return _repeated(self.of(get_args(kind)[0]))
        if get_origin(kind) is Annotated:
            plain, *bounds = get_args(kind)
            return _bounded(self.of(plain), bounds)
        if (message := _optional(kind)) is not None:
            return _or_none(self.of(message))
        if getattr(kind, "__supertype__", kind) not in _PLAIN:
            raise TypeError(f"no conversion is defined for {kind}")
        return Wire()

    def _message(self, kind: Any) -> Wire:
        hints = get_type_hints(kind, include_extras=True)
        wires = {field.name: self.of(hints[field.name]) for field in fields(kind)}
        writes = [(name, _unless_as_it_is(wire.write)) for name, wire in wires.items()]
        reads = [(name, _unless_as_it_is(wire.read)) for name, wire in wires.items()]
        optional = frozenset(name for name in wires if _optional(hints[name]) is not None)

        def write(value: Any) -> dict[str, Any]:
            return {
                name: convert(getattr(value, name)) if convert else getattr(value, name)
                for name, convert in writes
            }

        def read(message: Message) -> Any:
            return kind(
                **{
                    name: convert(getattr(message, name)) if convert else getattr(message, name)
                    for name, convert in reads
                    if name not in optional or message.HasField(name)
                }
            )

        return Wire(write=write, read=read)


def _optional(kind: Any) -> Any:
    """Return the dataclass `D` if `kind` is ``D | None``; otherwise None."""
    first, *rest = get_args(kind) or (None,)
    return first if is_dataclass(first) and rest == [NoneType] else None


def _or_none(wire: Wire) -> Wire:
    return Wire(write=lambda value: None if value is None else wire.write(value), read=wire.read)


def _unless_as_it_is(convert: Convert) -> Convert | None:
    return None if convert is _as_it_is else convert


def _bounded(wire: Wire, bounds: Sequence[Convert]) -> Wire:
    inner = _unless_as_it_is(wire.read)

    def read(raw: Any) -> Any:
        for bound in bounds:
            raw = bound(raw)
        return inner(raw) if inner else raw

    return Wire(write=wire.write, read=bounds[0] if len(bounds) == 1 and not inner else read)


def _repeated(wire: Wire) -> Wire:
    write, read = wire.write, wire.read
    return Wire(
        write=write if write is _as_it_is else lambda values: [*map(write, values)],
        read=tuple if read is _as_it_is else lambda values: tuple(map(read, values)),
    )
