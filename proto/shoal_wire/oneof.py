"""Messages with one of several bodies: the requests, or the replies, of a protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar, get_args

from google.protobuf.message import DecodeError, Message

from shoal_wire.errors import RemoteError
from shoal_wire.fields import Wires

Body = TypeVar("Body")


class OneOf(Generic[Body]):
    """A message with one of several bodies, each in the field of its class's message.

    `bodies` is the union of the classes, each named like its message; `bare` maps a class without
    a message to its field. `name` and `empty` are texts for errors.
    """

    def __init__(
        self,
        message: type[Message],
        bodies: Any,
        wires: Wires,
        *,
        bare: Mapping[type, str] | None = None,
        name: str,
        empty: str,
    ) -> None:
        (oneof,) = message.DESCRIPTOR.oneofs
        named = {
            field.message_type.name: field.name for field in oneof.fields if field.message_type
        }
        fields = {kind: (bare or {}).get(kind) or named[kind.__name__] for kind in get_args(bodies)}
        self._oneof = oneof.name
        self._message = message
        self._name, self._empty = name, empty
        self._writes = {kind: (field, wires.of(kind).write) for kind, field in fields.items()}
        self._reads = {field: wires.of(kind).read for kind, field in fields.items()}

    def encode(self, body: Body, **other_fields: Any) -> bytes:
        """Return the bytes of the message with `body` and its other fields."""
        field, write = self._writes[type(body)]
        return self._message(**{field: write(body)}, **other_fields).SerializeToString()

    def decode(self, raw: bytes) -> Body:
        """Return the body in `raw`. Raises RemoteError: as `parse` and `body`."""
        return self.body(self.parse(raw))

    def parse(self, raw: bytes) -> Any:
        """Return the message in `raw`. Raises RemoteError: it does not parse."""
        try:
            return self._message.FromString(raw)
        except DecodeError:
            raise RemoteError(f"{self._name} does not parse") from None

    def body(self, message: Any) -> Body:
        """Return a message's body. Raises RemoteError: it is unknown, or out of bounds."""
        field = message.WhichOneof(self._oneof)
        if field not in self._reads:
            raise RemoteError(self._empty)
        body: Body = self._reads[field](getattr(message, field))
        return body
