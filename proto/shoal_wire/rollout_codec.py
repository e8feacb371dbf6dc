"""Encodes and decodes `/shoal/rollouts/1`, and checks every bound."""

from __future__ import annotations

from typing import TypeVar

from shoal_wire.errors import RemoteError
from shoal_wire.fields import OutOfBoundsError, Wires, coded
from shoal_wire.limits import MAX_ANSWER_BYTES, MAX_REQUEST_BYTES
from shoal_wire.oneof import OneOf
from shoal_wire.rollout_messages import Answer, BatchRefusalReason, Query
from shoal_wire.v1 import fetch_pb2 as pb

Body = TypeVar("Body")

_REFUSALS = {
    BatchRefusalReason.BUSY: pb.REFUSAL_REASON_BUSY,
    BatchRefusalReason.NOT_HELD: pb.REFUSAL_REASON_NOT_HELD,
    BatchRefusalReason.PENDING: pb.REFUSAL_REASON_PENDING,
}
# A later version's reason also means "not now".
_WIRES = Wires({BatchRefusalReason: coded(_REFUSALS, default=BatchRefusalReason.BUSY)})

_QUERIES: OneOf[Query] = OneOf(
    pb.RolloutRequest,
    Query,
    _WIRES,
    name="request",
    empty="request without a known query",
)
_ANSWERS: OneOf[Answer] = OneOf(
    pb.RolloutAnswer,
    Answer,
    _WIRES,
    name="answer",
    empty="answer of no known kind",
)


class RolloutProtocolError(RemoteError):
    """Bytes that are not a message of `/shoal/rollouts/1`."""


def encode_query(query: Query) -> bytes:
    """Return the bytes of a request."""
    return _QUERIES.encode(query)


def decode_query(raw: bytes) -> Query:
    """Decode a request, and check every bound.

    Raises:
        RolloutProtocolError: not a request that the protocol allows.
    """
    return _decode(_QUERIES, raw, max_bytes=MAX_REQUEST_BYTES, too_long="request too long")


def encode_answer(answer: Answer) -> bytes:
    """Return the bytes of an answer."""
    return _ANSWERS.encode(answer)


def decode_answer(raw: bytes) -> Answer:
    """Decode an answer.

    Raises:
        RolloutProtocolError: not an answer that the protocol allows.
    """
    return _decode(_ANSWERS, raw, max_bytes=MAX_ANSWER_BYTES, too_long="answer too long")


def _decode(bodies: OneOf[Body], raw: bytes, *, max_bytes: int, too_long: str) -> Body:
    try:
        if len(raw) > max_bytes:
            raise OutOfBoundsError(too_long)
        return bodies.decode(raw)
    except OutOfBoundsError as error:
        raise RolloutProtocolError(f"bad {error.what}") from None
    except RemoteError as error:
        raise RolloutProtocolError(str(error)) from None
