"""No field of the contract is without a bound: each is filled to its limit, and beyond it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message import Message

from shoal_p2p.intake.validation import Rejected
from shoal_wire.errors import LocalError, ManifestError, RemoteError
from tests.wire.bound_cases import (
    FILES,
    FILLER,
    LIMITS,
    Limit,
    fields_that_grow,
    fill,
    messages_with,
    name_of,
)

REFUSALS = (RemoteError, ManifestError, Rejected, LocalError)
GROWING = {name_of(field): field for file in FILES for field in fields_that_grow(file.DESCRIPTOR)}


def unlimited(names: set[str]) -> set[str]:
    """Return the fields for which no limit is written down, whole or in part."""
    missing = names - LIMITS.keys()
    for name in names & LIMITS.keys() & GROWING.keys():
        field, limit = GROWING[name], LIMITS[name]
        is_text = field.type in (field.TYPE_STRING, field.TYPE_BYTES)
        if (limit.count is not None) != field.is_repeated or (limit.size is not None) != is_text:
            missing.add(name)
    return missing


def test_every_field_that_may_be_long_has_a_limit() -> None:
    assert unlimited(set(GROWING)) == set()
    assert set(LIMITS) == set(GROWING)


def test_a_field_that_is_added_without_a_limit_is_found() -> None:
    for file in FILES:
        made = descriptor_pb2.FileDescriptorProto()
        file.DESCRIPTOR.CopyToProto(made)
        for message in made.message_type:
            number = 1 + max(field.number for field in message.field)
            for name, kind, label in (("agent", 9, 1), ("more", 12, 1), ("many", 13, 3)):
                message.field.add(name=name, number=number, type=kind, label=label)
                number += 1
        pool = descriptor_pool.DescriptorPool()
        for used in file.DESCRIPTOR.dependencies:
            pool.AddSerializedFile(used.serialized_pb)
        changed = pool.AddSerializedFile(made.SerializeToString())
        found = unlimited({name_of(field) for field in fields_that_grow(changed)})
        assert found == {
            f"{message.name}.{name}"
            for message in made.message_type
            for name in ("agent", "more", "many")
        }


def cases() -> Iterator[tuple[str, int | None, int | None, bool]]:
    """Yield each limit by itself: the field, a size or a count, and if that is accepted."""
    for name, limit in LIMITS.items():
        for size, count in _alone(limit):
            if limit.is_free:
                yield name, size, count, True
            beyond = None if size is None else size + limit.step
            yield name, beyond, None if count is None else count + 1, False


def _alone(limit: Limit) -> Iterator[tuple[int | None, int | None]]:
    if limit.size is not None:
        yield limit.size, None
    if limit.count is not None:
        yield None, limit.count


CASES = list(cases())


@pytest.mark.parametrize(("name", "size", "count", "fits"), CASES)
def test_a_field_holds_its_limit_and_no_more(
    name: str, size: int | None, count: int | None, fits: bool
) -> None:
    found = list(messages_with(name))
    assert found, "no sample has this field"
    for read, root, part in found:
        assert is_read(read, root)
        fill(root, part, name, size=size, count=count)
        if fits:
            assert is_read(read, root, most=count, text=size)
        else:
            assert not is_read(read, root, most=count, text=size)


def is_read(
    read: Callable[[bytes], object],
    root: Message,
    *,
    most: int | None = None,
    text: int | None = None,
) -> bool:
    """Return whether a message is accepted with that many items, or that text, in it."""
    try:
        outcome = read(root.SerializeToString(deterministic=True))
    except REFUSALS:
        return False
    if most is not None:
        return any(len(one) == most for one in _values(outcome) if isinstance(one, tuple))
    if text is not None and text >= _LONG:
        return any(_is_filled(one) for one in _values(outcome))
    return True


_LONG = 100
"""From here on a value is known by its filling, for texts that are read without their ending."""


def _is_filled(value: object) -> bool:
    if isinstance(value, str):
        return FILLER * (_LONG // 4) in value
    return isinstance(value, bytes) and FILLER.encode() * (_LONG // 4) in value


def _values(value: Any) -> Iterator[Any]:
    yield value
    if is_dataclass(value):
        for field in fields(value):
            yield from _values(getattr(value, field.name))
    elif isinstance(value, tuple):
        for item in value:
            yield from _values(item)
