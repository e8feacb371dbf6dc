"""Fetches batches that gossip did not deliver, and passes them to the intake.

    announcement ─▶ queue ─▶ pull in chunks ─┐
    listing of a peer ─┬─ big ones ─▶ queue  ├─▶ intake (as if gossiped) ─▶ buffer
                       └─ small ones, at once ┘

Each batch is fetched once at a time, whatever asks for it; what was fetched and not accepted is not
fetched again. The bounds are `PullQueue`'s and `PullLimits`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import trio

from shoal_p2p.fetch.client import NoAnswerError
from shoal_p2p.fetch.context import FetchContext
from shoal_p2p.fetch.pending_fetches import PendingFetches
from shoal_p2p.fetch.pull import BatchPull, PullLimits, UnavailableError
from shoal_p2p.fetch.pull_queue import PullJob
from shoal_p2p.intake.validation import Source
from shoal_wire.digests import batch_id as id_of_envelope
from shoal_wire.limits import MAX_CHUNK_BYTES, MAX_WHOLE_BATCHES, WHOLE_MESSAGE_BYTES
from shoal_wire.rollout_messages import BatchRef, Envelopes, WholeQuery
from shoal_wire.types import BatchId, PeerId
from shoal_wire.verdict import Outcome, Reason, Verdict, verdict

if TYPE_CHECKING:
    from trio_typing import TaskStatus

log = logging.getLogger(__name__)

_OTHER_CANDIDATES = 4
"""Peers asked beside those that are known to have had something to do with a batch."""
_PASSING = frozenset({Reason.BUSY, Reason.WORKER_UNAVAILABLE, Reason.OVER_QUOTA})
"""Reasons that may not hold the next time."""

Take = Callable[[bytes, PullJob, PeerId], Awaitable[Verdict]]
"""``await take(envelope, job, provider)`` returns the intake's verdict."""


class BatchFetch:
    """Start with ``await nursery.start(fetch.run)``."""

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
        """Fetch from a peer what it listed and we want; return the number of batches got.

        Big ones are queued and not counted.

        Raises:
            NoAnswerError: the peer stopped giving.
        """
        small = []
        for ref in refs:
            if not self.wants(ref, source):
                continue
            if ref.num_bytes > WHOLE_MESSAGE_BYTES:
                self._wanted.enqueue(self._job_of(ref, peer_id, source))
            else:
                small.append(ref)
        got = 0
        for some in _in_answers(small):
            got += await self._fetch_small(peer_id, some, source)
        return got

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Pull what is queued until cancelled."""
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
            self._wanted.queue.note(job, was_had=True)
            await self._judge(pulled.envelope, pulled.provider, job)
        except UnavailableError as error:
            self._give_up(job, error)
        finally:
            self._wanted.finish(job)

    def _count_bytes(self, job: PullJob) -> None:
        self._stats.bytes_in[job.source] += job.num_bytes
        self._wanted.queue.flowed(job.num_bytes, trio.current_time())

    def _give_up(self, job: PullJob, error: UnavailableError) -> None:
        self._wanted.queue.note(job, was_had=False)
        if job.source is not Source.PULL:
            return
        self._stats.announced_abandoned += 1
        log.info("an announced batch of %s could not be had", job.publisher)
        if job.publisher in error.denied:
            # It announced a batch that it does not have. No response could be the network's fault.
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
        got = 0
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
                got += await self._judge(envelope, peer_id, job)
        return got

    async def _judge(self, envelope: bytes, provider: PeerId, job: PullJob) -> bool:
        """Hand over what was fetched, and see that the right one answers for it."""
        judged = await self._take_in(envelope, job, provider)
        if judged.outcome is Outcome.ACCEPT:
            self._report(provider, job.publisher, judged)
            return True
        self._stats.failures[judged.reason.value] += 1
        if judged.reason not in _PASSING:
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
        # What is not signed for this swarm says nothing of a publisher, unless it announced that
        # digest: what it has signed for another one, anybody may have kept.
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
    """Split refs so that each part's envelopes fit into one answer."""
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
