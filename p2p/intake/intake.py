"""Intake: one judgement for all that peers bring, the buffer behind, a bounded queue between.

    gossip ──▶ validate ─┬─▶ (cheap, stateless) ─▶ ledger ─▶ task worker ─▶ ledger ─▶ queue ─▶ keep
    fetched ─▶ take ─────┘          │                │            │                     │
                                 verdict          verdict   ignore on fault       gossip: ignore
                                                                                  fetched: wait

Everything up to the queue happens before a message is forwarded; scoring does not: rewards are
computed by whoever trains. An announcement is judged without the batch it names, which is pulled
afterwards and judged like any other.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

import trio

from p2p.intake.ledger import Equivocation, PublisherLedger
from p2p.intake.validation import (
    Rejected,
    Source,
    ValidationContext,
    check_questions,
    coordinates_of,
    open_announcement,
    open_batch,
    open_fetched,
)
from p2p.threads import InThread
from shoal_tasks.errors import UnknownFamily, WorkerUnavailable
from shoal_tasks.types import TaskCoordinates
from shoal_wire.announcement import Announcement, is_announcement
from shoal_wire.limits import WHOLE_MESSAGE_BYTES
from shoal_wire.types import BatchId, Digest, PeerId, SignedBatch
from shoal_wire.verdict import ACCEPT, Reason, Verdict, verdict

if TYPE_CHECKING:
    from trio_typing import TaskStatus

log = logging.getLogger(__name__)

QUEUE_BATCHES = 256
"""Validated batches that may wait for the buffer; beyond it new ones are ignored and counted."""

RESERVE_SHARE = 0.25
"""Of a publisher's burst of groups: left to what it gossips when its batches are fetched."""

_WORKER_TRIES = 3
_WORKER_PAUSE_SECONDS = 0.5
_QUEUE_SECONDS = 10.0


class QuestionSource(Protocol):
    """Regenerates questions (the task worker)."""

    async def question_digests(self, tasks: list[TaskCoordinates]) -> list[Digest]:
        """Return one 16-byte digest a task; raises WorkerUnavailable."""


class Listener:
    """Learns of what the intake lets through; this one does not care, as a relay does not."""

    pulls = False
    """Whether announced batches are pulled. Where not, the announcement itself counts as seen and
    takes its groups off the publisher's quota."""

    def announced(
        self, publisher: PeerId, announcement: Announcement, forwarder: PeerId
    ) -> Reason | None:
        """Take up an announcement; return why not. It is forwarded if there is no reason."""
        return None

    def accepted(self, signed: SignedBatch, source: Source) -> None:
        """Learn of a valid batch that is on its way to the buffer."""


class Intake:
    """Judges what peers send and hands on what is valid."""

    def __init__(
        self,
        *,
        context: ValidationContext,
        questions: QuestionSource,
        ledger: PublisherLedger,
        keep: Callable[[SignedBatch], Awaitable[None]],
        accuse: Callable[[Equivocation, bytes], Awaitable[None]],
        wall_ms: Callable[[], int],
        listener: Listener | None = None,
        queue_batches: int = QUEUE_BATCHES,
        in_thread: InThread = trio.to_thread.run_sync,
    ) -> None:
        self._context = context
        self._questions = questions
        self._ledger = ledger
        self._keep = keep
        self._accuse = accuse
        self._wall_ms = wall_ms
        self._listener = listener or Listener()
        self._in_thread = in_thread
        self._opening = trio.CapacityLimiter(1)
        self._send, self._receive = trio.open_memory_channel[SignedBatch](queue_batches)

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Move validated batches into the buffer until cancelled."""
        task_status.started()
        async with self._receive:
            async for signed in self._receive:
                # Its second copy may have come while it waited here, where none could withdraw it.
                if not self._ledger.is_equivocated(signed.publisher, signed.batch.sequence):
                    await self._keep(signed)

    async def validate(self, data: bytes, author: PeerId, forwarder: PeerId) -> Verdict:
        """Gossip's validator: judge one message and queue it if it is valid."""
        try:
            if is_announcement(data):
                await self._validate_announcement(data, author, forwarder)
            else:
                await self._validate_batch(data, author)
        except Rejected as rejected:
            return verdict(rejected.reason)
        return ACCEPT

    async def take(
        self, raw: bytes, *, publisher: PeerId, sequence: int, source: Source
    ) -> Verdict:
        """Judge a batch that was asked for as the publisher's under that number; queue it if valid.

        `signer_not_sender` says that it is another's, or under another number. Where gossip would
        ignore for want of room or of a worker, this waits a while.
        """
        try:
            signed = await self._open_fetched(raw, publisher)
            if signed.batch.sequence != sequence:
                raise Rejected(Reason.SIGNER_NOT_SENDER)
            # An announced batch is the publisher's live traffic: the quota is there for it.
            reserve_share = 0.0 if source is Source.PULL else RESERVE_SHARE
            await self._check_ledger(signed, reserve_share)
            await self._check_questions_patiently(signed)
            await self._wait_for_room()
            # Gossip may have brought a copy meanwhile.
            await self._check_ledger(signed, reserve_share)
            self._accept(signed, source)
        except Rejected as rejected:
            return verdict(rejected.reason)
        return ACCEPT

    def queue_length(self) -> int:
        """Return how many validated batches wait for the buffer."""
        return self._send.statistics().current_buffer_used

    async def _open_fetched(self, raw: bytes, publisher: PeerId) -> SignedBatch:
        open_it = partial(
            open_fetched,
            raw,
            publisher=publisher,
            context=self._context,
            now_ms=self._wall_ms(),
        )
        if len(raw) <= WHOLE_MESSAGE_BYTES:
            return open_it()
        # Some 20 ms a megabyte: the loop must not stand still for it.
        return await self._in_thread(open_it, limiter=self._opening)

    async def _validate_batch(self, data: bytes, author: PeerId) -> None:
        signed = open_batch(data, author=author, context=self._context, now_ms=self._wall_ms())
        await self._check_ledger(signed)
        await self._check_questions(signed)
        # A copy may have been judged while this one waited for the worker.
        await self._check_ledger(signed)
        self._accept(signed, Source.GOSSIP)

    async def _validate_announcement(self, data: bytes, author: PeerId, forwarder: PeerId) -> None:
        announcement = open_announcement(
            data, author=author, context=self._context, now_ms=self._wall_ms()
        )
        await self._check_number(
            author,
            announcement.sequence,
            announcement.batch_id,
            announcement.num_groups,
            statement=data,
        )
        reason = self._listener.announced(author, announcement, forwarder)
        if reason is not None:
            raise Rejected(reason)
        if not self._listener.pulls:
            self._ledger.record(
                author,
                announcement.sequence,
                announcement.batch_id,
                announcement.num_groups,
                trio.current_time(),
            )

    def _accept(self, signed: SignedBatch, source: Source) -> None:
        try:
            self._send.send_nowait(signed)
        except trio.WouldBlock:
            raise Rejected(Reason.INTAKE_FULL) from None
        batch = signed.batch
        self._ledger.record(
            signed.publisher,
            batch.sequence,
            signed.batch_id,
            len(batch.groups),
            trio.current_time(),
        )
        self._listener.accepted(signed, source)

    async def _check_questions(self, signed: SignedBatch) -> None:
        try:
            regenerated = await self._questions.question_digests(coordinates_of(signed.batch))
        except WorkerUnavailable:
            raise Rejected(Reason.WORKER_UNAVAILABLE) from None
        except UnknownFamily:
            raise Rejected(Reason.UNKNOWN_FAMILY) from None
        reason = check_questions(signed.batch, regenerated)
        if reason is not None:
            raise Rejected(reason)

    async def _check_questions_patiently(self, signed: SignedBatch) -> None:
        for _ in range(_WORKER_TRIES - 1):
            try:
                return await self._check_questions(signed)
            except Rejected as rejected:
                if rejected.reason is not Reason.WORKER_UNAVAILABLE:
                    raise
            await trio.sleep(_WORKER_PAUSE_SECONDS)
        return await self._check_questions(signed)

    async def _wait_for_room(self) -> None:
        with trio.move_on_after(_QUEUE_SECONDS):
            # The buffer takes some a millisecond; a slow disk is what this waits for.
            while self.queue_length() >= self._send.statistics().max_buffer_size:  # noqa: ASYNC110
                await trio.sleep(0.05)

    async def _check_ledger(self, signed: SignedBatch, reserve_share: float = 0.0) -> None:
        await self._check_number(
            signed.publisher,
            signed.batch.sequence,
            signed.batch_id,
            len(signed.batch.groups),
            statement=signed.envelope,
            reserve_share=reserve_share,
        )

    async def _check_number(
        self,
        publisher: PeerId,
        sequence: int,
        batch_id: BatchId,
        num_groups: int,
        *,
        statement: bytes,
        reserve_share: float = 0.0,
    ) -> None:
        """`statement` is what the publisher signed: the batch, or its announcement."""
        now = trio.current_time()
        reason = self._ledger.check(
            publisher, sequence, batch_id, num_groups, now, reserve_share=reserve_share
        )
        if reason is Reason.EQUIVOCATION:
            pair = self._ledger.accuse(publisher, sequence, batch_id, now)
            if pair is not None:
                log.warning("%s signed two batches as number %d", publisher, sequence)
                await self._accuse(pair, statement)
        if reason is not None:
            raise Rejected(reason)
