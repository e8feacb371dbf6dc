"""The task worker's time, shared between those who want it before it is given to names.

    batch ─▶ its lane (bounded) ─▶ the lane that has paid least ─▶ a slice of its tasks ─▶ worker
                 ▲                                                      │ pays before, settles after
                 └──────────── the rest of its tasks ◀──────────────────┘

A lane is what one network brings, of what its peers sign or of what they pass on (`lanes_by`).
What a family's tasks cost is measured; a batch that names a thousand of them pays for each slice
before the worker begins with it, and everybody else has a turn between two slices.  A lane whose
batches wait for more than anybody would is refused, which is no fault of who signed or brought
them.

Whose own batches need too much of a message's time, and are not done, pays more for each turn: up
to eight times, so that it has less than its share while others wait.  What is passed on or was
asked for pays what it costs: who brings it does not know how fast this worker is.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import trio

from shoal_base.bounded import BoundedDict
from shoal_tasks.errors import WorkerUnavailable
from shoal_tasks.types import TaskCoordinates
from shoal_wire.types import Digest, PeerId

SLICE_S = 0.05
"""What one turn may cost, by what its tasks usually do; one task at least."""
SLICE_TASKS = 64
AT_ONCE = 2
"""Slices at the worker: while one is read, the other is worked on."""
MAX_WAITING = 16
"""Batches of one lane."""
MAX_WAITING_S = 1.8
"""And what they may cost together, beside the first: gossip waits two seconds for a verdict."""

_WASTED_HALF_LIFE_S = 60.0
_MOST_WASTED_S = 7.0
"""Beyond this a lane's turns get no dearer, of which each is paid 1 + seconds wasted times."""
_MAX_WASTEFUL = 1024
_FIRST_PRICE_S = 0.001
"""Of a task whose family has not been measured."""
_LEAST_PRICE_S = 20e-6
_RISE, _FALL = 0.5, 0.2
"""A price follows dear slices quickly and cheap ones, which were perhaps remembered, slowly."""
_MAX_FAMILIES = 1024
_MAX_INDEBTED = 1024

Lane = str
LaneOf = Callable[[PeerId, PeerId], Lane]
"""``lane_of(author, brought_by)``"""


class TooDear(WorkerUnavailable):
    """A batch that its signer brought needs too much of a message's time for itself alone."""


class QuestionSource(Protocol):
    """Regenerates questions (the task worker)."""

    async def question_digests(self, tasks: list[TaskCoordinates]) -> list[Digest]:
        """Return one 16-byte digest a task; raises WorkerUnavailable."""

    def known_digests(self, tasks: Sequence[TaskCoordinates]) -> list[Digest] | None:
        """Return the same, if all of them are remembered; None if the worker has to be asked."""


def lanes_by(network_of: Callable[[PeerId], str]) -> LaneOf:
    """Return how batches are told apart: by who brings them, and whether it signed them itself.

    Apart, so that what a peer passes on does not delay what it says itself. Nobody has a lane for
    being right: whoever makes a question has its answer.
    """

    def lane_of(author: PeerId, brought_by: PeerId) -> Lane:
        side = "signed" if author == brought_by else "passed on"
        return f"{side} by {network_of(brought_by)}"

    return lane_of


lane_of_bringer: Final = lanes_by(str)
"""Where networks are not known, each peer is one."""


class Prices:
    """What a task of each family costs the worker, in seconds, as measured."""

    def __init__(self) -> None:
        self._prices: BoundedDict[str, float] = BoundedDict(_MAX_FAMILIES)

    def of(self, tasks: Sequence[TaskCoordinates]) -> float:
        """Return what tasks will cost, by what theirs have cost so far."""
        return sum(self._prices.get(task.family, _FIRST_PRICE_S) for task in tasks)

    def measured(self, tasks: Sequence[TaskCoordinates], seconds: float) -> None:
        """Learn from what tasks have cost together."""
        factor = seconds / max(_LEAST_PRICE_S, self.of(tasks))
        for family in {task.family for task in tasks}:
            price = self._prices.get(family, _FIRST_PRICE_S)
            step = _RISE if factor > 1.0 else _FALL
            if family not in self._prices:
                step = 1.0
            self._prices[family] = max(_LEAST_PRICE_S, price * (1.0 + step * (factor - 1.0)))


@dataclass(slots=True, eq=False)
class _Job:
    tasks: Sequence[TaskCoordinates]
    price_s: float
    found: list[Digest] = field(default_factory=list)
    part: list[TaskCoordinates] = field(default_factory=list)
    """What it has the turn for; empty while it waits."""
    part_s: float = 0.0
    used_s: float = 0.0
    """The worker's time that it has had."""
    turn: trio.Event = field(default_factory=trio.Event)


@dataclass(slots=True, eq=False)
class _Queue:
    paid_s: float
    """What the lane has had, on the clock of all lanes."""
    dearness: float = 1.0
    """How many times over it pays for its turns."""
    jobs: deque[_Job] = field(default_factory=deque)
    waiting_s: float = 0.0

    def first(self) -> _Job | None:
        """Return who is to have the lane's next turn."""
        return next((job for job in self.jobs if not job.part), None)


class WorkerTurns:
    """Asks the worker for few slices at a time, of the lanes that have had least."""

    def __init__(self, questions: QuestionSource, *, patience_s: float = MAX_WAITING_S) -> None:
        self._questions = questions
        self._patience_s = patience_s
        self._prices = Prices()
        self._queues: dict[Lane, _Queue] = {}
        """Of who waits, and for a while of who has had more than its part."""
        self._wasted: BoundedDict[Lane, tuple[float, float]] = BoundedDict(_MAX_WASTEFUL)
        """The worker's seconds that a lane's own batches have wasted, and by when."""
        self._clock_s = 0.0
        """What the lane served last had had: a lane that comes starts from here."""
        self._num_at_work = 0
        self._at_work: list[_Job] = []
        """The jobs whose slices are at the worker, in the order in which it does them."""
        self._free_at = -math.inf
        """When the worker was done with the last of the others; infinite while that is unknown."""

    async def question_digests(
        self, tasks: Sequence[TaskCoordinates], lane: Lane, *, is_own: bool = False
    ) -> list[Digest]:
        """Return one digest a task; at once where all are remembered, which takes nobody's turn.

        `is_own` says that its signer brought it, who answers for what it costs.

        Raises:
            TooDear: it took too long, and they are the signer's own and need half of that alone.
            WorkerUnavailable: too much of this lane waits, or it took too long.
            UnknownFamily: as the worker does.
        """
        if not tasks:
            return []
        if (known := self._questions.known_digests(tasks)) is not None:
            return known
        queue, job = self._join(lane, tasks)
        try:
            with trio.move_on_after(self._patience_s):
                while len(job.found) < len(tasks):
                    await job.turn.wait()
                    await self._serve(queue, job)
                    self._end_turn(job)
                    if len(job.found) < len(tasks):
                        self._give_turns()
                return job.found
        finally:
            self._leave(queue, job)
        alone_s = job.used_s + self._prices.of(tasks[len(job.found) :])
        if is_own and 2 * alone_s >= self._patience_s:
            now = trio.current_time()
            self._wasted.put(lane, (self._wasted_s(lane, now) + job.used_s, now))
            raise TooDear("the tasks took the task worker too long")
        raise WorkerUnavailable("the task worker did not answer in time")

    def _wasted_s(self, lane: Lane, now: float) -> float:
        """Return what a lane has wasted lately."""
        seconds, at = self._wasted.get(lane, (0.0, now))
        return seconds * 0.5 ** ((now - at) / _WASTED_HALF_LIFE_S)

    def _join(self, lane: Lane, tasks: Sequence[TaskCoordinates]) -> tuple[_Queue, _Job]:
        job = _Job(tasks, self._prices.of(tasks))
        queue = self._queues.get(lane)
        if queue is None:
            queue = self._queues[lane] = _Queue(paid_s=self._clock_s)
        if queue.jobs and (
            len(queue.jobs) >= MAX_WAITING or queue.waiting_s + job.price_s > MAX_WAITING_S
        ):
            raise WorkerUnavailable("too much waits for the task worker by this way")
        queue.paid_s = max(queue.paid_s, self._clock_s)
        queue.dearness = 1.0 + min(_MOST_WASTED_S, self._wasted_s(lane, trio.current_time()))
        queue.jobs.append(job)
        queue.waiting_s += job.price_s
        self._give_turns()
        return queue, job

    def _give_turns(self) -> None:
        """Give what turns there are to the lanes that have had least; they pay for them now."""
        while self._num_at_work < AT_ONCE:
            waiting = [(q, job) for q in self._queues.values() if (job := q.first()) is not None]
            if not waiting:
                return
            queue, job = min(waiting, key=lambda pair: pair[0].paid_s)
            self._clock_s = max(self._clock_s, queue.paid_s)
            job.part, job.part_s = self._slice(job.tasks[len(job.found) :])
            queue.paid_s += job.part_s * queue.dearness
            self._num_at_work += 1
            job.turn.set()

    def _slice(self, tasks: Sequence[TaskCoordinates]) -> tuple[list[TaskCoordinates], float]:
        """Return the first of `tasks`, as many as one turn is for, and their price."""
        part: list[TaskCoordinates] = []
        price_s = 0.0
        for task in tasks[:SLICE_TASKS]:
            of_task = self._prices.of([task])
            if part and price_s + of_task > SLICE_S:
                break
            part.append(task)
            price_s += of_task
        return part, price_s

    async def _serve(self, queue: _Queue, job: _Job) -> None:
        began, is_done = trio.current_time(), False
        self._at_work.append(job)
        try:
            job.found += await self._questions.question_digests(job.part)
            is_done = True
        finally:
            # The worker does one thing at a time: what others were there for is not this one's.
            if self._at_work[0] is job:
                self._settle(queue, job, began, is_done=is_done)
            self._at_work.remove(job)

    def _settle(self, queue: _Queue, job: _Job, began: float, *, is_done: bool) -> None:
        """Have a slice pay what it took.

        Behind one that was given up nobody can say: the worker may be at that one still.
        """
        ended = trio.current_time()
        took_s = ended - max(began, self._free_at)
        self._free_at = ended if is_done else math.inf
        if took_s >= 0:
            job.used_s += took_s
            queue.paid_s += max(0.0, took_s - job.part_s) * queue.dearness
            self._prices.measured(job.part, took_s)

    def _end_turn(self, job: _Job) -> None:
        job.part, job.turn = [], trio.Event()
        self._num_at_work -= 1

    def _leave(self, queue: _Queue, job: _Job) -> None:
        queue.jobs.remove(job)
        if job.part:
            self._end_turn(job)
        queue.waiting_s = queue.waiting_s - job.price_s if queue.jobs else 0.0
        indebted = len(self._queues) <= _MAX_INDEBTED
        self._queues = {
            lane: kept
            for lane, kept in self._queues.items()
            if kept.jobs or (indebted and kept.paid_s > self._clock_s)
        }
        self._give_turns()
