"""The queue of large batches to pull: bounds and fair shares only. Pure.

A publisher may announce thousands of huge batches, and a node cannot know which of them exist.
Therefore few may wait, fewer of each publisher, and bytes are rationed before they are requested.
Identities are free, so both are shared by the claim's network before its identity: space in the
queue by `HierarchicalQuota`, and turns by `FairQueue`. A false claim costs turns.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import Annotated

from shoal_base.bounded import BoundedDict
from shoal_base.ranges import Bytes, Range, Ranged
from shoal_p2p.events import Source
from shoal_p2p.fair import FORWARDED, ShareKey
from shoal_p2p.fair.buckets import KeyedBuckets, Rate, TokenBucket
from shoal_p2p.fair.queue import FairQueue
from shoal_p2p.fair.quota import HierarchicalQuota, QuotaEntry
from shoal_wire.rollout_messages import BatchRef
from shoal_wire.types import BatchId, PeerId
from shoal_wire.verdict import Reason

_IN_VAIN = 16.0
"""Turns charged for a batch that could not be pulled: more than may run at once, so false claimants
come after all others."""

Claim = tuple[BatchId, PeerId, int, int, int]
"""Id, publisher, number, size and group count of a batch, as claimed by a peer."""
Account = tuple[PeerId, PeerId]
"""Claimant and publisher: other peers' claims do not use a publisher's own share."""
Lane = tuple[str, str]
"""The network and origin of a claim: published if it is the publisher's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits(Ranged):
    """Limits on waiting jobs, running jobs and bytes."""

    max_jobs: Annotated[int, Range("jobs", 1, 100_000)] = 256
    """Waiting and running."""
    max_jobs_per_publisher: Annotated[int, Range("jobs", 1, 100_000)] = 32
    max_running_per_publisher: Annotated[int, Range("jobs", 1, 1000)] = 2
    max_running: Annotated[int, Range("jobs", 1, 1000)] = 8
    max_running_beyond: Annotated[int, Range("jobs", 0, 1000)] = 4
    """Further jobs, each the first of a lane without false claims, so that a peer that uses all
    other slots cannot delay them."""
    max_running_bytes: Bytes = 32 << 20
    bytes_per_publisher: Annotated[Rate, "bytes"] = Rate(burst=24 << 20, per_second=1 << 20)
    bytes_of_all: Annotated[Rate, "bytes"] = Rate(burst=64 << 20, per_second=8 << 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class PullJob:
    """A batch to pull, as claimed by a peer; only its bytes can confirm the claim."""

    batch_id: BatchId
    publisher: PeerId
    sequence: int
    num_bytes: int
    num_groups: int
    source: Source
    hints: tuple[PeerId, ...]
    """Peers that claim to have it, the most likely first."""
    expires_ms: int
    """Wall clock after which it is of no use."""
    key: int | None = None
    """Topic key of the announcement; None if it was listed."""
    lane: Lane = ("", FORWARDED)

    @property
    def claim(self) -> Claim:
        """Everything claimed about the batch: a false claim does not affect another one."""
        return claim_of(self)

    @property
    def account(self) -> Account:
        """The party whose share it takes: the announcer, or the peer that listed the batch."""
        claimant = self.publisher if self.source is Source.PULL else self.hints[0]
        return claimant, self.publisher

    @property
    def share_key(self) -> ShareKey:
        """The share key of its queue entry and its turns."""
        return (*self.lane, *self.account)


def claim_of(ref: PullJob | BatchRef) -> Claim:
    """Return what an announcement or a listing claims about a batch besides its digest."""
    return ref.batch_id, ref.publisher, ref.sequence, ref.num_bytes, ref.num_groups


class PullQueue:
    """Jobs that wait or run; `now` is monotonic seconds."""

    def __init__(self, limits: QueueLimits, now: float) -> None:
        self._limits = limits
        self._places: dict[Claim, QuotaEntry[PullJob]] = {}
        self._running: dict[Claim, PullJob] = {}
        self._room: HierarchicalQuota[PullJob] = HierarchicalQuota()
        """Waiting jobs are free to be displaced, running ones are not."""
        self._turns: FairQueue[PullJob] = FairQueue()
        self._vain: BoundedDict[Lane, list[ShareKey]] = BoundedDict()
        """Lanes with only failed pulls since these claims. Turns are reserved for each claim."""
        self._newest = itertools.count(0, -1)
        self._bytes: KeyedBuckets[Account] = KeyedBuckets(limits.bytes_per_publisher)
        self._all_bytes = TokenBucket(limits.bytes_of_all, now)

    def __contains__(self, batch_id: BatchId) -> bool:
        return any(claim[0] == batch_id for claim in self._places)

    def has(self, claim: Claim) -> bool:
        """Return whether there is a job of exactly that claim."""
        return claim in self._places

    @property
    def num_waiting(self) -> int:
        """Jobs that do not run yet."""
        return len(self._turns)

    @property
    def num_running(self) -> int:
        """Jobs that run."""
        return len(self._running)

    def refuse(self, job: PullJob, now: float) -> Reason | None:
        """Return why `job` may not be added now; None if it may."""
        if job.claim in self._places:
            return Reason.DUPLICATE
        of_account = sum(place.item.account == job.account for place in self._places.values())
        if of_account >= self._limits.max_jobs_per_publisher:
            return Reason.OVER_QUOTA
        if job.num_bytes > self._bytes.get(job.account, now).available(now):
            return Reason.OVER_QUOTA
        if len(self._places) >= self._limits.max_jobs and self._displaced_by(job) is None:
            return Reason.BUSY
        # Claimed bytes are charged to the claimant; the shared limit is charged on arrival.
        return Reason.BUSY if self._all_bytes.available(now) <= 0 else None

    def add(self, job: PullJob, now: float) -> None:
        """Add a job that `refuse` allows, and charge its bytes to its account.

        In a full queue it displaces the last job of a share key with more waiting jobs.
        """
        if len(self._places) >= self._limits.max_jobs:
            displaced = self._displaced_by(job)
            assert displaced is not None  # `refuse` found one
            self.finish(displaced)
        place = self._places[job.claim] = QuotaEntry(
            job.share_key, job, since=float(next(self._newest))
        )
        self._room.add(place)
        self._turns.add(job.share_key, job)
        self._bytes.get(job.account, now).take(job.num_bytes, now)

    def _displaced_by(self, job: PullJob) -> PullJob | None:
        """Return the last waiting job of a share key with more than `job` would have.

        With equal numbers nothing is displaced: otherwise new identities, whose claims are
        forwarded once queued, would displace each other without end.
        """
        place = self._room.pick_eviction(job.share_key, margin=1)
        return None if place is None or place.share_key == job.share_key else place.item

    def charge_bytes(self, num_bytes: int, now: float) -> None:
        """Charge received bytes to the limit for all peers."""
        self._all_bytes.take(num_bytes, now)

    def record(self, job: PullJob, *, succeeded: bool) -> None:
        """Record whether a batch could be pulled; false claimants come last.

        Forwarded claims of a network do not affect its published ones.
        """
        share_keys = self._vain.pop(job.lane, [])
        if succeeded:
            self._forgive(share_keys)
            return
        self._turns.reserve(job.share_key, _IN_VAIN, skip=_skipped(job.share_key))
        forgotten = self._vain.put(job.lane, [*share_keys, job.share_key])
        if forgotten is not None:
            self._forgive(forgotten[1])

    def _forgive(self, share_keys: list[ShareKey]) -> None:
        for share_key in share_keys:
            self._turns.release(share_key, _IN_VAIN, skip=_skipped(share_key))

    def start_next(self) -> PullJob | None:
        """Return the next job that may run, which then counts as running."""
        limits, running = self._limits, self._running.values()
        if len(running) >= limits.max_running + limits.max_running_beyond:
            return None
        is_full = len(running) >= limits.max_running
        room = limits.max_running_bytes - sum(job.num_bytes for job in running)
        accounts = Counter(job.account for job in running)
        lanes = Counter(job.lane for job in running)

        def fits(job: PullJob) -> bool:
            is_beyond = is_full and (lanes[job.lane] or job.lane in self._vain)
            return (
                (not running or job.num_bytes <= room)
                and accounts[job.account] < limits.max_running_per_publisher
                and not is_beyond
            )

        found = self._turns.pop(fits)
        if found is None:
            return None
        share_key, job = found
        self._turns.reserve(share_key)
        self._room.set_free(self._places[job.claim], is_free=False)
        self._running[job.claim] = job
        return job

    def finish(self, job: PullJob) -> None:
        """Remove a job, whatever its result."""
        self._room.remove(self._places.pop(job.claim))
        if self._running.pop(job.claim, None) is None:
            self._turns.discard(job.share_key, job)
        else:
            self._turns.release(job.share_key)


def _skipped(share_key: ShareKey) -> int:
    return int(share_key[1] == FORWARDED)
