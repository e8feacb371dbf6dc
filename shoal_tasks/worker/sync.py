"""The trainer's client of the task worker: synchronous, one request at a time.

`task_requests` defines the requests, and `worker_session` handles workers that do not answer. This
module only waits: without an event loop, `_done` runs their coroutines to the end.
"""

from __future__ import annotations

import functools
import select
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from shoal_tasks.errors import ServerUnavailable
from shoal_tasks.limits import WorkerLimits
from shoal_tasks.spec import FamilySpec
from shoal_tasks.types import Split, TaskCoordinates, WorkerReport
from shoal_tasks.worker.availability import build_sessions
from shoal_tasks.worker.batching import CallFailure, WorkerCall
from shoal_tasks.worker.process import Pipes
from shoal_tasks.worker.task_requests import TaskRequests
from shoal_tasks.worker.worker_session import WorkerSession

P = ParamSpec("P")
R = TypeVar("R")


def _done(work: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine whose waits all block. It never suspends."""
    try:
        work.send(None)
    except StopIteration as done:
        result: R = done.value
        return result
    raise RuntimeError("the coroutine waits for an event loop")


def _method(
    plan: Callable[Concatenate[TaskRequests, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[SyncTaskWorker, P], R]:
    """Return a method that runs a coroutine of `TaskRequests` to its end."""

    @functools.wraps(plan)
    def method(self: SyncTaskWorker, /, *given: P.args, **named: P.kwargs) -> R:
        return _done(plan(self._plans, *given, **named))

    return method


class SyncTaskWorker:
    """Supervises one worker process per group of families.

    Not thread-safe; use it from the thread that created it. Every method blocks, at most for the
    deadlines of `limits`. They raise `UnknownFamily` for coordinates of another family, and
    `WorkerUnavailable` if no worker stays up.

        with SyncTaskWorker(families) as worker:
            [(task, question)] = worker.draw(random.Random(1), 1)
            print(question, worker.items([task])[0].answer)
    """

    def __init__(
        self,
        families: Sequence[FamilySpec],
        *,
        limits: WorkerLimits | None = None,
    ) -> None:
        self._plans = TaskRequests(families, self._ask)
        self._sessions = build_sessions(self._plans.specs, limits or WorkerLimits(), BlockingPipes)
        self._first = next(iter(self._sessions.values()))

    def start(self) -> WorkerReport:
        """Start the main worker and those of judges, unit tests and users' files, unless they run.

        Raises `FamilyError` if one refuses a family.
        """
        report = _done(_closing(self._first, self._first.start()))
        for session in self._sessions.values():
            if session.starts_early:
                _done(_closing(session, session.start()))
        return report

    @property
    def report(self) -> WorkerReport | None:
        """The latest worker's report about itself; None before the first start."""
        return self._first.report

    @property
    def num_restarts(self) -> int:
        """Number of workers started after the first."""
        return self._first.num_restarts

    draw = _method(TaskRequests.draw)
    held_out = _method(TaskRequests.held_out)
    questions_and_splits = _method(TaskRequests.questions_and_splits)
    items = _method(TaskRequests.items)
    questions = _method(TaskRequests.questions)
    question_digests = _method(TaskRequests.question_digests)
    score = _method(TaskRequests.score)
    score_groups = _method(TaskRequests.score_groups)
    play = _method(TaskRequests.play)
    draw_for_judge = _method(TaskRequests.draw_for_judge)

    def parts(self, tasks: Sequence[TaskCoordinates]) -> list[Split]:
        """Return what each task's question may be used for. Raises `GenerationError` as `items`."""
        return [part for _, part in self.questions_and_splits(tasks)]

    def close(self) -> None:
        """Kill the workers and reap them. A later call would start new ones."""
        for session in self._sessions.values():
            _done(session.stop())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    async def _ask(self, call: WorkerCall[R]) -> list[R] | CallFailure:
        session = self._sessions[call.worker_key]
        return await _closing(session, session.request(call))


async def _closing(session: WorkerSession, work: Coroutine[Any, Any, R]) -> R:
    """Await `work`, and kill the worker on any exception except `ServerUnavailable`.

    After an interrupt, the reply that is still in the pipe must not answer the next call.
    """
    try:
        return await work
    except ServerUnavailable:
        raise
    except BaseException:
        await session.stop()
        raise


class BlockingPipes(Pipes):
    """Pipes that block the thread while they wait."""

    def now(self) -> float:
        """Return the monotonic clock's seconds."""
        return time.monotonic()

    async def pause(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)  # noqa: ASYNC251  no event loop runs here

    async def ready(self, descriptor: int, deadline: float, *, is_to_write: bool) -> None:
        """Wait until a pipe is ready."""
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT if is_to_write else select.POLLIN)
        left = deadline - self.now()
        if left <= 0 or not poll.poll(left * 1000):
            raise TimeoutError("the task worker did not answer in time")
