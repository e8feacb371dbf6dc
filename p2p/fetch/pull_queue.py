"""Which big batches wait to be pulled, and how many of whom: bounds only. Pure.

A publisher may announce thousands of huge batches, and nobody can tell beforehand which of them
exist: so waiting ones are few, each publisher's fewer, and bytes are rationed before they flow.
Names are free: what waits and runs is shared by the lane that a claim came by, and then by name.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field

from p2p.fair.buckets import KeyedBuckets, Rate, TokenBucket
from p2p.intake.validation import Source
from shoal_base.bounded import BoundedDict
from shoal_wire.rollout_messages import BatchRef
from shoal_wire.types import BatchId, PeerId
from shoal_wire.verdict import Reason

_MAX_STRUCK = 1024

Claim = tuple[BatchId, PeerId, int, int, int]
"""Id, publisher, number and size of a batch, as somebody states them."""
Account = tuple[PeerId, PeerId]
"""Who claims something, and of whom: what others claim takes nothing of a publisher's own share."""
Lane = tuple[str, bool]
"""The network of the connection that a claim came by, and whether it is the publisher's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """Bounds of what waits, runs and flows."""

    max_jobs: int = 256
    """Waiting and running."""
    max_jobs_per_publisher: int = 32
    max_running_per_publisher: int = 2
    max_running: int = 8
    max_running_beyond: int = 4
    """More, each the first of a lane that has claimed nothing in vain: who holds all others does
    not keep it waiting."""
    max_running_bytes: int = 32 << 20
    bytes_per_publisher: Rate = field(default=Rate(burst=24 << 20, per_second=1 << 20))
    bytes_of_all: Rate = field(default=Rate(burst=64 << 20, per_second=8 << 20))


@dataclass(frozen=True, slots=True, kw_only=True)
class PullJob:
    """A batch to be pulled, as somebody claims it to be: only its bytes will tell."""

    batch_id: BatchId
    publisher: PeerId
    sequence: int
    num_bytes: int
    num_groups: int
    source: Source
    hints: tuple[PeerId, ...]
    """Peers that said they have it or told of it, the most likely first."""
    expires_ms: int
    """Wall clock after which it is of no use."""
    lane: Lane = ("", False)

    @property
    def claim(self) -> Claim:
        """All that was said of the batch: what proves false says nothing of another claim."""
        return claim_of(self)

    @property
    def account(self) -> Account:
        """Whose share it takes: that of who announced it, or that of who listed it as another's."""
        claimant = self.publisher if self.source is Source.PULL else self.hints[0]
        return claimant, self.publisher


def claim_of(told: PullJob | BatchRef) -> Claim:
    """Return what an announcement or a listing says of a batch, which the digest alone does not."""
    return told.batch_id, told.publisher, told.sequence, told.num_bytes, told.num_groups


class PullQueue:
    """Jobs in the order in which they came; `now` is monotonic seconds."""

    def __init__(self, limits: QueueLimits, now: float) -> None:
        self._limits = limits
        self._jobs: OrderedDict[Claim, PullJob] = OrderedDict()
        self._running: set[Claim] = set()
        self._per_account: Counter[Account] = Counter()
        self._per_lane: Counter[Lane] = Counter()
        self._bytes: KeyedBuckets[Account] = KeyedBuckets(limits.bytes_per_publisher)
        self._all_bytes = TokenBucket(limits.bytes_of_all, now)
        self._strikes: BoundedDict[Account | Lane, int] = BoundedDict(_MAX_STRUCK)

    def __contains__(self, batch_id: BatchId) -> bool:
        return any(job.batch_id == batch_id for job in self._jobs.values())

    def has(self, claim: Claim) -> bool:
        """Return whether there is a job of exactly that claim."""
        return claim in self._jobs

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
        if job.claim in self._jobs:
            return Reason.DUPLICATE
        if self._per_account[job.account] >= self._limits.max_jobs_per_publisher:
            return Reason.OVER_QUOTA
        if job.num_bytes > self._bytes.of(job.account, now).available(now):
            return Reason.OVER_QUOTA
        if len(self._jobs) >= self._limits.max_jobs and self._displaced_by(job) is None:
            return Reason.BUSY
        # Claimed bytes are the claimant's; what all share is charged as it flows.
        return Reason.BUSY if self._all_bytes.available(now) <= 0 else None

    def add(self, job: PullJob, now: float) -> None:
        """Add a job that `refuse` has let through, and take its bytes off its account's quota.

        In a full queue it takes the place of one of the lane, or who of its own lane, has most.
        """
        if len(self._jobs) >= self._limits.max_jobs:
            displaced = self._displaced_by(job)
            assert displaced is not None  # `refuse` has seen one
            self.finish(displaced)
        self._jobs[job.claim] = job
        self._per_account[job.account] += 1
        self._per_lane[job.lane] += 1
        self._bytes.of(job.account, now).take(job.num_bytes, now)

    def flowed(self, num_bytes: int, now: float) -> None:
        """Take bytes that have come off what all may send."""
        self._all_bytes.take(num_bytes, now)

    def strike(self, job: PullJob, *, failed: bool) -> None:
        """Note that a batch could not be had, or could: who claims in vain comes last."""
        for who in (job.account, job.lane):
            if failed:
                self._strikes[who] = self._strikes.get(who, 0) + 1
            else:
                self._strikes.pop(who, None)

    def start_next(self) -> PullJob | None:
        """Return the next job that may run, which then counts as running."""
        limits = self._limits
        if len(self._running) >= limits.max_running + limits.max_running_beyond:
            return None
        is_full = len(self._running) >= limits.max_running
        running = [self._jobs[claim] for claim in self._running]
        room = limits.max_running_bytes - sum(job.num_bytes for job in running)
        accounts = Counter(job.account for job in running)
        lanes = Counter(job.lane for job in running)
        fit = [
            job
            for job in self._jobs.values()
            if job.claim not in self._running
            and (not running or job.num_bytes <= room)
            and accounts[job.account] < limits.max_running_per_publisher
            and not (is_full and (lanes[job.lane] or self._struck(job.lane)))
        ]
        if not fit:
            return None
        job = min(
            fit,
            key=lambda job: (self._struck(job.lane), lanes[job.lane], self._struck(job.account)),
        )
        self._running.add(job.claim)
        return job

    def _struck(self, who: Account | Lane) -> int:
        return self._strikes.get(who, 0)

    def _displaced_by(self, job: PullJob) -> PullJob | None:
        """Return the last waiting job of the lane with most jobs, if it has enough more, or else of
        the account with most in the job's own lane."""
        waiting = [other for other in self._jobs.values() if other.claim not in self._running]
        lane, count = max(self._per_lane.items(), key=lambda item: item[1])
        if count > self._per_lane[job.lane] + 1:
            return next((other for other in reversed(waiting) if other.lane == lane), None)
        own = Counter(other.account for other in self._jobs.values() if other.lane == job.lane)
        if not own:
            return None
        greedy, count = max(own.items(), key=lambda item: item[1])
        if count <= self._per_account[job.account] + 1:
            return None
        of_it = (other for other in reversed(waiting) if other.account == greedy)
        return next((other for other in of_it if other.lane == job.lane), None)

    def finish(self, job: PullJob) -> None:
        """Forget a job, whatever became of it."""
        del self._jobs[job.claim]
        self._running.discard(job.claim)
        self._per_account[job.account] -= 1
        if not self._per_account[job.account]:
            del self._per_account[job.account]
        self._per_lane[job.lane] -= 1
        if not self._per_lane[job.lane]:
            del self._per_lane[job.lane]
