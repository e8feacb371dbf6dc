"""The node's task worker: Trio, many callers, one request at a time, in order of arrival.

    run() ──> starting ──ready──> serving ──call answered──> serving
                 ▲                   │
                 └── after a pause ──┴─ deadline passed, died, or nonsense: killed

Callers wait in a queue of stated length; when it is full, or when the worker is not back within
a caller's patience, they get `WorkerUnavailable`, which says nothing about any peer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from shoal_tasks.errors import FamilyError, WorkerProtocolError, WorkerUnavailable
from shoal_tasks.families import FamilySpec
from shoal_tasks.limits import WorkerLimits
from shoal_tasks.types import ScoreRequest, ScoreResult, TaskCoordinates, TaskItem
from shoal_tasks.worker.cache import LruCache
from shoal_tasks.worker.frames import FrameDecoder, Message, encode_frame
from shoal_tasks.worker.plan import (
    TOO_SLOW,
    Call,
    Failure,
    Families,
    Plan,
    generate_operation,
    parse_digest,
    parse_item,
    parse_question,
    require_all,
    require_digests,
    run_plan,
    score_operation,
)
from shoal_tasks.worker.process import (
    WorkerProcess,
    WorkerReport,
    check_ok,
    cpu_seconds,
    read_report,
    setup_message,
)
from shoal_wire.types import Digest

if TYPE_CHECKING:
    from trio_typing import TaskStatus

R = TypeVar("R")

_READ_BYTES = 1 << 16
_REAP_SECONDS = 5.0
_REAP_POLL_SECONDS = 0.01
_FIRST_BACKOFF_SECONDS = 0.1


@dataclass(slots=True, kw_only=True, eq=False)
class _Job:
    """One call in the queue. ``error`` is set where the worker cannot be brought up at all."""

    call: Call[Any]
    done: trio.Event = field(default_factory=trio.Event)
    outcome: list[Any] | Failure = Failure.CRASHED
    error: WorkerUnavailable | None = None
    abandoned: bool = False


class TaskWorker:
    """Supervises one worker process. Start `run` in the node's nursery; it ends when cancelled.

    The methods raise `UnknownFamily` for coordinates of a family not given here and
    `WorkerUnavailable` when the answer does not come within ``patience_seconds``.
    """

    def __init__(
        self,
        families: Sequence[FamilySpec],
        *,
        limits: WorkerLimits | None = None,
        max_waiting: int = 64,
        patience_seconds: float = 30.0,
        digest_cache_size: int = 65_536,
    ) -> None:
        self._families = Families(families)
        self._limits = limits or WorkerLimits()
        self._patience_seconds = patience_seconds
        self._digests: LruCache[TaskCoordinates, Digest] = LruCache(digest_cache_size)
        # Full means refused: a caller that cannot be served soon should not wait for it.
        self._send, self._receive = trio.open_memory_channel[_Job](max_waiting)
        self._channel: _Channel | None = None
        self._report: WorkerReport | None = None
        self._spent = False
        self.num_restarts = 0
        """Workers started after the first."""

    @property
    def report(self) -> WorkerReport | None:
        """What the latest worker said about itself; None before the first was ready."""
        return self._report

    async def run(
        self, *, task_status: TaskStatus[WorkerReport] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Keep a worker up and serve the queue until cancelled; the worker dies with this task.

        Reports started when the first worker is ready. Raises `FamilyError` where it refuses a
        family and `WorkerUnavailable` where the first does not come up.
        """
        current: _Job | None = None
        try:
            task_status.started(await self._start())
            async for current in self._receive:
                if not current.abandoned:
                    await self._serve(current)
        finally:
            self._refuse_waiting(current)
            await self._stop()

    async def questions(self, tasks: Sequence[TaskCoordinates]) -> list[str]:
        """The tasks' questions. Raises `GenerationError` where a generator fails on one."""
        operation = generate_operation(self._families, ["question"], parse_question)
        return require_all(tasks, await self._drive(run_plan(operation, tasks)))

    async def items(self, tasks: Sequence[TaskCoordinates]) -> list[TaskItem]:
        """Questions, answers and metadata. Raises `GenerationError` as `questions` does."""
        operation = generate_operation(
            self._families, ["question", "answer", "metadata"], parse_item
        )
        return require_all(tasks, await self._drive(run_plan(operation, tasks)))

    async def question_digests(self, tasks: Sequence[TaskCoordinates]) -> list[Digest]:
        """16-byte digests of the questions, cached; empty where the generator fails on a task."""
        missing = [task for task in dict.fromkeys(tasks) if self._digests.get(task) is None]
        operation = generate_operation(self._families, ["digest"], parse_digest, too_slow=TOO_SLOW)
        # The cache may lose entries while this waits, so what it holds now is taken now.
        known = {task: self._digests.get(task) for task in tasks}
        made = require_digests(await self._drive(run_plan(operation, missing)))
        for task, digest in zip(missing, made, strict=True):
            known[task] = digest
            self._digests.put(task, digest)
        return [known[task] or Digest(b"") for task in tasks]

    async def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        """Rewards, in order; one result per request, whatever happens to the worker meanwhile."""
        return await self._drive(run_plan(score_operation(self._families), requests))

    async def _drive(self, plan: Plan[R]) -> list[R]:
        with trio.move_on_after(self._patience_seconds):
            outcome: list[R] | Failure | None = None
            try:
                while True:
                    call = next(plan) if outcome is None else plan.send(outcome)
                    outcome = await self._submit(call)
            except StopIteration as finished:
                results: list[R] = finished.value
                return results
        raise WorkerUnavailable("the task worker did not answer in time")

    async def _submit(self, call: Call[R]) -> list[R] | Failure:
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
        try:
            if self._spent:
                await self._stop()
            await self._start()
            job.outcome = await self._perform(job.call)
        except (WorkerUnavailable, FamilyError) as error:
            # A family that was accepted once and is refused now: the installation has changed.
            job.error = WorkerUnavailable(str(error))
        finally:
            job.done.set()

    async def _perform(self, call: Call[Any]) -> list[Any] | Failure:
        assert self._channel is not None
        try:
            with trio.fail_after(self._limits.request_timeout_seconds):
                reply = await self._channel.exchange(call.message)
            check_ok(reply)
            results = call.parse(reply)
        except trio.TooSlowError:
            await self._stop()
            return Failure.TIMED_OUT
        except (OSError, trio.BrokenResourceError, WorkerProtocolError, WorkerUnavailable):
            await self._stop()
            return Failure.CRASHED
        self._spent = cpu_seconds(reply) > self._limits.recycle_cpu_seconds
        return results

    async def _start(self) -> WorkerReport:
        if self._channel is not None and self._report is not None:
            return self._report
        pause = _FIRST_BACKOFF_SECONDS
        for attempt in range(self._limits.max_restarts):
            if attempt:
                await trio.sleep(min(pause, self._limits.max_backoff_seconds))
                pause *= 2
            try:
                return await self._start_once()
            except (OSError, trio.BrokenResourceError, trio.TooSlowError, WorkerProtocolError):
                await self._stop()
            except (FamilyError, WorkerUnavailable):
                await self._stop()
                raise
        raise WorkerUnavailable("the task worker does not start")

    async def _start_once(self) -> WorkerReport:
        if self._report is not None:
            self.num_restarts += 1
        # Not in a helper thread: the kernel would end the worker together with that thread.
        self._channel = _Channel(WorkerProcess())
        with trio.fail_after(self._limits.start_timeout_seconds):
            reply = await self._channel.exchange(setup_message(self._families.specs, self._limits))
        self._report = read_report(self._channel.process.pid, reply)
        self._spent = False
        return self._report

    async def _stop(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    def _refuse_waiting(self, current: _Job | None) -> None:
        """Nobody may wait for an answer that cannot come any more."""
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


class _Channel:
    """Frames over the pipes of one worker process."""

    def __init__(self, process: WorkerProcess) -> None:
        self.process = process
        self._decoder = FrameDecoder()
        self._output = trio.lowlevel.FdStream(process.write_fd)
        self._input = trio.lowlevel.FdStream(process.read_fd)

    async def exchange(self, message: Message) -> Message:
        """Send one message and wait for one. Raises BrokenResourceError, WorkerProtocolError."""
        # The worker reads a frame to its end before it writes one, so this cannot lock up.
        await self._output.send_all(encode_frame(message))
        while (reply := self._decoder.next_message()) is None:
            data = await self._input.receive_some(_READ_BYTES)
            if not data:
                raise trio.BrokenResourceError("the task worker is gone")
            self._decoder.feed(data)
        return reply

    async def close(self) -> None:
        """Kill the worker and collect its status, also when cancelled."""
        self.process.kill()
        with trio.move_on_after(_REAP_SECONDS) as scope:
            scope.shield = True
            await self._output.aclose()
            await self._input.aclose()
            # A child's end has no event on every platform; after a kill it comes at once.
            while not self.process.reaped():  # noqa: ASYNC110
                await trio.sleep(_REAP_POLL_SECONDS)
