"""Fetches batches that gossip did not deliver, and passes them to the intake.

    announcement ─▶ queue ─▶ pull in chunks ─┐
    listing of a peer ─┬─ big ones ─▶ queue  ├─▶ intake (as if gossiped) ─▶ buffer
                       └─ small ones, now ────┘

A batch is never fetched twice at the same time, and not again after the intake rejected it. The
limits are those of `PullQueue` and `PullLimits`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import trio

from shoal_p2p.events import Source
from shoal_p2p.fetch.client import NoAnswerError
from shoal_p2p.fetch.context import FetchContext
from shoal_p2p.fetch.pending_fetches import PendingFetches
from shoal_p2p.fetch.pull import BatchPull, PullLimits, UnavailableError
from shoal_p2p.fetch.pull_queue import PullJob
from shoal_wire.digests import batch_id as id_of_envelope
from shoal_wire.limits import MAX_CHUNK_BYTES, MAX_WHOLE_BATCHES, WHOLE_MESSAGE_BYTES
from shoal_wire.rollout_messages import BatchRef, Envelopes, WholeQuery
from shoal_wire.types import BatchId, PeerId
from shoal_wire.verdict import Outcome, Reason, Verdict, verdict

if TYPE_CHECKING:
    from trio_typing import TaskStatus

log = logging.getLogger(__name__)

_OTHER_CANDIDATES = 4
"""Peers asked in addition to those that published, announced or listed a batch."""
_TEMPORARY = frozenset({Reason.BUSY, Reason.WORKER_UNAVAILABLE, Reason.OVER_QUOTA})
"""Reasons that are temporary: the batch may be accepted the next time."""

Take = Callable[[bytes, PullJob, PeerId], Awaitable[Verdict]]
"""``await take(envelope, job, provider)`` returns the intake's verdict."""


class BatchFetch:
    """Fetches batches. Start with ``await nursery.start(fetch.run)``."""

    def __init__(
        self,
        *,
        means: FetchContext,
        wanted: PendingFetches,
        take: Take,
        limits: PullLimits | None = None,
    ) -> None:
        self._rules = means.manifest.rules
        self._host, self._asker, self._stats = means.host, means.asker, means.stats
        self._report, self._wall_ms, self._rng = means.report, means.wall_ms, means.rng
        self._wanted = wanted
        self._take_in = take
        self._pull = BatchPull(means.asker, limits)

    def wants(self, ref: BatchRef, source: Source) -> bool:
        """Return whether a listed batch is worth fetching."""
        return self._wanted.wants(ref, source)

    def is_pending(self, batch_id: BatchId) -> bool:
        """Return whether a batch is being fetched."""
        return self._wanted.is_pending(batch_id)

    async def fetch_listed(self, peer_id: PeerId, refs: Sequence[BatchRef], source: Source) -> int:
        """Fetch the wanted batches that a peer listed; return the number accepted.

        Large ones are queued and not counted.

        Raises:
            NoAnswerError: the peer stopped answering.
        """
        small = []
        for ref in refs:
            if not self.wants(ref, source):
                continue
            if ref.num_bytes > WHOLE_MESSAGE_BYTES:
                self._wanted.enqueue(self._job_of(ref, peer_id, source))
            else:
                small.append(ref)
        num_accepted = 0
        for some in _in_answers(small):
            num_accepted += await self._fetch_small(peer_id, some, source)
        return num_accepted

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Pull queued batches until cancelled."""
        async with trio.open_nursery() as nursery:
            task_status.started()
            while True:
                while (job := self._wanted.queue.start_next()) is not None:
                    nursery.start_soon(self._run_job, job)
                await self._wanted.until_changed()

    def _deadline_ms(self) -> int:
        return self._wall_ms() + 1000 * self._rules.max_age_seconds

    def _job_of(self, ref: BatchRef, peer_id: PeerId, source: Source) -> PullJob:
        return PullJob(
            batch_id=ref.batch_id,
            publisher=ref.publisher,
            sequence=ref.sequence,
            num_bytes=ref.num_bytes,
            num_groups=ref.num_groups,
            source=source,
            hints=(peer_id,),
            expires_ms=self._deadline_ms(),
            lane=self._wanted.lane(peer_id),
        )

    async def _run_job(self, job: PullJob) -> None:
        try:
            if job.expires_ms < self._wall_ms():
                self._stats.failures["expired"] += 1
                return
            pulled = await self._pull.pull(
                job.batch_id, job.num_bytes, lambda: self._candidates(job)
            )
            self._count_bytes(job)
            self._wanted.queue.record(job, succeeded=True)
            await self._judge(pulled.envelope, pulled.provider, job)
        except UnavailableError as error:
            self._give_up(job, error)
        finally:
            self._wanted.finish(job)

    def _count_bytes(self, job: PullJob) -> None:
        self._stats.bytes_in[job.source] += job.num_bytes
        self._wanted.queue.charge_bytes(job.num_bytes, trio.current_time())

    def _give_up(self, job: PullJob, error: UnavailableError) -> None:
        self._wanted.queue.record(job, succeeded=False)
        if job.source is not Source.PULL:
            return
        self._stats.announced_abandoned += 1
        log.info("an announced batch of %s could not be fetched", job.publisher)
        if job.publisher in error.denied:
            # It announced a batch that it says it does not have. Silence would be no proof.
            self._report(job.publisher, job.publisher, verdict(Reason.UNFETCHABLE))

    def _candidates(self, job: PullJob) -> list[PeerId]:
        connected = self._host.connected_peers()
        likely = [peer for peer in dict.fromkeys((*job.hints, job.publisher)) if peer in connected]
        others = [peer for peer in sorted(connected - set(likely)) if self._asker.is_usable(peer)]
        return likely + self._rng.sample(others, min(_OTHER_CANDIDATES, len(others)))

    async def _fetch_small(self, peer_id: PeerId, refs: list[BatchRef], source: Source) -> int:
        expected = {ref.batch_id: ref for ref in refs if not self._wanted.is_claim_pending(ref)}
        if not expected:
            return 0
        num_accepted = 0
        with self._wanted.fetching(expected.values()):
            query = WholeQuery(batch_ids=tuple(expected))
            answer = await self._asker.ask(peer_id, query, Envelopes)
            for envelope in answer.envelopes:
                ref = expected.pop(id_of_envelope(envelope), None)
                if ref is None or ref.num_bytes != len(envelope):
                    self._asker.offend(peer_id, Reason.WRONG_OBJECT)
                    raise NoAnswerError(Reason.WRONG_OBJECT)
                job = self._job_of(ref, peer_id, source)
                self._count_bytes(job)
                num_accepted += await self._judge(envelope, peer_id, job)
        return num_accepted

    async def _judge(self, envelope: bytes, provider: PeerId, job: PullJob) -> bool:
        """Pass a fetched batch to the intake; charge the peer responsible for an invalid one."""
        judged = await self._take_in(envelope, job, provider)
        if judged.outcome is Outcome.ACCEPT:
            self._report(provider, job.publisher, judged)
            return True
        self._stats.failures[judged.reason.value] += 1
        if judged.reason not in _TEMPORARY:
            self._wanted.refuse(job)
        announced = job.source is Source.PULL
        if judged.reason is Reason.SIGNER_NOT_SENDER:
            # The claim that this digest is that publisher's batch was false.
            if announced:
                wrong = verdict(Reason.BAD_ANNOUNCEMENT)
                self._report(job.publisher, job.publisher, wrong)
            else:
                self._asker.offend(job.hints[0], Reason.MALFORMED_ANSWER)
            return False
        # An envelope not signed for this swarm is no fault of its publisher, unless it announced
        # that digest: any peer may have stored what it signed for another swarm.
        signer = job.publisher if announced or judged.reason not in _NOT_SIGNED_HERE else provider
        self._report(provider, signer, judged)
        return False


_NOT_SIGNED_HERE = frozenset(
    {
        Reason.WRONG_SWARM,
        Reason.OVERSIZE_PAYLOAD,
        Reason.MALFORMED_ENVELOPE,
        Reason.NOT_CANONICAL,
        Reason.WEAK_KEY,
        Reason.BAD_SIGNATURE,
    }
)


def _in_answers(refs: Sequence[BatchRef]) -> Iterator[list[BatchRef]]:
    """Split refs so that the envelopes of each part fit into one reply."""
    some: list[BatchRef] = []
    size = 0
    for ref in refs:
        if some and (size + ref.num_bytes > MAX_CHUNK_BYTES or len(some) == MAX_WHOLE_BATCHES):
            yield some
            some, size = [], 0
        some.append(ref)
        size += ref.num_bytes
    if some:
        yield some
