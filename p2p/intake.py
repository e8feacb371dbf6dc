"""Intake: gossip's validator in front, the buffer behind, a bounded queue between.

    gossip ─▶ validate (cheap, stateless) ─▶ ledger ─▶ task worker ─▶ ledger ─▶ queue ─▶ keep
                    │                          │            │                     │
                 verdict                    verdict   ignore on fault       ignore when full

Everything up to the queue happens before a message is forwarded; scoring does not: rewards are
computed by whoever trains.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

import trio

from p2p.ledger import Equivocation, PublisherLedger
from p2p.validation import (
    Rejected,
    ValidationContext,
    check_questions,
    coordinates_of,
    open_batch,
)
from shoal_tasks.errors import UnknownFamily, WorkerUnavailable
from shoal_tasks.types import TaskCoordinates
from shoal_wire.types import Digest, PeerId, SignedBatch
from shoal_wire.verdict import ACCEPT, Reason, Verdict, verdict

if TYPE_CHECKING:
    from trio_typing import TaskStatus

log = logging.getLogger(__name__)

QUEUE_BATCHES = 256
"""Validated batches that may wait for the buffer; beyond it new ones are ignored and counted."""


class QuestionSource(Protocol):
    """Regenerates questions (the task worker)."""

    async def question_digests(self, tasks: list[TaskCoordinates]) -> list[Digest]:
        """Return one 16-byte digest a task; raises WorkerUnavailable."""


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
        queue_batches: int = QUEUE_BATCHES,
    ) -> None:
        self._context = context
        self._questions = questions
        self._ledger = ledger
        self._keep = keep
        self._accuse = accuse
        self._wall_ms = wall_ms
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
            signed = open_batch(data, author=author, context=self._context, now_ms=self._wall_ms())
            await self._check(signed)
        except Rejected as rejected:
            return verdict(rejected.reason)
        return ACCEPT

    def queue_length(self) -> int:
        """Return how many validated batches wait for the buffer."""
        return self._send.statistics().current_buffer_used

    async def _check(self, signed: SignedBatch) -> None:
        await self._check_ledger(signed)
        try:
            regenerated = await self._questions.question_digests(coordinates_of(signed.batch))
        except WorkerUnavailable:
            raise Rejected(Reason.WORKER_UNAVAILABLE) from None
        except UnknownFamily:
            raise Rejected(Reason.UNKNOWN_FAMILY) from None
        reason = check_questions(signed.batch, regenerated)
        if reason is not None:
            raise Rejected(reason)
        # A copy may have been judged while this one waited for the worker.
        await self._check_ledger(signed)
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

    async def _check_ledger(self, signed: SignedBatch) -> None:
        batch = signed.batch
        now = trio.current_time()
        reason = self._ledger.check(
            signed.publisher, batch.sequence, signed.batch_id, len(batch.groups), now
        )
        if reason is Reason.EQUIVOCATION:
            pair = self._ledger.accuse(signed.publisher, batch.sequence, signed.batch_id, now)
            if pair is not None:
                log.warning("%s signed two batches as number %d", signed.publisher, batch.sequence)
                await self._accuse(pair, signed.envelope)
        if reason is not None:
            raise Rejected(reason)
