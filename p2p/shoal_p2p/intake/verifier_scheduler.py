"""The task worker's time, shared by network before it is shared by name.

    batch ─▶ FairQueue ─▶ whoever has paid least ─▶ a slice of its tasks ─▶ worker
                 ▲                                         │ pays before, settles after
                 └───────── the rest of its tasks ◀────────┘

What a family's tasks cost is measured; a batch that names a thousand of them pays for each slice
before the worker begins with it, and everybody else has a turn between two slices.  Where the
batches of one side of a network wait for more than anybody would, another one is refused, which is
no fault of who signed or brought it.

Whose own batches need too much of a message's time, and are not done, pays more for each turn: up
to eight times, so that it has less than its share while others wait.  What is passed on or was
asked for pays what it costs: who brings it does not know how fast this worker is.

A worker of this node's own OpenEnv server or judge has turns of its own, so that it holds nobody
else up.  How long it takes is this node's affair: there, a batch is too dear by the number of its
tasks alone.
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
from shoal_p2p.fair.queue import FairQueue
from shoal_tasks.errors import WorkerUnavailable
from shoal_tasks.types import TaskCoordinates
from shoal_wire.types import Digest

SLICE_S = 0.05
"""Budget of one turn in seconds, by what its tasks usually cost; one task at least."""
AT_ONCE = 2
"""Slices at the worker: while one is read, the other is worked on."""
MAX_WAITING = 16
"""Batches of one side of a network."""
PATIENCE_S = 8.0
"""Longest wait of a batch for the worker, in seconds: gossip waits ten for a verdict. What is put
off is judged again with each copy, and may come by gap repair alone."""
DEAR_S = 1.8
"""The worker's time after which a batch is put off, in seconds, and bound on what the batches of
one side of a network wait for together, beside the first: with 8 s, eight networks that ask without
end made an honest batch wait 3.5 s in the median, not 0.5 s. A batch that its signer brought is too
dear if it alone needs half of that, and was not done."""
SERVER_PATIENCE_S = DEAR_S
"""Longest wait of a batch for an own server or judge, in seconds: what waits for one holds up what
its sender sends next."""

_MOST_WASTED_S = 7.0
"""Beyond this turns get no dearer; each is paid 1 + seconds wasted times."""
OWN_TASK_S = 0.005
"""Charge for a task of an own server or judge to its signer, however long it takes, in seconds: a
reset took 2 to 5 ms on a server on one loaded machine. So a batch of 180 such tasks is too dear."""
_FIRST_PRICE_S = 0.001
"""Charge for a task whose family has not been measured, in seconds."""
_LEAST_PRICE_S = 20e-6
_RISE, _FALL = 0.5, 0.2
"""A price follows dear slices quickly and cheap ones, which were perhaps remembered, slowly."""
_SIDE = 2
"""Parts of a path that name a side of a network."""


ASKED_FOR = "asked for"
"""The side of a network's batches that this node has asked for, whoever signed them."""


class CostLimitExceeded(WorkerUnavailable):
    """A batch that its signer brought needs too much of a message's time for itself alone."""


class QuestionSource(Protocol):
    """Regenerates questions (the task worker)."""

    async def question_digests(self, tasks: list[TaskCoordinates]) -> list[Digest]:
        """Return one 16-byte digest a task; raises WorkerUnavailable."""

    def known_digests(self, tasks: Sequence[TaskCoordinates]) -> list[Digest] | None:
        """Return the same, if all of them are remembered; None if the worker has to be asked."""


class Prices:
    """Measured cost of a task of each family to the worker, in seconds."""

    def __init__(self) -> None:
        self._prices: BoundedDict[str, float] = BoundedDict()

    def of(self, tasks: Sequence[TaskCoordinates]) -> float:
        """Return what tasks will cost, by what theirs have cost so far."""
        families = Counter(task.family for task in tasks)
        return sum(num * self.of_one(family) for family, num in families.items())

    def of_one(self, family: str) -> float:
        """Return what one task of a family will cost."""
        return self._prices.get(family, _FIRST_PRICE_S)

    def measured(self, tasks: Sequence[TaskCoordinates], seconds: float) -> None:
        """Learn from what tasks have cost together."""
        factor = seconds / max(_LEAST_PRICE_S, self.of(tasks))
        for family in {task.family for task in tasks}:
            price = self.of_one(family)
            step = _RISE if factor > 1.0 else _FALL
            if family not in self._prices:
                step = 1.0
            self._prices[family] = max(_LEAST_PRICE_S, price * (1.0 + step * (factor - 1.0)))


@dataclass(slots=True, eq=False)
class _WaitingBatch:
    share_key: ShareKey
    tasks: Sequence[TaskCoordinates]
    price_s: float
    dearness: float
    """Factor by which it pays more for its turns."""
    found: list[Digest] = field(default_factory=list)
    part: list[TaskCoordinates] = field(default_factory=list)
    """Tasks of its present turn; empty while it waits."""
    part_s: float = 0.0
    used_s: float = 0.0
    """The worker's time that it has had."""
    turn: trio.Event = field(default_factory=trio.Event)

    @property
    def rest(self) -> Sequence[TaskCoordinates]:
        return self.tasks[len(self.found) :]


class VerifierScheduler:
    """Asks the workers, each for few slices at a time, of whoever has had least of its time."""

    def __init__(
        self,
        questions: QuestionSource,
        *,
        lanes: Mapping[str, str] | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`lanes` names the worker of each family that an own server or judge makes."""
        self._questions = questions
        self._lanes = lanes or {}
        self._workers = {"": _Lane(questions, patience_s=patience_s)} | {
            lane: _Lane(questions, is_own_server=True, patience_s=SERVER_PATIENCE_S)
            for lane in self._lanes.values()
        }

    async def question_digests(
        self, tasks: Sequence[TaskCoordinates], share_key: ShareKey, *, is_own: bool = False
    ) -> list[Digest]:
        """Return one digest a task; at once where all are remembered, which takes nobody's turn.

        `share_key` is the network, side and name that the batch counts for; `is_own` says that its
        signer brought it, who answers for what it costs.

        Raises:
            TooDear: it took too long, and they are the signer's own and too dear alone.
            WorkerUnavailable: too much of this side waits, or it took too long.
            UnknownFamily: as the worker does.
        """
        if (known := self._questions.known_digests(tasks)) is not None:
            return known
        apart: dict[str, list[TaskCoordinates]] = {}
        for task in dict.fromkeys(tasks):
            apart.setdefault(self._lanes.get(task.family, ""), []).append(task)
        found: dict[TaskCoordinates, Digest] = {}
        for lane in sorted(apart):  # what is every node's alike comes first, and is paid for
            made = await self._workers[lane].question_digests(apart[lane], share_key, is_own=is_own)
            found |= zip(apart[lane], made, strict=True)
        return [found[task] for task in tasks]


class _Lane:
    """The turns of one worker."""

    def __init__(
        self,
        questions: QuestionSource,
        *,
        is_own_server: bool = False,
        patience_s: float,
    ) -> None:
        """`is_own_server`: its time says nothing about who asks (an own server's or judge's)."""
        self._questions = questions
        self._is_own_server = is_own_server
        self._patience_s = patience_s
        self._prices = Prices()
        self._queue: FairQueue[_WaitingBatch] = FairQueue()
        self._jobs: dict[ShareKey, list[_WaitingBatch]] = {}
        """All that wait or are at the worker, by side of a network."""
        self._wasted: BoundedDict[ShareKey, tuple[float, float]] = BoundedDict()
        """The worker's seconds that a network's own batches have wasted, and by when."""
        self._num_at_work = 0
        self._at_work: list[_WaitingBatch] = []
        """The jobs whose slices are at the worker, in the order in which it does them."""
        self._free_at = -math.inf
        """Time when the worker was done with the last of the others; infinite while unknown."""

    async def question_digests(
        self,
        tasks: Sequence[TaskCoordinates],
        share_key: ShareKey,
        *,
        is_own: bool,
    ) -> list[Digest]:
        """Return one digest a task, as `VerifierScheduler.question_digests`."""
        job = self._join(share_key, tasks)
        try:
            with trio.move_on_after(self._patience_s):
                while job.rest and job.used_s < DEAR_S:
                    if not job.turn.is_set():
                        await job.turn.wait()
                    await self._serve(job)
                    self._end_turn(job)
                    if job.rest:
                        self._queue.add(share_key, job, first=True)
                        self._give_turns()
                if not job.rest:
                    return job.found
        finally:
            self._leave(job)
        alone_s = job.used_s + self._prices.of(job.rest)
        wasted_s = job.used_s
        if self._is_own_server:
            alone_s = wasted_s = OWN_TASK_S * len(tasks)
        if is_own and 2 * alone_s >= DEAR_S:
            side, now = share_key[:_SIDE], trio.current_time()
            self._wasted.put(side, (self._wasted_s(side, now) + wasted_s, now))
            raise CostLimitExceeded("the tasks took the task worker too long")
        raise WorkerUnavailable("the task worker did not answer in time")

    def _wasted_s(self, side: ShareKey, now: float) -> float:
        """Return what a side of a network has wasted lately."""
        seconds, at = self._wasted.get(side, (0.0, now))
        return seconds * 0.5 ** ((now - at) / MINUTE_S)

    def _join(self, share_key: ShareKey, tasks: Sequence[TaskCoordinates]) -> _WaitingBatch:
        side, price_s = share_key[:_SIDE], self._prices.of(tasks)
        jobs = self._jobs.get(side, [])
        waiting_s = sum(job.price_s for job in jobs)
        if jobs and (len(jobs) >= MAX_WAITING or waiting_s + price_s > DEAR_S):
            raise WorkerUnavailable("too much waits for the task worker by this way")
        dearness = 1.0 + min(_MOST_WASTED_S, self._wasted_s(side, trio.current_time()))
        job = _WaitingBatch(share_key, tasks, price_s, dearness)
        self._jobs[side] = [*jobs, job]
        self._queue.add(share_key, job)
        self._give_turns()
        return job

    def _give_turns(self) -> None:
        """Give what turns there are to whoever has had least, who pays for them now."""
        while self._num_at_work < AT_ONCE and (found := self._queue.pop()) is not None:
            share_key, job = found
            job.part, job.part_s = self._slice(job.rest)
            self._queue.charge(share_key, job.part_s * job.dearness)
            self._num_at_work += 1
            job.turn.set()

    def _slice(self, tasks: Sequence[TaskCoordinates]) -> tuple[list[TaskCoordinates], float]:
        """Return the first of `tasks`, as many as one turn is for, and their price."""
        part: list[TaskCoordinates] = []
        price_s = 0.0
        for task in tasks[:FEW]:
            of_task = self._prices.of_one(task.family)
            if part and price_s + of_task > SLICE_S:
                break
            part.append(task)
            price_s += of_task
        return part, price_s

    async def _serve(self, job: _WaitingBatch) -> None:
        began, is_done = trio.current_time(), False
        self._at_work.append(job)
        try:
            job.found += await self._questions.question_digests(job.part)
            is_done = True
        finally:
            # The worker does one thing at a time: what others were there for is not this one's.
            if self._at_work[0] is job:
                self._settle(job, began, is_done=is_done)
            self._at_work.remove(job)

    def _settle(self, job: _WaitingBatch, began: float, *, is_done: bool) -> None:
        """Have a slice pay what it took.

        Behind one that was given up nobody can say: the worker may be at that one still.
        """
        ended = trio.current_time()
        took_s = ended - max(began, self._free_at)
        self._free_at = ended if is_done else math.inf
        if took_s >= 0:
            job.used_s += took_s
            self._queue.charge(job.share_key, max(0.0, took_s - job.part_s) * job.dearness)
            self._prices.measured(job.part, took_s)

    def _end_turn(self, job: _WaitingBatch) -> None:
        job.part, job.turn = [], trio.Event()
        self._num_at_work -= 1

    def _leave(self, job: _WaitingBatch) -> None:
        self._queue.discard(job.share_key, job)
        side = job.share_key[:_SIDE]
        self._jobs[side].remove(job)
        if not self._jobs[side]:
            del self._jobs[side]
        if job.part:
            self._end_turn(job)
        self._give_turns()
