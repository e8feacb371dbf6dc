"""Sends a batch in pieces and isolates the item that kills the worker. Sans-IO.

Both clients use `run_batched`, so they behave alike on failures:

    piece answered ────────────────────────────────────────────> its results
    piece killed the worker ──> its items singly ──> answered ──> result
                                                 ──> timed out ─> culprit
                                                 ──> crashed ───> retried once, then culprit
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from shoal_tasks.errors import WorkerProtocolError
from shoal_tasks.limits import MAX_CHARS_PER_FRAME, MAX_ITEMS_PER_FRAME
from shoal_tasks.worker.frames import Message

T = TypeVar("T")
R = TypeVar("R")


class CallFailure(StrEnum):
    """Why a call got no usable reply. In both cases the worker has been killed."""

    TIMED_OUT = "timed_out"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCall(Generic[R]):
    """One frame to the worker."""

    message: Message
    parse: Callable[[Message], list[R]]
    """Parses the reply. Raises `WorkerProtocolError` if it does not match this message."""
    worker_key: str = ""
    """The worker to send it to: `FamilySpec.worker_key`."""


Send = Callable[[WorkerCall[Any]], Awaitable["list[Any] | CallFailure"]]
"""Sends a call and returns its results, or why there are none. Raises `ServerUnavailable`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Generic[T, R]):
    """One kind of request: how items are encoded, and how results are decoded."""

    name: str
    row: Callable[[T], Any]
    """Encodes an item for the worker."""
    read: Callable[[Any], R]
    """Decodes one result. Raises `WorkerProtocolError`."""
    on_failure: Callable[[T, CallFailure], R]
    """Returns the result of an item that got no reply; may raise instead."""
    size: Callable[[T], int] = lambda _item: 0
    """Returns the number of characters that the item adds to a frame."""
    worker_key: Callable[[T], str] = lambda _item: ""
    """Returns the key of the worker that serves an item's family."""
    max_items: Callable[[str], int] = lambda _lane: MAX_ITEMS_PER_FRAME
    """Returns the maximum total `weight` of the items in one frame to a worker."""
    weight: Callable[[T], int] = lambda _item: 1
    """Returns how many items an item counts as."""
    matches: Callable[[T, R], bool] = lambda _item, _result: True
    """Returns whether a result can belong to an item."""


async def run_batched(send: Send, operation: Operation[T, R], items: Sequence[T]) -> list[R]:
    """Send all items in pieces. After a failure, send the items of that piece singly."""
    results: list[R] = []
    for piece in _pieces(items, operation):
        outcome = await send(_call(operation, piece))
        if not isinstance(outcome, CallFailure):
            results += outcome
        elif len(piece) == 1:
            results += await _send_alone(send, operation, piece[0], outcome)
        else:
            for item in piece:
                first = await send(_call(operation, [item]))
                results += await _send_alone(send, operation, item, first)
    return results


async def _send_alone(
    send: Send, operation: Operation[T, R], item: T, outcome: list[R] | CallFailure
) -> list[R]:
    """Return the result of an item sent alone. A crash may have another cause, so retry once."""
    if outcome is CallFailure.CRASHED:
        outcome = await send(_call(operation, [item]))
    return [operation.on_failure(item, outcome)] if isinstance(outcome, CallFailure) else outcome


def _pieces(items: Sequence[T], operation: Operation[T, R]) -> Iterator[list[T]]:
    piece: list[T] = []
    total = count = 0
    for item in items:
        worker_key, size, weight = (
            operation.worker_key(item),
            operation.size(item),
            operation.weight(item),
        )
        if piece and (
            count + weight > operation.max_items(worker_key)
            or total + size > MAX_CHARS_PER_FRAME
            or worker_key != operation.worker_key(piece[0])
        ):
            yield piece
            piece, total, count = [], 0, 0
        piece.append(item)
        total += size
        count += weight
    if piece:
        yield piece


def _call(operation: Operation[T, R], piece: Sequence[T]) -> WorkerCall[R]:
    def parse(reply: Message) -> list[R]:
        rows = reply.get("results")
        if not isinstance(rows, list) or len(rows) != len(piece):
            raise WorkerProtocolError("reply does not match the request")
        results = [operation.read(row) for row in rows]
        if not all(map(operation.matches, piece, results)):
            raise WorkerProtocolError("reply does not match the request")
        return results

    message: Message = {"op": operation.name, "items": list(map(operation.row, piece))}
    return WorkerCall(message=message, worker_key=operation.worker_key(piece[0]), parse=parse)
