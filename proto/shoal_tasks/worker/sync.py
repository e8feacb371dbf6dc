"""The trainer's task worker: synchronous, one caller, one request at a time.

closed ──start──> running ──request──> running
                     │ └─ deadline passed, died, or nonsense: killed
                     └─ restarted by the next call, after a growing pause; given up after
                        ``max_restarts`` failed starts in a row: WorkerUnavailable
"""

from __future__ import annotations

import os
import random
import select
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self, TypeVar

from shoal_tasks.errors import GenerationError, WorkerProtocolError, WorkerUnavailable
from shoal_tasks.families import FamilySpec, draw_coordinates
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

R = TypeVar("R")

_MAX_DRAWS = 100
_READ_BYTES = 1 << 16
_REAP_SECONDS = 5.0
_FIRST_BACKOFF_SECONDS = 0.1


class TaskWorker:
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
        self._families = Families(families)
        self._limits = limits or WorkerLimits()
        self._digests: LruCache[TaskCoordinates, Digest] = LruCache(digest_cache_size)
        self._channel: _Channel | None = None
        self._report: WorkerReport | None = None
        self._spent = False
        self.num_restarts = 0
        """Workers started after the first."""

    def start(self) -> WorkerReport:
        """Start the worker unless it runs. Raises `FamilyError` where it refuses a family."""
        if self._channel is not None and self._report is not None:
            return self._report
        for attempt in range(self._limits.max_restarts):
            if attempt:
                pause = _FIRST_BACKOFF_SECONDS * 2 ** (attempt - 1)
                time.sleep(min(pause, self._limits.max_backoff_seconds))
            try:
                return self._start_once()
            except (OSError, WorkerProtocolError, TimeoutError):
                self._stop()
            except BaseException:
                self._stop()
                raise
        raise WorkerUnavailable("the task worker does not start")

    def _start_once(self) -> WorkerReport:
        if self._report is not None:
            self.num_restarts += 1
        self._channel = _Channel(WorkerProcess())
        reply = self._channel.exchange(
            setup_message(self._families.specs, self._limits), self._limits.start_timeout_seconds
        )
        self._report = read_report(self._channel.process.pid, reply)
        self._spent = False
        return self._report

    @property
    def report(self) -> WorkerReport | None:
        """What the latest worker said about itself; None before the first start."""
        return self._report

    def draw(self, rng: random.Random, count: int) -> list[tuple[TaskCoordinates, str]]:
        """Draw ``count`` fresh training tasks with their questions, by `draw_coordinates`.

        A draw that its generator cannot make is drawn again: decimal arithmetic divides by zero
        about once in 15,000 seeds. Raises `GenerationError` when one never succeeds.
        """
        operation = generate_operation(self._families, ["question"], parse_question)
        drawn: list[tuple[TaskCoordinates, str]] = []
        for _ in range(_MAX_DRAWS):
            missing = count - len(drawn)
            tasks = [draw_coordinates(rng, self._families.specs) for _ in range(missing)]
            made = self._drive(run_plan(operation, tasks))
            drawn += [
                (task, text) for task, text in zip(tasks, made, strict=True) if text is not None
            ]
            if len(drawn) == count:
                return drawn
        raise GenerationError("the families' generators fail on nearly every seed")

    def questions(self, tasks: Sequence[TaskCoordinates]) -> list[str]:
        """The tasks' questions. Raises `GenerationError` where a generator fails on one."""
        operation = generate_operation(self._families, ["question"], parse_question)
        return require_all(tasks, self._drive(run_plan(operation, tasks)))

    def items(self, tasks: Sequence[TaskCoordinates]) -> list[TaskItem]:
        """Questions, answers and metadata. Raises `GenerationError` as `questions` does."""
        operation = generate_operation(
            self._families, ["question", "answer", "metadata"], parse_item
        )
        return require_all(tasks, self._drive(run_plan(operation, tasks)))

    def question_digests(self, tasks: Sequence[TaskCoordinates]) -> list[Digest]:
        """16-byte digests of the questions, cached; empty where the generator fails on a task."""
        missing = [task for task in dict.fromkeys(tasks) if self._digests.get(task) is None]
        operation = generate_operation(self._families, ["digest"], parse_digest, too_slow=TOO_SLOW)
        made = require_digests(self._drive(run_plan(operation, missing)))
        found = dict(zip(missing, made, strict=True))
        digests = [found.get(task) or self._digests.get(task) or Digest(b"") for task in tasks]
        for task, digest in found.items():
            self._digests.put(task, digest)
        return digests

    def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        """Rewards, in order. One result per request, whatever happens to the worker meanwhile."""
        return self._drive(run_plan(score_operation(self._families), requests))

    def close(self) -> None:
        """End the worker and collect its status. A later call would start another."""
        self._stop()

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
        outcome: list[R] | Failure | None = None
        try:
            while True:
                call = next(plan) if outcome is None else plan.send(outcome)
                outcome = self._perform(call)
        except StopIteration as done:
            results: list[R] = done.value
            return results

    def _perform(self, call: Call[R]) -> list[R] | Failure:
        if self._spent:
            self._stop()
        self.start()
        assert self._channel is not None
        try:
            reply = self._channel.exchange(call.message, self._limits.request_timeout_seconds)
            check_ok(reply)
            results = call.parse(reply)
        except TimeoutError:
            self._stop()
            return Failure.TIMED_OUT
        except (OSError, WorkerProtocolError, WorkerUnavailable):
            self._stop()
            return Failure.CRASHED
        except BaseException:
            # An interrupt in the middle: the reply still in the pipe must not answer the next call.
            self._stop()
            raise
        self._spent = cpu_seconds(reply) > self._limits.recycle_cpu_seconds
        return results

    def _stop(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()


class _Channel:
    """Frames over the pipes of one worker process, with deadlines."""

    def __init__(self, process: WorkerProcess) -> None:
        self.process = process
        self._decoder = FrameDecoder()

    def exchange(self, message: Message, timeout_seconds: float) -> Message:
        """Send one message and wait for one. Raises TimeoutError, OSError, WorkerProtocolError."""
        deadline = time.monotonic() + timeout_seconds
        unsent = memoryview(encode_frame(message))
        while True:
            reply = self._decoder.next_message()
            if reply is not None:
                return reply
            readable, writable = self._wait(bool(unsent), deadline)
            if writable:
                unsent = unsent[os.write(self.process.write_fd, unsent) :]
            if readable:
                data = os.read(self.process.read_fd, _READ_BYTES)
                if not data:
                    raise BrokenPipeError("the task worker is gone")
                self._decoder.feed(data)

    def _wait(self, writing: bool, deadline: float) -> tuple[bool, bool]:
        poll = select.poll()
        poll.register(self.process.read_fd, select.POLLIN)
        if writing:
            poll.register(self.process.write_fd, select.POLLOUT)
        left = deadline - time.monotonic()
        events = dict(poll.poll(left * 1000)) if left > 0 else {}
        if not events:
            raise TimeoutError("the task worker did not answer in time")
        return self.process.read_fd in events, self.process.write_fd in events

    def close(self) -> None:
        self.process.kill()
        os.close(self.process.write_fd)
        os.close(self.process.read_fd)
        self.process.wait(_REAP_SECONDS)
