"""Other bytes for an honest envelope, made without the key: its fields written in
every way that protobuf's grammar lets a reader take for the same message, and a few others.

A spelling is a list of fields with their encodings; `spelled` gives its bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

VARINT, FIXED64, LENGTH, GROUP, END_GROUP, FIXED32 = range(6)
_MAX_FIELD = 2**29 - 1
_ENVELOPE_FIELDS = (1, 2, 3, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field as it is written."""

    number: int
    wire_type: int
    value: bytes
    """What follows the tag: of a LENGTH the bytes without their length, of a group its inside."""
    tag_padding: int = 0
    """Bytes by which the tag's varint is longer than it need be."""
    length_padding: int = 0


def varint(value: int, padding: int = 0) -> bytes:
    """Return a varint with `padding` bytes that add nothing to it."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    if padding:
        encoded[-1] |= 0x80
        encoded += b"\x80" * (padding - 1) + b"\x00"
    return bytes(encoded)


def fields_of(envelope: bytes) -> list[Field]:
    """Return the fields of an envelope as it was sealed: all of them LENGTH, tags of one byte."""
    found, at = [], 0
    while at < len(envelope):
        number, wire_type = envelope[at] >> 3, envelope[at] & 7
        assert wire_type == LENGTH
        at, size, shift = at + 1, 0, 0
        while True:
            byte = envelope[at]
            size |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                break
        found.append(Field(number=number, wire_type=LENGTH, value=envelope[at : at + size]))
        at += size
    return found


def other_spellings(envelope: bytes) -> dict[str, bytes]:
    """Return one of each kind by name, all with the same four values for protobuf."""
    key, kind, payload, signature = fields = fields_of(envelope)
    unknown = Field(number=9, wire_type=LENGTH, value=b"x")
    spellings = {
        "unknown field at the end": [*fields, unknown],
        "unknown field at the start": [replace(unknown, wire_type=VARINT, value=b"\x01"), *fields],
        "unknown group": [replace(unknown, wire_type=GROUP, value=b""), *fields],
        "field twice": [key, key, kind, payload, signature],
        "field empty, then as it is": [replace(payload, value=b""), *fields],
        "fields in another order": [signature, payload, kind, key],
        "length longer than it need be": [replace(key, length_padding=1), kind, payload, signature],
        "tag longer than it need be": [key, kind, payload, replace(signature, tag_padding=1)],
    }
    return {name: spelled(spelling) for name, spelling in spellings.items()}


def spelled(fields: Sequence[Field]) -> bytes:
    """Return the bytes of these fields."""
    return b"".join(map(_spelled, fields))


def _spelled(field: Field) -> bytes:
    def tag(wire_type: int) -> bytes:
        return varint(field.number << 3 | wire_type, field.tag_padding)

    match field.wire_type:
        case 2:
            length = varint(len(field.value), field.length_padding)
            return tag(LENGTH) + length + field.value
        case 3:
            return tag(GROUP) + field.value + tag(END_GROUP)
        case other:
            return tag(other) + field.value


def _value_of(wire_type: int) -> st.SearchStrategy[bytes]:
    match wire_type:
        case 0:
            return st.builds(varint, st.integers(0, 2**64 - 1))
        case 1:
            return st.binary(min_size=8, max_size=8)
        case 5:
            return st.binary(min_size=4, max_size=4)
        case 3:
            return st.lists(_unknown_fields(nested=True), max_size=2).map(spelled)
        case _:
            return st.binary(max_size=40)


@st.composite
def _unknown_fields(draw: st.DrawFn, nested: bool = False) -> Field:
    """A field that an Envelope does not have, or one that it has in another wire type."""
    number = draw(st.sampled_from([4, 6, 9, 15, 16, 2000, _MAX_FIELD]) | st.integers(1, _MAX_FIELD))
    kinds = [VARINT, FIXED64, FIXED32, LENGTH, *([] if nested else [GROUP])]
    if number in _ENVELOPE_FIELDS and not nested:
        kinds.remove(LENGTH)
    wire_type = draw(st.sampled_from(kinds))
    return Field(number=number, wire_type=wire_type, value=draw(_value_of(wire_type)))


def _insert_unknown(draw: st.DrawFn, fields: list[Field]) -> None:
    fields.insert(draw(st.integers(0, len(fields))), draw(_unknown_fields()))


def _repeat(draw: st.DrawFn, fields: list[Field]) -> None:
    """Say a field twice, the last time as it was."""
    at = draw(st.integers(0, len(fields) - 1))
    copied = fields[at]
    if draw(st.booleans()):
        copied = replace(copied, value=draw(st.just(b"") | st.binary(max_size=70)))
    fields.insert(draw(st.integers(0, at)), copied)


def _move(draw: st.DrawFn, fields: list[Field]) -> None:
    fields.insert(draw(st.integers(0, len(fields) - 1)), fields.pop())


def _pad(draw: st.DrawFn, fields: list[Field]) -> None:
    at = draw(st.integers(0, len(fields) - 1))
    name = draw(st.sampled_from(["tag_padding", "length_padding"]))
    padding: dict[str, Any] = {name: draw(st.integers(1, 4))}
    fields[at] = replace(fields[at], **padding)


def _drop(draw: st.DrawFn, fields: list[Field]) -> None:
    del fields[draw(st.integers(0, len(fields) - 1))]


def _change(draw: st.DrawFn, fields: list[Field]) -> None:
    """Say something else in a field: no spelling of the same, so its signature breaks."""
    at = draw(st.integers(0, len(fields) - 1))
    value = bytearray(fields[at].value)
    begin = draw(st.integers(0, len(value)))
    value[begin : begin + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    fields[at] = replace(fields[at], value=bytes(value))


_SPELLINGS = (_insert_unknown, _repeat, _move, _pad)
"""These leave what a lenient reader makes of it as it is, most of the time."""


@st.composite
def respelled(draw: st.DrawFn, envelope: bytes) -> bytes:
    """Other bytes that a lenient reader takes for the same envelope, most of the time."""
    fields = fields_of(envelope)
    for _ in range(draw(st.integers(1, 4))):
        draw(st.sampled_from(_SPELLINGS))(draw, fields)
    raw = spelled(fields)
    if draw(st.integers(0, 9)) == 0:
        raw += draw(st.binary(min_size=1, max_size=4))
    return raw


@st.composite
def mutated(draw: st.DrawFn, envelope: bytes) -> bytes:
    """Any other bytes than the envelope's: other spellings, fewer fields, other values, damage."""
    fields = fields_of(envelope)
    for _ in range(draw(st.integers(1, 4))):
        if fields:
            draw(st.sampled_from((*_SPELLINGS, _drop, _change)))(draw, fields)
    raw = bytearray(spelled(fields))
    if draw(st.booleans()):
        at = draw(st.integers(0, len(raw)))
        raw[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(raw)
