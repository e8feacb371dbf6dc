"""The node's client of the task worker: Trio, many callers, one request at a time, in order.

    run() ──> starting ──ready──> serving ──call answered──> serving
                 ▲                   │
                 └── after a pause ──┴─ deadline passed, died, or malformed reply: killed

`task_requests` defines the requests, and `worker_session` handles workers that do not answer.
Callers wait in a bounded queue. If it is full, or the worker is not back within the caller's
deadline, they get `WorkerUnavailable`, which says nothing about any peer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import trio

from shoal_tasks.errors import FamilyError, ServerUnavailable, WorkerUnavailable
from shoal_tasks.limits import WorkerLimits
from shoal_tasks.spec import FamilySpec
from shoal_tasks.types import TaskCoordinates, WorkerReport
from shoal_tasks.worker.availability import build_sessions
from shoal_tasks.worker.batching import CallFailure, WorkerCall
from shoal_tasks.worker.process import Pipes
from shoal_tasks.worker.task_requests import TaskRequests
from shoal_tasks.worker.worker_session import WorkerSession
from shoal_wire.types import Digest

if TYPE_CHECKING:
    from trio_typing import TaskStatus

P = ParamSpec("P")
R = TypeVar("R")


def _method(
    plan: Callable[Concatenate[TaskRequests, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[TrioTaskWorker, P], Coroutine[Any, Any, R]]:
    """Return a method that awaits a coroutine of `TaskRequests`, within the deadline."""

    @functools.wraps(plan)
    async def method(self: TrioTaskWorker, /, *given: P.args, **named: P.kwargs) -> R:
        with trio.move_on_after(self._patience_seconds):
            return await plan(self._plans, *given, **named)
        raise WorkerUnavailable("the task worker did not answer in time")

    return method


@dataclass(slots=True, kw_only=True, eq=False)
class _Job:
    """One call in the queue. ``error`` is set if the worker cannot be started."""

    call: WorkerCall[Any]
    done: trio.Event = field(default_factory=trio.Event)
    outcome: list[Any] | CallFailure = CallFailure.CRASHED
    error: WorkerUnavailable | None = None
    abandoned: bool = False


class TrioTaskWorker:
    """Supervises one worker process per group of families.

    Start `run` in the node's nursery; it ends when cancelled. The methods raise `UnknownFamily` for
    coordinates of another family, and `WorkerUnavailable` if no reply arrives within
    ``patience_seconds``.
    """

    def __init__(
        self,
        families: Sequence[FamilySpec],
        *,
        limits: WorkerLimits | None = None,
        max_waiting: int = 64,
        patience_seconds: float = 30.0,
    ) -> None:
        self._plans = TaskRequests(families, self._ask)
        limits = limits or WorkerLimits()
        sessions = build_sessions(self._plans.specs, limits, TrioPipes)
        self._queues = {
            worker_key: _WorkerQueue(one, max_waiting) for worker_key, one in sessions.items()
        }
        self._first = next(iter(self._queues.values()))
        self._patience_seconds = patience_seconds
        self._server_patience_seconds = limits.request_timeout_seconds

    @property
    def report(self) -> WorkerReport | None:
        """The latest worker's report about itself; None before the first was ready."""
        return self._first.session.report

    @property
    def num_restarts(self) -> int:
        """Number of workers started after the first."""
        return self._first.session.num_restarts

    async def run(
        self, *, task_status: TaskStatus[WorkerReport] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Keep the workers up and serve their queues until cancelled; they end with this task.

        Reports started once the main worker and those of judges, unit tests and users' files are
        ready, and the workers of OpenEnv servers are up or skipped.

        Raises:
            FamilyError: a worker refuses a family.
            WorkerUnavailable: a worker does not start.
        """
        report = await self._first.start()
        for worker_key in self._queues.values():
            if worker_key.session.starts_early:
                await worker_key.start()
        async with trio.open_nursery() as nursery:
            for worker_key in self._queues.values():
                nursery.start_soon(worker_key.serve)
            # A slow server must not delay the node's start.
            with trio.move_on_after(self._server_patience_seconds):
                for worker_key in self._queues.values():
                    await worker_key.was_brought_up.wait()
            task_status.started(report)

    draw_for_judge = _method(TaskRequests.draw_for_judge)
    items = _method(TaskRequests.items)
    questions = _method(TaskRequests.questions)
    question_digests = _method(TaskRequests.question_digests)
    score = _method(TaskRequests.score)
    play = _method(TaskRequests.play)

    def known_digests(self, tasks: Sequence[TaskCoordinates]) -> list[Digest] | None:
        """Return the digests from the cache alone; None unless all are in it."""
        return self._plans.known_digests(tasks)

    async def _ask(self, call: WorkerCall[R]) -> list[R] | CallFailure:
        return await self._queues[call.worker_key].submit(call)


class _WorkerQueue:
    """One worker process and its queue. A slow server delays no other worker's queue."""

    def __init__(self, session: WorkerSession, max_waiting: int) -> None:
        self.session = session
        self.was_brought_up = trio.Event()
        """Set once the worker is up, or skipped, for the first time."""
        self._is_starting = False
        # A full queue refuses: a caller that cannot be served soon should not wait.
        self._send, self._receive = trio.open_memory_channel[_Job](max_waiting)

    async def start(self) -> WorkerReport:
        """Start the worker. Raises `FamilyError`, `WorkerUnavailable`."""
        try:
            return await self.session.start()
        except BaseException:
            await self._end(None)
            raise

    async def serve(self) -> None:
        """Serve the queue until cancelled; the worker ends with this task."""
        current: _Job | None = None
        try:
            await self._bring_up()
            self.was_brought_up.set()
            async for current in self._receive:
                if not current.abandoned:
                    await self._serve(current)
        finally:
            await self._end(current)

    async def _end(self, current: _Job | None) -> None:
        self._refuse_waiting(current)
        await self.session.stop()

    async def submit(self, call: WorkerCall[R]) -> list[R] | CallFailure:
        """Send one call. Raises `WorkerUnavailable`, at once while a server's worker starts."""
        if self._is_starting:
            raise self._starts()
        job = _Job(call=call)
        try:
            self._send.send_nowait(job)
        except trio.WouldBlock:
            raise WorkerUnavailable("the task worker's queue is full") from None
        except trio.BrokenResourceError:
            raise WorkerUnavailable("the task worker has ended") from None
        try:
            await job.done.wait()
        finally:
            job.abandoned = True
        if job.error is not None:
            raise job.error
        return job.outcome

    async def _serve(self, job: _Job) -> None:
        if self.session.needs_a_start:
            job.error = self._starts()
            job.done.set()
            await self._bring_up()
            return
        try:
            job.outcome = await self.session.request(job.call)
        except ServerUnavailable as error:
            job.error = error
        except (WorkerUnavailable, FamilyError) as error:
            # The family was accepted before and is refused now: the installation has changed.
            job.error = WorkerUnavailable(str(error))
        finally:
            job.done.set()

    async def _bring_up(self) -> None:
        """Start the worker of a server without a waiting caller.

        A start takes seconds. A batch whose questions waited for it would exceed its cost limit,
        and its publisher would be charged.
        """
        if not self.session.needs_a_start:
            return
        self._is_starting = True
        try:
            await self.session.bring_up()
        except ServerUnavailable:
            pass  # the session has logged the reason
        finally:
            self._is_starting = False

    def _starts(self) -> ServerUnavailable:
        return ServerUnavailable("its worker is starting", self.session.worker_key)

    def _refuse_waiting(self, current: _Job | None) -> None:
        """Fail all waiting calls, which can get no reply any more."""
        waiting = [] if current is None or current.done.is_set() else [current]
        while True:
            try:
                waiting.append(self._receive.receive_nowait())
            except (trio.WouldBlock, trio.EndOfChannel):
                break
        self._receive.close()
        for job in waiting:
            job.error = WorkerUnavailable("the task worker has ended")
            job.done.set()


class TrioPipes(Pipes):
    """Pipes that let other tasks run while they wait."""

    def now(self) -> float:
        """Return the seconds of Trio's clock."""
        return trio.current_time()

    async def pause(self, seconds: float) -> None:
        """Sleep."""
        await trio.sleep(seconds)

    async def ready(self, descriptor: int, deadline: float, *, is_to_write: bool) -> None:
        """Wait until a pipe is ready."""
        wait = trio.lowlevel.wait_writable if is_to_write else trio.lowlevel.wait_readable
        with trio.move_on_at(deadline):
            return await wait(descriptor)
        raise TimeoutError("the task worker did not answer in time")

    async def kill(self) -> None:
        """Kill the worker and reap it, also when cancelled."""
        with trio.CancelScope(shield=True):
            await super().kill()
