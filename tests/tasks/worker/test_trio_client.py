"""The node's client: many callers, a bounded queue, and a worker that may die at any time."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import psutil
import pytest
import trio
import trio.testing

from shoal_tasks.errors import WorkerUnavailable
from shoal_tasks.families import EASY, GAMES_1, TRAIN_SEED_MIN, coordinates
from shoal_tasks.types import ScoreRequest, ScoreResult
from shoal_tasks.worker.trio_client import TrioTaskWorker
from shoal_wire.digests import question_digest
from shoal_wire.types import Digest, FinishReason

GCD = next(spec for spec in EASY if spec.generator == "gcd")
TASKS = [coordinates(GCD, TRAIN_SEED_MIN + offset) for offset in range(60)]
GAMES = [coordinates(GAMES_1[0], TRAIN_SEED_MIN + offset) for offset in range(60)]
"""Families whose worker imports nothing, which takes most of a start."""


@asynccontextmanager
async def running(worker: TrioTaskWorker) -> AsyncIterator[TrioTaskWorker]:
    """A running worker; afterwards checks that its process has ended and was reaped."""
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            await nursery.start(worker.run)
            yield worker
            nursery.cancel_scope.cancel()
    assert not psutil.pid_exists(pid_of(worker))


def pid_of(worker: TrioTaskWorker) -> int:
    assert worker.report is not None
    return worker.report.pid


async def test_concurrent_callers_each_get_their_own_answer() -> None:
    results: dict[int, list[Digest]] = {}

    async with running(TrioTaskWorker(EASY)) as worker:

        async def ask(start: int) -> None:
            results[start] = await worker.question_digests(TASKS[start : start + 6])

        async with trio.open_nursery() as nursery:
            for start in range(0, 60, 6):
                nursery.start_soon(ask, start)
        questions = await worker.questions(TASKS)
        items = await worker.items(TASKS[:2])
        requests = [
            ScoreRequest(task=task, text=str(item.answer), finish_reason=FinishReason.STOP)
            for task, item in zip(TASKS[:2], items, strict=True)
        ]
        assert await worker.score(requests) == [ScoreResult(reward=1.0)] * 2
    assert [item.question for item in items] == questions[:2]
    digests = [digest for start in sorted(results) for digest in results[start]]
    assert digests == [question_digest(text) for text in questions]


async def test_cached_digests_need_no_worker() -> None:
    worker = TrioTaskWorker(GAMES_1)
    async with running(worker):
        first = await worker.question_digests(GAMES)
    assert await worker.question_digests(GAMES) == first
    assert worker.known_digests(GAMES) == first
    assert worker.known_digests([*GAMES, replace(GAMES[0], index=GAMES[0].index + 77)]) is None
    with pytest.raises(WorkerUnavailable, match="has ended"):
        await worker.questions(GAMES)


async def test_a_caller_waits_no_longer_than_its_patience() -> None:
    async with running(TrioTaskWorker(GAMES_1, patience_seconds=0.5)) as worker:
        os.kill(pid_of(worker), signal.SIGSTOP)
        with pytest.raises(WorkerUnavailable, match="in time"):
            await worker.question_digests(GAMES)


async def test_a_full_queue_refuses_at_once() -> None:
    async with running(TrioTaskWorker(GAMES_1, max_waiting=2)) as worker:
        pid = pid_of(worker)
        os.kill(pid, signal.SIGSTOP)
        answered: list[int] = []

        async def ask(position: int) -> None:
            answered.append(len(await worker.questions(GAMES[position : position + 1])))

        async with trio.open_nursery() as nursery:
            for position in range(3):
                nursery.start_soon(ask, position)
                await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(WorkerUnavailable, match="queue is full"):
                await worker.questions(GAMES[9:])
            os.kill(pid, signal.SIGCONT)
        assert answered == [1, 1, 1]


async def test_cancelled_callers_do_not_block_the_rest() -> None:
    async with running(TrioTaskWorker(GAMES_1, max_waiting=4)) as worker:
        pid = pid_of(worker)
        os.kill(pid, signal.SIGSTOP)
        for _ in range(4):
            with trio.move_on_after(0.01) as scope:
                await worker.questions(GAMES)
            assert scope.cancelled_caught
        os.kill(pid, signal.SIGCONT)
        assert len(await worker.questions(GAMES)) == len(GAMES)


async def test_callers_waiting_at_the_end_get_an_error() -> None:
    worker = TrioTaskWorker(GAMES_1)
    outcomes: list[str] = []

    async def ask() -> None:
        try:
            await worker.questions(GAMES)
        except WorkerUnavailable as error:
            outcomes.append(str(error))

    with trio.fail_after(60):
        async with trio.open_nursery() as callers, trio.open_nursery() as nursery:
            await nursery.start(worker.run)
            os.kill(pid_of(worker), signal.SIGSTOP)
            for _ in range(3):
                callers.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert outcomes == ["the task worker has ended"] * 3
    assert not psutil.pid_exists(pid_of(worker))
