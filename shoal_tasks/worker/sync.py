"""The trainer's task worker: synchronous, one caller, one request at a time.

What is asked, and what becomes of a worker that does not answer, is in `task_plans` and
`conversation`; here are the pipes and the clock.
"""

from __future__ import annotations

import functools
import os
import random
import select
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

from shoal_tasks.errors import ServerAway
from shoal_tasks.limits import WorkerLimits
from shoal_tasks.spec import FamilySpec
from shoal_tasks.types import Split, TaskCoordinates, WorkerReport
from shoal_tasks.worker import conversation as talk
from shoal_tasks.worker.away import conversations
from shoal_tasks.worker.frames import READ_BYTES
from shoal_tasks.worker.plan import Plan
from shoal_tasks.worker.process import REAP_SECONDS, WorkerProcess
from shoal_tasks.worker.task_plans import TaskPlans

P = ParamSpec("P")
R = TypeVar("R")


def _done(
    plan: Callable[Concatenate[TaskPlans, P], Plan[R]],
) -> Callable[Concatenate[SyncTaskWorker, P], list[R]]:
    """Return the method of a client that does what a plan says."""

    @functools.wraps(plan)
    def method(self: SyncTaskWorker, /, *given: P.args, **named: P.kwargs) -> list[R]:
        return self._drive(plan(self._plans, *given, **named))

    return method


class SyncTaskWorker:
    """Supervises one worker process. Not thread-safe; use it from the thread that made it.

    Every method blocks, at most for the limits' deadlines, and raises `UnknownFamily` for
    coordinates of a family it was not given and `WorkerUnavailable` when no worker can be kept up.
    """

    def __init__(
        self,
        families: Sequence[FamilySpec],
        *,
        limits: WorkerLimits | None = None,
        digest_cache_size: int = 65_536,
    ) -> None:
        self._plans = TaskPlans(families, digest_cache_size=digest_cache_size)
        talks = conversations(self._plans.specs, limits or WorkerLimits(), time.monotonic)
        self._lanes = {lane: _Lane(one) for lane, one in talks.items()}
        self._first = next(iter(self._lanes.values()))

    def start(self) -> WorkerReport:
        """Start the worker unless it runs, and those of judges: what is wrong with one is said now.

        Raises `FamilyError` where one refuses a family.
        """
        report = self._first.follow(self._first.conversation.start())
        for lane in self._lanes.values():
            if lane.conversation.is_of_a_judge:
                lane.follow(lane.conversation.start())
        return report

    @property
    def report(self) -> WorkerReport | None:
        """The latest worker's report about itself; None before the first start."""
        return self._first.conversation.report

    @property
    def num_restarts(self) -> int:
        """Workers started after the first."""
        return self._first.conversation.num_restarts

    draw = _done(TaskPlans.draw)
    held_out = _done(TaskPlans.held_out)
    asked = _done(TaskPlans.asked)
    items = _done(TaskPlans.items)
    questions = _done(TaskPlans.questions)
    question_digests = _done(TaskPlans.question_digests)
    score = _done(TaskPlans.score)
    play = _done(TaskPlans.play)

    def draw_for_judge(self, rng: random.Random) -> tuple[TaskCoordinates, str]:
        """Draw one held-out task with its question. Raises `GenerationError`: there is none."""
        (drawn,) = self._drive(self._plans.draw_for_judge(rng))
        return drawn

    def parts(self, tasks: Sequence[TaskCoordinates]) -> list[Split]:
        """Return the use of each task's question. Raises `GenerationError` as `items` does."""
        return [part for _, part in self.asked(tasks)]

    def close(self) -> None:
        """End the worker and collect its status. A later call would start another."""
        for lane in self._lanes.values():
            lane.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _drive(self, plan: Plan[R]) -> list[R]:
        try:
            call = next(plan)
            while True:
                lane = self._lanes[call.lane]
                try:
                    outcome = lane.follow(lane.conversation.request(call))
                except ServerAway as error:
                    call = plan.throw(error)
                else:
                    call = plan.send(outcome)
        except StopIteration as done:
            results: list[R] = done.value
            return results


class _Lane:
    """One worker process."""

    def __init__(self, conversation: talk.Conversation) -> None:
        self.conversation = conversation
        self.pipes = _Pipes()

    def close(self) -> None:
        """End the worker and collect its status."""
        self.follow(self.conversation.stop())

    def follow(self, steps: talk.Steps[R]) -> R:
        """Do the steps; return what they are for."""
        try:
            step = next(steps)
            while True:
                step = steps.send(self.pipes.do(step))
        except StopIteration as done:
            result: R = done.value
            return result
        except ServerAway:
            raise
        except BaseException:
            # An interrupt in the middle: the reply still in the pipe must not answer the next call.
            self.close()
            raise


class _Pipes:
    """Does the steps of a conversation: the process of the moment, its pipes and the clock."""

    def __init__(self) -> None:
        self.process: WorkerProcess | None = None
        self._unsent = memoryview(b"")
        self._deadline = 0.0

    def do(self, step: talk.Step) -> talk.Outcome:
        """Do one step and return its outcome."""
        try:
            match step:
                case talk.Pause():
                    time.sleep(step.seconds)
                case talk.Launch():
                    self.process = WorkerProcess(is_of_a_judge=step.is_of_a_judge)
                    return self.process.pid
                case talk.Send():
                    # Goes out while waiting for the answer.
                    self._unsent = memoryview(step.data)
                    self._deadline = time.monotonic() + step.seconds
                case talk.Receive():
                    return self._receive()
                case talk.Kill():
                    self._kill()
        except OSError as error:
            return error
        return None

    def _receive(self) -> bytes:
        assert self.process is not None
        while True:
            readable, writable = self._wait(self.process)
            if writable:
                self._unsent = self._unsent[os.write(self.process.write_fd, self._unsent) :]
            if readable:
                return os.read(self.process.read_fd, READ_BYTES)

    def _wait(self, process: WorkerProcess) -> tuple[bool, bool]:
        poll = select.poll()
        poll.register(process.read_fd, select.POLLIN)
        if self._unsent:
            poll.register(process.write_fd, select.POLLOUT)
        left = self._deadline - time.monotonic()
        events = dict(poll.poll(left * 1000)) if left > 0 else {}
        if not events:
            raise TimeoutError("the task worker did not answer in time")
        return process.read_fd in events, process.write_fd in events

    def _kill(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            os.close(process.write_fd)
            os.close(process.read_fd)
            process.wait(REAP_SECONDS)
