"""How a batch is split, and what happens if single items kill the worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from shoal_tasks.errors import WorkerProtocolError
from shoal_tasks.limits import MAX_CHARS_PER_FRAME, MAX_ITEMS_PER_FRAME
from shoal_tasks.worker.batching import CallFailure, Operation, WorkerCall, run_batched

ECHO: Operation[int, int | CallFailure] = Operation(
    name="echo",
    row=lambda item: item,
    read=int,
    size=lambda item: item,
    on_failure=lambda _item, failure: failure,
)

Worker = Callable[[list[int]], "list[int] | CallFailure"]


def drive(items: Sequence[int], worker: Worker) -> tuple[list[int | CallFailure], list[list[int]]]:
    """Run a batch against a worker that is a function; return results and the pieces sent."""
    requested: list[list[int]] = []

    async def ask(call: WorkerCall[Any]) -> list[Any] | CallFailure:
        piece: Any = call.message["items"]
        requested.append(piece)
        answer = worker(piece)
        return answer if isinstance(answer, CallFailure) else call.parse({"results": [*answer]})

    return trio.run(run_batched, ask, ECHO, items), requested


@given(
    st.lists(st.integers(0, 30), max_size=200),
    st.sets(st.integers(0, 30)),
    st.sampled_from(CallFailure),
)
def test_only_the_culprits_fail(items: list[int], culprits: set[int], failure: CallFailure) -> None:
    def worker(piece: list[int]) -> list[int] | CallFailure:
        return failure if culprits & set(piece) else piece

    results, requested = drive(items, worker)
    assert results == [failure if item in culprits else item for item in items]
    assert all(len(piece) <= MAX_ITEMS_PER_FRAME for piece in requested)


@given(st.lists(st.integers(0, MAX_CHARS_PER_FRAME), max_size=50))
def test_pieces_respect_the_frames_size(items: list[int]) -> None:
    results, requested = drive(items, lambda piece: piece)
    assert results == items
    assert [item for piece in requested for item in piece] == items
    assert all(sum(piece) <= MAX_CHARS_PER_FRAME or len(piece) == 1 for piece in requested)


def test_an_item_interrupted_by_another_items_kill_is_answered() -> None:
    kills = [CallFailure.CRASHED, CallFailure.CRASHED]

    def worker(piece: list[int]) -> list[int] | CallFailure:
        return kills.pop() if kills else piece

    assert drive([1, 2, 3], worker)[0] == [1, 2, 3]


def test_a_time_out_of_a_single_item_is_not_tried_again() -> None:
    results, requested = drive([5], lambda _piece: CallFailure.TIMED_OUT)
    assert results == [CallFailure.TIMED_OUT]
    assert requested == [[5]]


@pytest.mark.parametrize("reply", [{}, {"results": 3}, {"results": []}, {"results": [1, 2]}])
def test_a_reply_of_another_shape_is_a_protocol_error(reply: dict[str, Any]) -> None:
    async def ask(call: WorkerCall[Any]) -> list[Any] | CallFailure:
        return call.parse(reply)

    with pytest.raises(WorkerProtocolError):
        trio.run(run_batched, ask, ECHO, [1])
