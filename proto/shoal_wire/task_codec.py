"""Requests and answers of `/shoal/tasks/1` to and from protobuf, within fixed bounds."""

from __future__ import annotations

from typing import TypeVar

from shoal_wire.errors import RemoteError
from shoal_wire.fields import OutOfBoundsError, Wires, coded
from shoal_wire.limits import MAX_REQUEST_BYTES, MAX_TASK_ANSWER_BYTES, TASK_PIECE_BYTES
from shoal_wire.oneof import OneOf
from shoal_wire.task_messages import Bundle, TaskAnswer, TaskQuery, TaskRefusalReason
from shoal_wire.v1 import tasks_pb2 as pb

Body = TypeVar("Body")

_REFUSALS = {
    TaskRefusalReason.BUSY: pb.TASK_REFUSAL_REASON_BUSY,
    TaskRefusalReason.NOT_SHARED: pb.TASK_REFUSAL_REASON_NOT_SHARED,
}
# A reason of a later version means "not from this peer" all the same.
_WIRES = Wires({TaskRefusalReason: coded(_REFUSALS, default=TaskRefusalReason.NOT_SHARED)})

_QUERIES: OneOf[TaskQuery] = OneOf(
    pb.TaskRequest, TaskQuery, _WIRES, name="request", empty="request without a known query"
)
_ANSWERS: OneOf[TaskAnswer] = OneOf(
    pb.TaskAnswer, TaskAnswer, _WIRES, name="answer", empty="answer of no known kind"
)


class TaskProtocolError(RemoteError):
    """Bytes that are no request, or no answer, of `/shoal/tasks/1`."""


def encode_task_query(query: TaskQuery) -> bytes:
    """Return the bytes of a request."""
    return _QUERIES.encode(query)


def decode_task_query(raw: bytes) -> TaskQuery:
    """Return the request in `raw`. Raises TaskProtocolError: the contract does not allow it."""
    return _checked(_QUERIES, raw, MAX_REQUEST_BYTES)


def encode_task_answer(answer: TaskAnswer) -> bytes:
    """Return the bytes of an answer."""
    return _ANSWERS.encode(answer)


def decode_task_answer(raw: bytes) -> TaskAnswer:
    """Return the answer in `raw`. Raises TaskProtocolError: the contract does not allow it."""
    answer = _checked(_ANSWERS, raw, MAX_TASK_ANSWER_BYTES)
    if isinstance(answer, Bundle):
        _check_files(answer)
    return answer


def _check_files(bundle: Bundle) -> None:
    if len({one.name for one in bundle.files}) != len(bundle.files):
        raise TaskProtocolError("a bundle names a file twice")
    for one in bundle.files:
        if len(one.pieces) != -(-one.num_bytes // TASK_PIECE_BYTES):
            raise TaskProtocolError("a file's pieces do not add up to its size")


def _checked(bodies: OneOf[Body], raw: bytes, max_bytes: int) -> Body:
    try:
        if len(raw) > max_bytes:
            raise OutOfBoundsError("length")
        return bodies.decode(raw)
    except OutOfBoundsError as error:
        raise TaskProtocolError(f"bad {error.what}") from None
    except RemoteError as error:
        raise TaskProtocolError(str(error)) from None
