"""Both clients in the same scenarios: results, and the number of workers started."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio

from shoal_tasks.errors import FamilyError, TaskError, WorkerUnavailable
from shoal_tasks.families import EASY, TRAIN_SEED_MIN, coordinates
from shoal_tasks.limits import WorkerLimits
from shoal_tasks.types import ScoreRequest, ScoreResult
from shoal_tasks.worker import sync, trio_client
from shoal_wire.types import FinishReason
from tests.tasks.worker import scripted_worker

TASKS = [coordinates(EASY[0], TRAIN_SEED_MIN + offset) for offset in range(3)]
TEXTS = [f"{task.family} {task.seed}" for task in TASKS]
SCORES = [ScoreRequest(task=task, text="1", finish_reason=FinishReason.STOP) for task in TASKS[:1]]
LIMITS = WorkerLimits(
    request_timeout_seconds=1.0, start_timeout_seconds=2.0, max_restarts=3, max_backoff_seconds=0.01
)

Ask = tuple[str, Sequence[Any]]
"""A method of the clients and its argument."""

ASK_ONE: Ask = ("questions", TASKS[:1])
ASK_ALL: Ask = ("questions", TASKS)
SCORE: Ask = ("score", SCORES)


@dataclass
class PlayOutcome:
    """A client's results: a value or an error per request, and an error at the start, if any."""

    results: list[object]
    num_restarts: int


def play_sync(asks: Sequence[Ask]) -> PlayOutcome:
    worker = sync.SyncTaskWorker(EASY, limits=LIMITS)
    results: list[object] = []
    try:
        worker.start()
        for method, argument in asks:
            try:
                results.append(getattr(worker, method)(argument))
            except TaskError as error:
                results.append((type(error), str(error)))
    except TaskError as error:
        results.append((type(error), str(error)))
    finally:
        worker.close()
    return PlayOutcome(results, worker.num_restarts)


def play_trio(asks: Sequence[Ask]) -> PlayOutcome:
    worker = trio_client.TrioTaskWorker(EASY, limits=LIMITS)
    results: list[object] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(worker.run)
            for method, argument in asks:
                try:
                    results.append(await getattr(worker, method)(argument))
                except TaskError as error:
                    results.append((type(error), str(error)))
            nursery.cancel_scope.cancel()

    try:
        trio.run(main)
    except* TaskError as group:
        results += [(type(error), str(error)) for error in group.exceptions]
    return PlayOutcome(results, worker.num_restarts)


UP = ["answer"]
FAILED = (WorkerUnavailable, "generating a task: crashed")
TOO_LATE = (WorkerUnavailable, "generating a task: timed_out")
CRASHED = [ScoreResult(reward=0.0, crashed=True)]
TIMED_OUT = [ScoreResult(reward=0.0, timed_out=True)]
RIGHT = [ScoreResult(reward=1.0)]
NO_START = (WorkerUnavailable, "the task worker does not start")


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Workers with scripted behaviour, requests, and the expected results."""

    lives: Sequence[Sequence[str]]
    asks: Sequence[Ask] = (ASK_ONE,)
    results: Sequence[object] = (TEXTS[:1],)
    launches: int
    restarts: int


SCENARIOS = {
    "answers": Scenario(
        lives=[UP], asks=[ASK_ALL, SCORE], results=[TEXTS, RIGHT], launches=1, restarts=0
    ),
    "answers in slices": Scenario(lives=[["slice"]], launches=1, restarts=0),
    "an empty request reaches no worker": Scenario(
        lives=[["answer", "crash"]], asks=[("questions", [])], results=[[]], launches=1, restarts=0
    ),
    **{
        f"{deed} once": Scenario(lives=[["answer", deed], UP], launches=2, restarts=1)
        for deed in ("error", "crash", "close", "not a frame", "not json", "forget", "twice")
    },
    "too large a reward once": Scenario(
        lives=[["answer", "overpay"], UP], asks=[SCORE], results=[RIGHT], launches=2, restarts=1
    ),
    "too large a reward always": Scenario(
        lives=[["answer", "overpay"]], asks=[SCORE], results=[CRASHED], launches=2, restarts=1
    ),
    "crash on one of a piece": Scenario(
        lives=[["answer", "crash"], UP], asks=[ASK_ALL], results=[TEXTS], launches=2, restarts=1
    ),
    "crash always": Scenario(
        lives=[["answer", "crash"]],
        asks=[ASK_ONE, SCORE],
        results=[FAILED, CRASHED],
        launches=4,
        restarts=3,
    ),
    "hang": Scenario(
        lives=[["answer", "hang"], UP],
        asks=[ASK_ONE, ASK_ONE],
        results=[TOO_LATE, TEXTS[:1]],
        launches=2,
        restarts=1,
    ),
    "hang on an answer to score": Scenario(
        lives=[["answer", "hang"], UP],
        asks=[SCORE, SCORE],
        results=[TIMED_OUT, RIGHT],
        launches=2,
        restarts=1,
    ),
    "processor time used up": Scenario(
        lives=[["answer", "spend"], UP],
        asks=[ASK_ONE, ASK_ALL, SCORE],
        results=[TEXTS[:1], TEXTS, RIGHT],
        launches=2,
        restarts=1,
    ),
    "the third start succeeds": Scenario(
        lives=[["crash"], ["not json"], UP], launches=3, restarts=0
    ),
    "a start that hangs is tried again": Scenario(lives=[["hang"], UP], launches=2, restarts=0),
    "no start succeeds": Scenario(lives=[["crash"]], results=[NO_START], launches=3, restarts=0),
    "no restart succeeds": Scenario(
        lives=[["answer", "crash"], ["crash"]],
        asks=[ASK_ONE, ASK_ONE],
        results=[NO_START, NO_START],
        launches=7,
        restarts=6,
    ),
    "a family is refused": Scenario(
        lives=[["refuse"]], results=[(FamilyError, "no")], launches=1, restarts=0
    ),
    "an error at the start": Scenario(
        lives=[["error"]],
        results=[(WorkerUnavailable, "task worker: RuntimeError: no")],
        launches=1,
        restarts=0,
    ),
}


@pytest.mark.parametrize("play", [play_sync, play_trio])
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_both_clients_do_the_same(
    play: Any, scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = scripted_worker.install(tmp_path, scenario.lives)
    monkeypatch.setattr(sys, "executable", str(program))
    descriptors = psutil.Process().num_fds()
    seen: PlayOutcome = play(scenario.asks)
    assert seen.results == list(scenario.results)
    assert seen.num_restarts == scenario.restarts
    pids = scripted_worker.launched(tmp_path)
    assert len(pids) == scenario.launches
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    assert psutil.Process().num_fds() == descriptors
