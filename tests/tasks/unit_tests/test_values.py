"""Values between processes: equal copies of exact types, with any references among them."""

from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_tasks.unit_tests.values import Decoder, Encoder, Handle, ValueRefusedError

Point = namedtuple("Point", "x y")


class Color(IntEnum):
    RED = 1


class Shape:
    def __init__(self, sides: int) -> None:
        self.sides, self.itself = sides, self


def no_export(value: Any) -> list[Any]:
    raise ValueRefusedError(type(value).__name__)


def copied(*values: Any, shared: dict[str, type] | None = None) -> list[Any]:
    table = json.loads(json.dumps(Encoder(no_export, shared).table(values)))
    return Decoder(table, lambda node: pytest.fail(str(node)), shared).values()


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(2**60, 2**70)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
    | st.decimals(allow_nan=False)
    | st.fractions()
    | st.datetimes()
    | st.timedeltas()
)
KEYS = st.recursive(
    SCALARS, lambda inner: st.tuples(inner, inner) | st.frozensets(inner), max_leaves=5
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(KEYS, inner)
        | st.sets(KEYS)
        | st.lists(inner).map(deque)
    ),
    max_leaves=20,
)


@pytest.mark.slow
@given(VALUES)
def test_a_copy_is_equal_and_of_the_same_type(value: Any) -> None:
    (found,) = copied(value)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "value",
    [
        10**4000, -(10**400), float("inf"), "\ud800", "\0", bytearray(b"x"), range(1, 10, 3), ...,
        Counter("aab"), OrderedDict(a=1), defaultdict(list, {1: [2]}), deque([1], 3),
        date(2020, 1, 2),
        time(1, 2), datetime(2020, 1, 2, 3, 4, 5, 6), timedelta(days=-1), Decimal("1.10"),
        Fraction(1, 3), int, ValueError, {1: 2}.keys(), {1: 2}.items(), Point(1, [2]), (), [[]],
        {()},
    ],
)  # fmt: skip
def test_values_of_the_library_are_copied(value: Any) -> None:
    (found,) = copied(value)
    assert found == value
    assert repr(found) == repr(value)


def test_arrays_and_their_numbers_are_copied() -> None:
    for value in (np.arange(6.0).reshape(2, 3), np.array(["a", "bc"]), np.zeros((0, 2), int)):
        (found,) = copied(value)
        assert found.dtype == value.dtype
        assert np.array_equal(found, value)
    (number,) = copied(np.float32(0.1))
    assert type(number) is np.float32
    assert number == np.float32(0.1)
    assert math.isnan(copied(float("nan"))[0])


@pytest.mark.parametrize("kind", [int, float, str, bytes, list, tuple, dict, set, frozenset])
def test_a_subclass_arrives_as_its_base(kind: type) -> None:
    made = type("Sub", (kind,), {"__eq__": lambda *_: True, "__hash__": lambda _: 0})()
    (found,) = copied(made)
    assert type(found) is kind
    assert found == kind()
    assert type(copied(Color.RED)[0]) is int


def test_depth_cycles_and_shared_parts_are_kept() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    (found,) = copied(deep)
    for _ in range(100_000):
        (found,) = found
    assert found == []
    loop: list[Any] = [1]
    loop.append(loop)
    (again,) = copied(loop)
    assert again[1] is again
    one: list[int] = []
    left, right = copied(one, {"same": one})
    assert right["same"] is left


def test_objects_of_a_shared_class_are_copied() -> None:
    (found,) = copied(Shape(3), shared={"Shape": Shape})
    assert type(found) is Shape
    assert (found.sides, found.itself) == (3, found)
    with pytest.raises(ValueRefusedError):
        copied(Shape(3))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from(["list", "dict", "tuple", "int", "array", "text", "type", "mine", "object"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("nrv"), inner),
    max_leaves=30,
)  # fmt: skip


@settings(max_examples=300)
@given(
    st.fixed_dictionaries({"n": st.lists(JSON, max_size=6), "r": st.lists(JSON, max_size=3)}) | JSON
)
def test_what_is_no_table_is_refused_and_nothing_else_happens(table: Any) -> None:
    try:
        Decoder(table, lambda node: Handle(0, "x", str(node)), {"Shape": Shape}).values()
    except ValueRefusedError:
        pass
    except MemoryError:
        pytest.fail("a small table is large")
