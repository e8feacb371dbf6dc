"""A batch in pieces, and what to do when a piece kills the worker. Sans-IO.

A plan is a generator: it yields a `WorkerCall`, the driver sends back the parsed reply or a
`CallFailure`, or throws `ServerAway` in, and the plan's return value is the list of results. Both
clients drive the same plans, so their behaviour under failure is the same:

    piece answered ───────────────────────────────────────────────> its results
    piece killed the worker ──> its items one by one ──> answered ─> result
                                                     ──> timed out ─> culprit
                                                     ──> crashed ──> once more, then culprit
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
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


Plan = Generator[WorkerCall[Any], "list[Any] | CallFailure", list[R]]
"""Yields what to ask; the driver sends back the results of each call, or why there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Generic[T, R]):
    """Conversion of items of one kind to frames, and of replies to results."""

    message: Callable[[Sequence[T]], Message]
    parse_one: Callable[[Any], R]
    reply_key: str
    size: Callable[[T], int]
    """Characters the item adds to a frame."""
    failed: Callable[[CallFailure], R]
    """The result of an item that cannot be answered; may raise instead."""
    lane: Callable[[T], str] = lambda _item: ""
    """Returns the name of the worker that has an item's family."""
    most: Callable[[str], int] = lambda _lane: MAX_ITEMS_PER_FRAME
    """Most items in one frame to a worker."""


def run_plan(operation: Operation[T, R], items: Sequence[T]) -> Plan[R]:
    """Ask for all items in pieces; after a failure, for the items of that piece one by one."""
    results: list[R] = []
    for piece in _pieces(items, operation):
        outcome = yield _call(operation, piece)
        if isinstance(outcome, CallFailure) and len(piece) == 1:
            results += yield from _alone(operation, piece[0], outcome)
        elif isinstance(outcome, CallFailure):
            for item in piece:
                first = yield _call(operation, [item])
                if isinstance(first, CallFailure):
                    results += yield from _alone(operation, item, first)
                else:
                    results += first
        else:
            results += outcome
    return results


def _alone(operation: Operation[T, R], item: T, failure: CallFailure) -> Plan[R]:
    """An item that failed by itself. A crash may be somebody else's kill, so it is tried again."""
    if failure is CallFailure.CRASHED:
        outcome = yield _call(operation, [item])
        if not isinstance(outcome, CallFailure):
            return outcome
        failure = outcome
    return [operation.failed(failure)]


def _pieces(items: Sequence[T], operation: Operation[T, R]) -> Iterator[list[T]]:
    piece: list[T] = []
    total = 0
    for item in items:
        lane, size = operation.lane(item), operation.size(item)
        if piece and (
            len(piece) >= operation.most(lane)
            or total + size > MAX_CHARS_PER_FRAME
            or lane != operation.lane(piece[0])
        ):
            yield piece
            piece, total = [], 0
        piece.append(item)
        total += size
    if piece:
        yield piece


def _call(operation: Operation[T, R], piece: Sequence[T]) -> WorkerCall[R]:
    def parse(reply: Message) -> list[R]:
        rows = reply.get(operation.reply_key)
        if not isinstance(rows, list) or len(rows) != len(piece):
            raise WorkerProtocolError("reply does not match the request")
        return [operation.parse_one(row) for row in rows]

    lane = operation.lane(piece[0])
    return WorkerCall(message=operation.message(piece), lane=lane, parse=parse)
