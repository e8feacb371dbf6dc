"""Requests to the worker for a batch of questions or completions."""

from __future__ import annotations

import zlib
from typing import Any

import trio
from hypothesis import given
from hypothesis import strategies as st

from shoal_tasks.families import EASY, TRAIN_SEED_MIN, coordinates
from shoal_tasks.types import ScoreRequest
from shoal_tasks.worker.batching import CallFailure, WorkerCall
from shoal_tasks.worker.operations import ConfiguredFamilies
from shoal_tasks.worker.task_requests import TaskRequests
from shoal_wire.types import FinishReason

REQUESTS = st.lists(
    st.builds(
        ScoreRequest,
        task=st.builds(
            coordinates, st.sampled_from(EASY[:2]), st.integers(TRAIN_SEED_MIN, TRAIN_SEED_MIN + 1)
        ),
        text=st.sampled_from(["3", "03", "3 "]),
        finish_reason=st.sampled_from(FinishReason),
    ),
    max_size=40,
)


def reward(row: Any) -> float:
    """Another for every other request."""
    return zlib.crc32(repr(sorted(row.items())).encode()) / (1 << 32)


@given(REQUESTS, st.sampled_from([None, *CallFailure]))
def test_equal_answers_are_scored_once_and_each_gets_its_reward(
    requests: list[ScoreRequest], failure: CallFailure | None
) -> None:
    requested: list[Any] = []

    async def ask(call: WorkerCall[Any]) -> list[Any] | CallFailure:
        rows: Any = call.message["items"]
        requested.extend(rows)
        return failure or call.parse({"results": [{"reward": reward(row)} for row in rows]})

    results = trio.run(TaskRequests(EASY, ask).score, requests)
    if failure is None:
        assert len(requested) == len(set(map(repr, requested))) == len(set(requests))
        alone = ConfiguredFamilies(EASY)
        wanted = [
            reward(
                {**alone.row(one.task), "text": one.text, "finish_reason": str(one.finish_reason)}
            )
            for one in requests
        ]
        assert [one.reward for one in results] == wanted
    else:
        assert [one.crashed for one in results] == [failure is CallFailure.CRASHED] * len(requests)
        assert [one.timed_out for one in results] == [failure is CallFailure.TIMED_OUT] * len(
            requests
        )
