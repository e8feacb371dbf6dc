"""Bounds of received values, in the `Annotated` types of a message's fields.

Constructing a value checks nothing: `shoal_wire.fields` applies the bounds to values it reads.
Define a bound with a lambda as an alias above its class: within the annotations of a class it sees
no globals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

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

    def fits(value: Items) -> bool:
        return low <= len(value.encode() if isinstance(value, str) else value) <= high

    return holding(fits, what)


def at_most(high: int) -> Callable[[int], int]:
    """Return the bound that reduces larger values to `high`."""
    return lambda value: min(value, high)
