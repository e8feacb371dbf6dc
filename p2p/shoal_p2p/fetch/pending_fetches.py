"""Tracks which batches to fetch: queued jobs, running fetches, and batches rejected here.

intake: announced, accepted ─▶ PendingFetches, GapDetector ─▶ the fetchers (built later)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import trio

from shoal_base.bounded import MANY, BoundedDict
from shoal_p2p.events import Source
from shoal_p2p.fair import FORWARDED, PUBLISHED
from shoal_p2p.fetch.pull_queue import Claim, Lane, PullJob, PullQueue, QueueLimits, claim_of
from shoal_p2p.fetch.stats import FetchStats
from shoal_p2p.intake.intake import Announcements
from shoal_p2p.intake.ledger import PublisherLedger
from shoal_wire.announcement import Announcement
from shoal_wire.manifest import Manifest
from shoal_wire.rollout_messages import BatchRef
from shoal_wire.signatures import names_weak_key
from shoal_wire.types import BatchId, PeerId
from shoal_wire.verdict import Reason


class PendingFetches(Announcements):
    """Tracks batches that gossip did not deliver. It sends no requests itself."""

    pulls = True
    """Tells the intake that announced batches are fetched."""

    def __init__(
        self,
        *,
        me: PeerId,
        manifest: Manifest,
        ledger: PublisherLedger,
        stats: FetchStats,
        limits: QueueLimits | None = None,
        network_of: Callable[[PeerId], str] = lambda _peer: "",
    ) -> None:
        """`network_of` returns the IP network of a peer's connection; empty without one."""
        self._me = me
        self._network_of = network_of
        self._rules = manifest.rules
        self._ledger = ledger
        self._stats = stats
        self.queue = PullQueue(limits or QueueLimits(), trio.current_time())
        """Jobs that wait or run."""
        self._fetching: set[Claim] = set()
        self._refused: BoundedDict[Claim, None] = BoundedDict(MANY)
        self._changed = trio.Event()

    def is_pending(self, batch_id: BatchId) -> bool:
        """Return whether a batch is being fetched."""
        return batch_id in self.queue or any(claim[0] == batch_id for claim in self._fetching)

    def is_claim_pending(self, ref: BatchRef) -> bool:
        """Return whether a batch is being fetched with exactly the claims of `ref`."""
        return self.queue.has(claim_of(ref)) or claim_of(ref) in self._fetching

    def on_announcement(
        self, publisher: PeerId, announcement: Announcement, forwarder: PeerId, key: int | None
    ) -> Reason | None:
        """Queue an announced batch; return why not. Its signature and number have been checked."""
        job = PullJob(
            batch_id=announcement.batch_id,
            publisher=publisher,
            sequence=announcement.sequence,
            num_bytes=announcement.num_bytes,
            num_groups=announcement.num_groups,
            source=Source.PULL,
            hints=tuple(dict.fromkeys((forwarder, publisher))),
            expires_ms=announcement.expires_ms,
            lane=self.lane(forwarder, signed_by=publisher),
            key=key,
        )
        reason = Reason.DUPLICATE if job.claim in self._refused else self.enqueue(job)
        self._stats.announced += reason is None
        return reason

    def lane(self, claimant: PeerId, *, signed_by: PeerId | None = None) -> Lane:
        """Return the share key of a claim by `claimant`: the signer's own network if it is
        connected, because any peer may have forwarded the claim faster."""
        own = self._network_of(signed_by) if signed_by else ""
        return (own, PUBLISHED) if own else (self._network_of(claimant), FORWARDED)

    def wants(self, ref: BatchRef, source: Source) -> bool:
        """Return whether a listed batch is worth fetching."""
        if (
            ref.publisher == self._me
            or names_weak_key(ref.publisher)  # an honest peer of another version may list it
            or ref.num_bytes > self._rules.max_envelope_bytes
            or claim_of(ref) in self._refused
            or self.is_claim_pending(ref)
        ):
            return False
        number = ref.publisher, ref.sequence, ref.batch_id
        reason = self._ledger.check(*number, ref.num_groups, trio.current_time(), source=source)
        # A listing is not signed, so it charges no publisher; the batch itself would be proof.
        return reason in (None, Reason.EQUIVOCATION)

    def enqueue(self, job: PullJob) -> Reason | None:
        """Queue a job; return why not."""
        now = trio.current_time()
        reason = self.queue.refuse(job, now)
        if reason is None:
            self.queue.add(job, now)
            self._changed.set()
        return reason

    def finish(self, job: PullJob) -> None:
        """Record that a running job ended, with or without the batch."""
        self.queue.finish(job)
        self._changed.set()

    async def until_changed(self) -> None:
        """Wait until a job was queued or has ended."""
        await self._changed.wait()
        self._changed = trio.Event()

    @contextmanager
    def fetching(self, refs: Iterable[BatchRef]) -> Iterator[None]:
        """Mark these as being fetched, without the queue."""
        mine = frozenset(map(claim_of, refs))
        self._fetching |= mine
        try:
            yield
        finally:
            self._fetching -= mine

    def refuse(self, job: PullJob) -> None:
        """Never fetch this batch again with the same claims: they were false, or it is invalid."""
        self._refused.setdefault(job.claim, None)
