"""Hypothesis strategies of every value of the contract that encodes: by its fields and bounds."""

from __future__ import annotations

import struct
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from shoal_wire import digests
from shoal_wire.fields import OutOfBoundsError
from shoal_wire.judge_messages import SealedRecord
from shoal_wire.types import PeerId, PublishedGroup, RolloutBatch, RolloutGroup

# Surrogates cannot be encoded as UTF-8; everything else may travel, NUL included.
texts = st.text(st.characters(codec="utf-8"), max_size=20)
numbers = st.integers(0, 300) | st.integers(0, 2**32 - 1)
halves = st.integers(0, 2**16 - 1).map(
    lambda bits: struct.unpack("<e", bits.to_bytes(2, "little"))[0]
)
finite_halves = halves.filter(lambda value: abs(value) <= 65504.0)
_PEER = PeerId("12D3KooWQK1wnefoLrcVHbbnf5tLzbopUd3K3bFAoJpA7YJgL5pV")
_PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: numbers,
    float: st.floats(0, 1, width=32) | st.floats(width=32, allow_nan=False),
    bytes: st.binary(max_size=20),
    str: texts | st.just(_PEER),
}

_OPTIONAL: dict[Any, st.SearchStrategy[Any]] = {
    # An empty one of these is none on the wire.
    tuple[float, ...] | None: st.lists(finite_halves, min_size=1, max_size=4).map(tuple),
    PeerId | None: st.just(_PEER),
}
_BOUNDED: dict[Any, tuple[Any, st.SearchStrategy[Any]]] = {
    float: (2.0, st.floats(0, 1, width=32)),
    str: ("unknown", st.just(_PEER)),
}
"""A value that a bound may rule out, and what is drawn then: else most of a record is filtered."""


@cache
def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Return the values of a type that travel, within the bounds written next to its fields."""
    if kind in _OPTIONAL:
        return st.none() | _OPTIONAL[kind]
    if kind is SealedRecord:
        return _built(kind, envelope=st.binary(min_size=1, max_size=60))
    if kind is PublishedGroup:
        return published_groups()
    if is_dataclass(kind):
        return _built(kind)
    inside = get_args(kind)
    if get_origin(kind) is Annotated and _plain(inside[0]) is bytes:
        sizes = [size for size in (0, 1, 16, 20, 32) if _is_within(bytes(size), inside[1:])]
        return st.one_of(*(st.binary(min_size=size, max_size=size) for size in sizes))
    if get_origin(kind) is Annotated:
        ruled_out, drawn = _BOUNDED.get(_plain(inside[0]), (None, None))
        if drawn is None or _is_within(ruled_out, inside[1:]):
            drawn = values_of(inside[0])
        return drawn.filter(lambda value: _is_within(value, inside[1:]))
    if get_origin(kind) is tuple:
        return st.lists(values_of(inside[0]), max_size=3).map(tuple)
    if inside:
        return st.one_of(*(st.none() if one is type(None) else values_of(one) for one in inside))
    return _PLAIN[_plain(kind)] if not issubclass(_plain(kind), Enum) else st.sampled_from(kind)


def _plain(kind: Any) -> Any:
    """Return the type that a new name stands for."""
    return getattr(kind, "__supertype__", kind)


def _built(kind: Any, **known: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind, include_extras=True)
    unknown = (one.name for one in fields(kind) if one.name not in known)
    return st.builds(kind, **known, **{name: values_of(hints[name]) for name in unknown})


def _is_within(value: Any, bounds: tuple[Any, ...]) -> bool:
    try:
        return all(bound(value) == value for bound in bounds)
    except OutOfBoundsError:
        return False


@st.composite
def published_groups(draw: st.DrawFn) -> PublishedGroup:
    """A group under its true id, which decoding checks."""
    group = draw(groups)
    name = digests.group_id(group)
    return draw(_built(PublishedGroup, group=st.just(group), group_id=st.just(name)))


groups: st.SearchStrategy[RolloutGroup] = values_of(RolloutGroup)
batches = _built(RolloutBatch, swarm_digest=st.binary(min_size=32, max_size=32))


@st.composite
def damaged(draw: st.DrawFn, originals: list[bytes]) -> bytes:
    """Valid bytes with a few of them replaced, inserted or removed: most still nearly parse."""
    data = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(0, max(0, len(data) - 1)))
        removed = draw(st.integers(0, 3))
        data[position : position + removed] = draw(st.binary(max_size=3))
    return bytes(data)


def hostile(*originals: bytes) -> st.SearchStrategy[bytes]:
    return st.binary(max_size=200) | damaged(list(originals))
