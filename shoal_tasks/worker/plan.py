"""A batch in pieces, and what to do when a piece kills the worker. Sans-IO.

Both clients ask by `run_plan`, so their behaviour under failure is the same:

    piece answered ───────────────────────────────────────────────> its results
    piece killed the worker ──> its items one by one ──> answered ─> result
                                                     ──> timed out ─> culprit
                                                     ──> crashed ──> once more, then culprit
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
    """Why a call got no usable reply. Either way the worker is dead by then."""

    TIMED_OUT = "timed_out"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCall(Generic[R]):
    """One frame to the worker."""

    message: Message
    parse: Callable[[Message], list[R]]
    """Reads the reply. Raises `WorkerProtocolError` where it is not one to this message."""
    lane: str = ""
    """Name of the worker that is asked: `FamilySpec.lane`."""


Ask = Callable[[WorkerCall[Any]], Awaitable["list[Any] | CallFailure"]]
"""Asks the worker: returns a call's results, or why there are none. Raises `ServerUnavailable`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Generic[T, R]):
    """One thing that a worker does to items: how they travel, and how the results are read."""

    name: str
    row: Callable[[T], Any]
    """Returns an item as the worker reads it."""
    read: Callable[[Any], R]
    """Reads one result. Raises `WorkerProtocolError`."""
    failed: Callable[[T, CallFailure], R]
    """The result of an item that cannot be answered; may raise instead."""
    size: Callable[[T], int] = lambda _item: 0
    """Characters the item adds to a frame."""
    lane: Callable[[T], str] = lambda _item: ""
    """Returns the name of the worker that has an item's family."""
    most: Callable[[str], int] = lambda _lane: MAX_ITEMS_PER_FRAME
    """Most items in one frame to a worker, each counted by its `weight`."""
    weight: Callable[[T], int] = lambda _item: 1
    """Returns the number of items that an item counts as."""
    fits: Callable[[T, R], bool] = lambda _item, _result: True
    """Returns whether a result may be that of an item."""


async def run_plan(ask: Ask, operation: Operation[T, R], items: Sequence[T]) -> list[R]:
    """Ask for all items in pieces; after a failure, for the items of that piece one by one."""
    results: list[R] = []
    for piece in _pieces(items, operation):
        outcome = await ask(_call(operation, piece))
        if not isinstance(outcome, CallFailure):
            results += outcome
        elif len(piece) == 1:
            results += await _alone(ask, operation, piece[0], outcome)
        else:
            for item in piece:
                first = await ask(_call(operation, [item]))
                results += await _alone(ask, operation, item, first)
    return results


async def _alone(
    ask: Ask, operation: Operation[T, R], item: T, outcome: list[R] | CallFailure
) -> list[R]:
    """The result of an item asked alone. A crash may be somebody else's kill: it is asked again."""
    if outcome is CallFailure.CRASHED:
        outcome = await ask(_call(operation, [item]))
    return [operation.failed(item, outcome)] if isinstance(outcome, CallFailure) else outcome


def _pieces(items: Sequence[T], operation: Operation[T, R]) -> Iterator[list[T]]:
    piece: list[T] = []
    total = count = 0
    for item in items:
        lane, size, weight = operation.lane(item), operation.size(item), operation.weight(item)
        if piece and (
            count + weight > operation.most(lane)
            or total + size > MAX_CHARS_PER_FRAME
            or lane != operation.lane(piece[0])
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
        if not all(map(operation.fits, piece, results)):
            raise WorkerProtocolError("reply does not match the request")
        return results

    message: Message = {"op": operation.name, "items": list(map(operation.row, piece))}
    return WorkerCall(message=message, lane=operation.lane(piece[0]), parse=parse)
