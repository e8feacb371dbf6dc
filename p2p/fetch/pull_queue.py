"""Which big batches wait to be pulled, and how many of whom: bounds only. Pure.

A publisher may announce thousands of huge batches, and nobody can tell beforehand which of them
exist: so waiting ones are few, each publisher's fewer, and bytes are rationed before they flow.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field

from p2p.intake.validation import Source
from p2p.token_bucket import KeyedBuckets, Rate, TokenBucket
from shoal_base.bounded import BoundedDict
from shoal_wire.types import BatchId, PeerId
from shoal_wire.verdict import Reason

_MAX_STRUCK = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """Bounds of what waits, runs and flows."""

    max_jobs: int = 256
    """Waiting and running."""
    max_jobs_per_publisher: int = 32
    max_running_per_publisher: int = 2
    max_running: int = 8
    max_running_bytes: int = 32 << 20
    bytes_per_publisher: Rate = field(default=Rate(burst=24 << 20, per_second=1 << 20))
    bytes_of_all: Rate = field(default=Rate(burst=64 << 20, per_second=8 << 20))


@dataclass(frozen=True, slots=True, kw_only=True)
class PullJob:
    """A batch to be pulled."""

    batch_id: BatchId
    publisher: PeerId
    sequence: int
    num_bytes: int
    source: Source
    hints: tuple[PeerId, ...]
    """Peers that said they have it or told of it, the most likely first."""
    expires_ms: int
    """Wall clock after which it is of no use."""


class PullQueue:
    """Jobs in the order in which they came; `now` is monotonic seconds."""

    def __init__(self, limits: QueueLimits, now: float) -> None:
        self._limits = limits
        self._jobs: OrderedDict[BatchId, PullJob] = OrderedDict()
        self._running: set[BatchId] = set()
        self._per_publisher: Counter[PeerId] = Counter()
        self._bytes: KeyedBuckets[PeerId] = KeyedBuckets(limits.bytes_per_publisher)
        self._all_bytes = TokenBucket(limits.bytes_of_all, now)
        self._strikes: BoundedDict[PeerId, int] = BoundedDict(_MAX_STRUCK)

    def __contains__(self, batch_id: BatchId) -> bool:
        return batch_id in self._jobs

    @property
    def num_waiting(self) -> int:
        """Jobs that do not run yet."""
        return len(self._jobs) - len(self._running)

    @property
    def num_running(self) -> int:
        """Jobs that run."""
        return len(self._running)

    def refuse(self, job: PullJob, now: float) -> Reason | None:
        """Return why `job` may not be added now; None if it may."""
        if job.batch_id in self._jobs:
            return Reason.DUPLICATE
        if self._per_publisher[job.publisher] >= self._limits.max_jobs_per_publisher:
            return Reason.OVER_QUOTA
        if job.num_bytes > self._bytes.of(job.publisher, now).available(now):
            return Reason.OVER_QUOTA
        if len(self._jobs) >= self._limits.max_jobs and self._displaced_by(job) is None:
            return Reason.INTAKE_FULL
        # Claimed bytes are the claimant's; what all share is charged as it flows.
        return Reason.INTAKE_FULL if self._all_bytes.available(now) <= 0 else None

    def add(self, job: PullJob, now: float) -> None:
        """Add a job that `refuse` has let through, and take its bytes off its publisher's quota.

        In a full queue it takes the place of one of whoever has most waiting.
        """
        if len(self._jobs) >= self._limits.max_jobs:
            displaced = self._displaced_by(job)
            assert displaced is not None  # `refuse` has seen one
            self.finish(displaced)
        self._jobs[job.batch_id] = job
        self._per_publisher[job.publisher] += 1
        self._bytes.of(job.publisher, now).take(job.num_bytes, now)

    def flowed(self, num_bytes: int, now: float) -> None:
        """Take bytes that have come off what all may send."""
        self._all_bytes.take(num_bytes, now)

    def strike(self, publisher: PeerId, *, failed: bool) -> None:
        """Note that a publisher's batch could not be had, or could: who fails comes last."""
        if not failed:
            self._strikes.pop(publisher, None)
            return
        self._strikes[publisher] = self._strikes.get(publisher, 0) + 1

    def start_next(self) -> PullJob | None:
        """Return the next job that may run, which then counts as running."""
        if len(self._running) >= self._limits.max_running:
            return None
        running = [self._jobs[batch_id] for batch_id in self._running]
        room = self._limits.max_running_bytes - sum(job.num_bytes for job in running)
        publishers = Counter(job.publisher for job in running)
        fit = [
            job
            for job in self._jobs.values()
            if job.batch_id not in self._running
            and (not running or job.num_bytes <= room)
            and publishers[job.publisher] < self._limits.max_running_per_publisher
        ]
        if not fit:
            return None
        job = min(fit, key=lambda job: self._strikes.get(job.publisher, 0))
        self._running.add(job.batch_id)
        return job

    def _displaced_by(self, job: PullJob) -> BatchId | None:
        """Return the last waiting job of the publisher with most jobs, if it has enough more."""
        greedy, count = max(self._per_publisher.items(), key=lambda item: item[1])
        if count <= self._per_publisher[job.publisher] + 1:
            return None
        waiting = [
            other.batch_id
            for other in self._jobs.values()
            if other.publisher == greedy and other.batch_id not in self._running
        ]
        return waiting[-1] if waiting else None

    def finish(self, batch_id: BatchId) -> None:
        """Forget a job, whatever became of it."""
        job = self._jobs.pop(batch_id)
        self._running.discard(batch_id)
        self._per_publisher[job.publisher] -= 1
        if not self._per_publisher[job.publisher]:
            del self._per_publisher[job.publisher]
