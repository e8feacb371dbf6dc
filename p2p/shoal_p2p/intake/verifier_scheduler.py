"""Schedules the task worker fairly, by network before identity.

    batch ─▶ FairQueue ─▶ least-charged first ─▶ a slice of its tasks ─▶ worker
                 ▲                                   │ charged before, corrected after
                 └─────── remaining tasks ◀──────────┘

The cost of a family's tasks is measured. A batch with a thousand expensive tasks is charged for
each slice before the worker starts it, and other publishers are served between two slices. If the
batches of one origin of a network already wait for too much work, another one is refused; no peer
is charged for that.

A publisher whose own batches time out unfinished is charged up to eight times as much per slice, so
that it gets less than its share while others wait. Forwarded and requested batches are charged
their cost: the peer that delivers them cannot know how fast this worker is.

A worker that uses this node's own OpenEnv server or judge has its own queue, so that it delays no
other family. Its speed is not the publishers' responsibility, so there a batch exceeds the limit by
its number of tasks alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import trio

from shoal_base.bounded import FEW, BoundedDict
from shoal_base.waits import MINUTE_S
from shoal_p2p.fair import ShareKey
from shoal_p2p.fair.buckets import DecayingSum
from shoal_p2p.fair.queue import FairQueue
from shoal_tasks.errors import WorkerUnavailable
from shoal_tasks.types import TaskCoordinates
from shoal_wire.types import Digest

SLICE_S = 0.05
"""Budget of one slice in seconds, by the estimated cost of its tasks; at least one task."""
AT_ONCE = 2
"""Slices sent to the worker: while one result is read, the other is computed."""
MAX_WAITING = 16
"""Waiting batches for each network and origin."""
QUEUE_TIMEOUT_S = 8.0
"""Maximum wait of a batch for the worker, in seconds; gossip waits ten for a verdict. A batch that
times out is validated again with each copy, and may arrive through gap repair alone."""
MAX_COST_S = 1.8
"""Worker seconds after which a batch is postponed, and limit on the estimated work waiting for one
network and origin, not counting the first batch. With 8 s, eight networks with constant requests
delayed an honest batch by 3.5 s in the median instead of 0.5 s. An unfinished batch that its signer
delivered exceeds the cost limit if it needs half of this by itself."""
SERVER_TIMEOUT_S = MAX_COST_S
"""Maximum wait of a batch for an own server or judge, in seconds. A waiting batch delays the next
messages of its sender."""

_MAX_WASTED_S = 7.0
"""Cap on wasted seconds; each slice is charged 1 + wasted seconds times its cost."""
OWN_TASK_S = 0.005
"""Seconds charged to the signer for a task of an own server or judge, whatever it takes: a reset
took 2 to 5 ms on a loaded machine. A batch of 180 such tasks exceeds the cost limit."""
_INITIAL_COST_S = 0.001
"""Seconds charged for a task of a family without measurements."""
_MIN_COST_S = 20e-6
_RISE, _FALL = 0.5, 0.2
"""An estimate rises quickly and falls slowly, since cheap slices may come from a cache."""
_ORIGIN_LEVELS = 2
"""Levels of a share key that name a network and an origin."""


REQUESTED = "requested"
"""Origin of batches that this node requested, whatever their signer."""


class CostLimitExceeded(WorkerUnavailable):
    """A batch that its signer delivered needs too much worker time by itself."""


class QuestionSource(Protocol):
    """Regenerates questions; implemented by the task worker's client."""

    async def question_digests(self, tasks: list[TaskCoordinates]) -> list[Digest]:
        """Return one 16-byte digest per task. Raises WorkerUnavailable."""

    def known_digests(self, tasks: Sequence[TaskCoordinates]) -> list[Digest] | None:
        """Return the digests if all are cached, otherwise None."""


class CostModel:
    """Estimates worker seconds per task, by family, from measurements."""

    def __init__(self) -> None:
        self._costs: BoundedDict[str, float] = BoundedDict()

    def of(self, family: str) -> float:
        """Return the estimated cost of one task of a family in seconds."""
        return self._costs.get(family, _INITIAL_COST_S)

    def estimate(self, tasks: Sequence[TaskCoordinates]) -> float:
        """Return the estimated cost of `tasks` in seconds."""
        families = Counter(task.family for task in tasks)
        return sum(num * self._costs.get(name, _INITIAL_COST_S) for name, num in families.items())

    def update(self, tasks: Sequence[TaskCoordinates], seconds: float) -> None:
        """Update the estimates with the measured total of `tasks`."""
        factor = seconds / max(_MIN_COST_S, self.estimate(tasks))
        for family in {task.family for task in tasks}:
            cost = self._costs.get(family, _INITIAL_COST_S)
            step = _RISE if factor > 1.0 else _FALL
            if family not in self._costs:
                step = 1.0
            self._costs[family] = max(_MIN_COST_S, cost * (1.0 + step * (factor - 1.0)))


@dataclass(slots=True, eq=False)
class _WaitingBatch:
    share_key: ShareKey
    tasks: Sequence[TaskCoordinates]
    cost_s: float
    surcharge: float
    """Factor on its charges."""
    found: list[Digest] = field(default_factory=list)
    part: list[TaskCoordinates] = field(default_factory=list)
    """Tasks of its current slice; empty while it waits."""
    part_s: float = 0.0
    used_s: float = 0.0
    """Worker seconds used so far."""
    turn: trio.Event = field(default_factory=trio.Event)

    @property
    def rest(self) -> Sequence[TaskCoordinates]:
        return self.tasks[len(self.found) :]


class VerifierScheduler:
    """Sends batches to the task workers in slices, least-charged share key first."""

    def __init__(
        self,
        questions: QuestionSource,
        *,
        lanes: Mapping[str, str] | None = None,
        timeout_s: float = QUEUE_TIMEOUT_S,
    ) -> None:
        """`lanes` names the worker of each family that an own server or judge provides."""
        self._questions = questions
        self._lanes = lanes or {}
        self._workers = {"": WorkerQueue(questions, timeout_s=timeout_s)} | {
            lane: WorkerQueue(questions, is_own_server=True, timeout_s=SERVER_TIMEOUT_S)
            for lane in self._lanes.values()
        }

    async def question_digests(
        self, tasks: Sequence[TaskCoordinates], share_key: ShareKey, *, is_own: bool = False
    ) -> list[Digest]:
        """Return one digest per task, immediately if all are cached.

        `share_key` is the network, origin and identity that is charged. `is_own` is true if the
        signer delivered the batch itself, and is therefore responsible for its cost.

        Raises:
            CostLimitExceeded: it timed out, `is_own` is true, and its own cost is too high.
            WorkerUnavailable: it timed out, or too much work of this origin is waiting.
            UnknownFamily: from the worker.
        """
        if (known := self._questions.known_digests(tasks)) is not None:
            return known
        apart: dict[str, list[TaskCoordinates]] = {}
        for task in dict.fromkeys(tasks):
            apart.setdefault(self._lanes.get(task.family, ""), []).append(task)
        found: dict[TaskCoordinates, Digest] = {}
        for lane in sorted(
            apart
        ):  # "" first: those families are the same on every node, and charged
            made = await self._workers[lane].question_digests(apart[lane], share_key, is_own=is_own)
            found |= zip(apart[lane], made, strict=True)
        return [found[task] for task in tasks]


class WorkerQueue:
    """The queue of one worker."""

    def __init__(
        self,
        questions: QuestionSource,
        *,
        is_own_server: bool = False,
        timeout_s: float,
    ) -> None:
        """`is_own_server`: the worker uses an own server or judge; its time charges no peer."""
        self._questions = questions
        self._is_own_server = is_own_server
        self._timeout_s = timeout_s
        self._costs = CostModel()
        self._queue: FairQueue[_WaitingBatch] = FairQueue()
        self._jobs: dict[ShareKey, list[_WaitingBatch]] = {}
        """All waiting and running batches, by network and origin."""
        self._wasted: BoundedDict[ShareKey, DecayingSum] = BoundedDict()
        """Worker seconds wasted by a network's own batches, by network and origin."""
        self._num_running = 0
        self._running: list[_WaitingBatch] = []
        """The jobs whose slices are at the worker, in order of execution."""
        self._free_at = -math.inf
        """Time when the worker finished the previous slice; infinite if unknown."""

    async def question_digests(
        self,
        tasks: Sequence[TaskCoordinates],
        share_key: ShareKey,
        *,
        is_own: bool,
    ) -> list[Digest]:
        """Return one digest per task, like `VerifierScheduler.question_digests`."""
        job = self._enqueue(share_key, tasks)
        try:
            with trio.move_on_after(self._timeout_s):
                while job.used_s < MAX_COST_S:
                    if not job.turn.is_set():
                        await job.turn.wait()
                    await self._run_slice(job)
                    if len(job.found) == len(tasks):
                        return job.found
                    self._queue.add(share_key, job, first=True)
                    self._start_slices()
        finally:
            self._dequeue(job)
        own_cost_s = job.used_s + self._costs.estimate(job.rest)
        wasted_s = job.used_s
        if self._is_own_server:
            own_cost_s = wasted_s = OWN_TASK_S * len(tasks)
        if is_own and 2 * own_cost_s >= MAX_COST_S:
            origin, now = share_key[:_ORIGIN_LEVELS], trio.current_time()
            wasted = self._wasted.use(origin, lambda: DecayingSum(half_life_s=MINUTE_S, at=now))
            wasted.add(wasted_s, now)
            raise CostLimitExceeded("the tasks exceeded the task worker's time limit")
        raise WorkerUnavailable("the task worker did not answer in time")

    def _wasted_s(self, origin: ShareKey, now: float) -> float:
        """Return the decayed worker seconds wasted by a network and origin."""
        wasted = self._wasted.get(origin)
        return 0.0 if wasted is None else wasted.now(now)

    def _enqueue(self, share_key: ShareKey, tasks: Sequence[TaskCoordinates]) -> _WaitingBatch:
        origin, cost_s = share_key[:_ORIGIN_LEVELS], self._costs.estimate(tasks)
        jobs = self._jobs.get(origin, [])
        waiting_s = sum(job.cost_s for job in jobs)
        if jobs and (len(jobs) >= MAX_WAITING or waiting_s + cost_s > MAX_COST_S):
            raise WorkerUnavailable("too much work of this origin waits for the task worker")
        surcharge = 1.0 + min(_MAX_WASTED_S, self._wasted_s(origin, trio.current_time()))
        job = _WaitingBatch(share_key, tasks, cost_s, surcharge)
        self._jobs[origin] = [*jobs, job]
        self._queue.add(share_key, job)
        self._start_slices()
        return job

    def _start_slices(self) -> None:
        """Start queued jobs while slots are free, least-charged first, and charge them."""
        while self._num_running < AT_ONCE and (found := self._queue.pop()) is not None:
            share_key, job = found
            job.part, job.part_s = self._slice(job.rest)
            self._queue.charge(share_key, job.part_s * job.surcharge)
            self._num_running += 1
            job.turn.set()

    def _slice(self, tasks: Sequence[TaskCoordinates]) -> tuple[list[TaskCoordinates], float]:
        """Return the first tasks that fit into one slice, and their estimated cost."""
        part: list[TaskCoordinates] = []
        cost_s = 0.0
        for task in tasks[:FEW]:
            of_task = self._costs.of(task.family)
            if part and cost_s + of_task > SLICE_S:
                break
            part.append(task)
            cost_s += of_task
        return part, cost_s

    async def _run_slice(self, job: _WaitingBatch) -> None:
        began, is_done = trio.current_time(), False
        self._running.append(job)
        try:
            job.found += await self._questions.question_digests(job.part)
            is_done = True
        finally:
            # The worker runs one slice at a time, so only the first one's time is measured.
            if self._running[0] is job:
                self._settle(job, began, is_done=is_done)
            self._running.remove(job)
            self._num_running -= 1
            job.part, job.turn = [], trio.Event()

    def _settle(self, job: _WaitingBatch, began: float, *, is_done: bool) -> None:
        """Charge a slice for its measured time.

        After an abandoned slice the time is unknown: the worker may still be running that one.
        """
        ended = trio.current_time()
        elapsed_s = ended - max(began, self._free_at)
        self._free_at = ended if is_done else math.inf
        if elapsed_s >= 0:
            job.used_s += elapsed_s
            self._queue.charge(job.share_key, max(0.0, elapsed_s - job.part_s) * job.surcharge)
            self._costs.update(job.part, elapsed_s)

    def _dequeue(self, job: _WaitingBatch) -> None:
        self._queue.discard(job.share_key, job)
        origin = job.share_key[:_ORIGIN_LEVELS]
        self._jobs[origin].remove(job)
        if not self._jobs[origin]:
            del self._jobs[origin]
        if job.part:  # its turn had come, and it did not run
            self._num_running -= 1
        self._start_slices()
