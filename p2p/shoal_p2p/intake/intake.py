"""Validates all batches from peers and queues valid ones for the buffer.

    gossip ──▶ validate ─┬─▶ (cheap, stateless) ─▶ ledger ─▶ task worker ─▶ queue ─▶ keep
    fetched ─▶ validate_fetched ────┤                │            │           │
                                 verdict          verdict   ignore on fault  gossip: ignore
                                                                             fetched: wait

Everything up to the queue happens before a message is forwarded, except scoring: rewards are
computed by the trainer. An announcement is validated without its batch, which is pulled afterwards
and validated like any other.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, NoReturn

import trio

from shoal_base.bounded import QUEUE_BYTES
from shoal_base.ranges import Range, Ranged
from shoal_base.waits import REPLY_S, RETRY_S
from shoal_p2p.events import BatchAccepted, EventSink, Source
from shoal_p2p.fair import FORWARDED, PUBLISHED, ShareKey
from shoal_p2p.intake.batch_decoder import BatchDecoder
from shoal_p2p.intake.ledger import Equivocation, PublisherLedger
from shoal_p2p.intake.validation import (
    Rejected,
    ValidationContext,
    check_questions,
    coordinates_of,
    family_of,
    open_announcement,
    open_fetched,
    open_message,
    weight_of,
    work_of,
)
from shoal_p2p.intake.verifier_scheduler import (
    REQUESTED,
    CostLimitExceeded,
    QuestionSource,
    VerifierScheduler,
)
from shoal_p2p.threads import InThread
from shoal_tasks.errors import UnknownFamily, WorkerUnavailable
from shoal_tasks.types import TaskCoordinates
from shoal_wire import limits
from shoal_wire.announcement import Announcement
from shoal_wire.codec import declared_size
from shoal_wire.envelope import SignedEnvelope
from shoal_wire.rules import BatchRules
from shoal_wire.types import BatchId, Digest, PeerId, SignedBatch
from shoal_wire.verdict import ACCEPT, Reason, Verdict, verdict

if TYPE_CHECKING:
    from trio_typing import TaskStatus

log = logging.getLogger(__name__)

KEPT_BATCHES = 16
KEPT_BYTES = 1024 * 1024
"""Maximum batches per database transaction, and their maximum weight before the last is added."""

QUEUE_BATCHES = 256
"""Validated batches that may wait for the buffer; above it new ones are ignored and counted."""

WAITING_BATCHES = 2 * KEPT_BATCHES
"""Validated batches that may wait for the buffer while gossip messages are opened. Above it
messages wait unopened until gossip's deadline, so that senders notice that this node is behind.
Twice `KEPT_BATCHES`. With 256, 16 nodes under twice the load of their cores validated most batches
several times in vain (`benchmarks.delivery`, *overload*)."""

_WORKER_TRIES = 3


class Announcements:
    """Handles announcements; this default ignores them, as a relay does."""

    pulls = False
    """True if announced batches are pulled. Otherwise the announcement itself counts as received
    and its groups are charged to the publisher's quota."""

    def on_announcement(
        self, publisher: PeerId, announcement: Announcement, forwarder: PeerId, key: int | None
    ) -> Reason | None:
        """Handle an announcement on a topic of this key, if known; return the reason to refuse it,
        or None to forward it."""
        return None


async def _keep_nothing(*_what: object) -> None:
    """Discard the batches, as a peer without a trainer does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receivers:
    """Callbacks for the intake's results."""

    keep: Callable[[Sequence[SignedBatch]], Awaitable[None]] = _keep_nothing
    """Receives valid batches, in order."""
    on_equivocation: Callable[[Equivocation, bytes], Awaitable[None]] = _keep_nothing
    """Receives proof that a publisher signed two batches under one number."""
    announcements: Announcements = field(default_factory=Announcements)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeLimits(Ranged):
    """Limits of the queues, and the worker of each family."""

    queue_batches: Annotated[int, Range("batches", 1, 100_000)] = QUEUE_BATCHES
    lanes: Annotated[Mapping[str, str], Range("families", 0, 256)] = field(default_factory=dict)
    """Worker of each family that an own server or judge provides (`FamilySpec.worker_key`)."""


class Intake:
    """Validates messages from peers and passes valid batches on.

    `validate` is gossip's validator and `validate_fetched` that of fetched batches. Start with
    ``await nursery.start(intake.run)``.
    """

    def __init__(
        self,
        *,
        context: ValidationContext,
        questions: QuestionSource,
        ledger: PublisherLedger,
        receivers: Receivers,
        events: EventSink | None = None,
        wall_ms: Callable[[], int],
        is_open: trio.Event | None = None,
        in_thread: InThread = trio.to_thread.run_sync,
        network_of: Callable[[PeerId], str] = str,
        limits: IntakeLimits | None = None,
    ) -> None:
        """Messages wait until `is_open` is set: until the ledger is restored from disk, a second
        batch under a number looks like the first. `network_of` returns a peer's network, the first
        level of the worker's share keys (`Host.source_of`).
        """
        bounds = limits or IntakeLimits()
        self._context = context
        self._scheduler = VerifierScheduler(questions, lanes=bounds.lanes)
        self._network_of = network_of
        self._ledger = ledger
        self._receivers = receivers
        self._events = events or EventSink()
        self._wall_ms = wall_ms
        self._is_open = is_open
        self._decoder = BatchDecoder(in_thread)
        self._queued_bytes = 0
        self._drained = trio.Event()
        """Set when batches are taken off the queue."""
        self._send, self._receive = trio.open_memory_channel[SignedBatch](bounds.queue_batches)

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Move validated batches into the buffer until cancelled."""
        task_status.started()
        async with self._receive:
            async for first in self._receive:
                # An equivocation may have been found while it waited in the queue.
                await self._receivers.keep(
                    [
                        signed
                        for signed in self._take_chunk(first)
                        if not self._ledger.is_equivocated(signed.publisher, signed.batch.sequence)
                    ]
                )

    def _take_chunk(self, first: SignedBatch) -> list[SignedBatch]:
        """Return a batch and others that wait behind it, up to one transaction."""
        taken, num_bytes = [first], sum(map(weight_of, first.batch.groups))
        while len(taken) < KEPT_BATCHES and num_bytes < KEPT_BYTES:
            try:
                signed = self._receive.receive_nowait()
            except (trio.WouldBlock, trio.EndOfChannel):
                break
            taken.append(signed)
            num_bytes += sum(map(weight_of, signed.batch.groups))
        self._queued_bytes -= num_bytes
        self._drained.set()
        self._drained = trio.Event()
        return taken

    async def validate(
        self, data: bytes, author: PeerId, forwarder: PeerId, key: int | None = None
    ) -> Verdict:
        """Validate one message, and queue it if valid. Gossip's deadline bounds the waits.

        `key` is that of the topic; None for any.
        """
        context, now_ms = self._context, self._wall_ms()
        work_s, signed = 0.0, None
        try:
            envelope = open_message(data, author=author, context=context)
            await self._wait_for_turn()
            if envelope.payload_type == limits.ANNOUNCEMENT_PAYLOAD_TYPE:
                announcement = open_announcement(
                    envelope, author=author, context=context, now_ms=now_ms
                )
                await self._take_announcement(announcement, author, forwarder, key, statement=data)
                return ACCEPT
            is_direct, network = author == forwarder, self._network_of(forwarder)
            by = (network, forwarder)
            with self._decoder.reserve(by, declared_size(envelope.payload)):
                signed = await self._decoder.open(
                    envelope,
                    by,
                    author=author,
                    context=context,
                    now_ms=now_ms,
                    delivered_by=forwarder,
                )
                batch_key = self._key_of(signed)
                if key is not None and batch_key != key:
                    raise Rejected(Reason.WRONG_SWARM)
                work_s = work_of(signed.batch.groups)
                share_key = (network, PUBLISHED if is_direct else FORWARDED, author)
                await self._accept(signed, Source.GOSSIP, batch_key, share_key, is_direct=is_direct)
        except Rejected as rejected:
            return replace(
                verdict(rejected.reason),
                work_s=max(work_s, rejected.work_s),
                family=rejected.family if signed is None else family_of(signed.batch),
            )
        return replace(ACCEPT, work_s=work_s)

    async def validate_fetched(
        self,
        raw: bytes,
        *,
        publisher: PeerId,
        sequence: int,
        num_groups: int,
        source: Source,
        provider: PeerId | None = None,
        key: int | None = None,
    ) -> Verdict:
        """Validate a batch fetched by publisher and number; queue it if valid.

        The reason is SIGNER_NOT_SENDER if the publisher or the number differs, or, for a recent
        batch, if it has not `num_groups` groups, on which the request was based, or if it is not of
        the topic `key` on which it was announced. If the queue is
        full or the worker is unavailable, this waits for a while, unlike `validate`.
        """
        signed = None
        try:
            signed = await self._open_fetched(raw, publisher, provider)
            batch_key, count = self._key_of(signed), len(signed.batch.groups)
            counted = num_groups if source is Source.BACKFILL else count
            announced_on = batch_key if key is None else key
            if (signed.batch.sequence, count, batch_key) != (sequence, counted, announced_on):
                raise Rejected(Reason.SIGNER_NOT_SENDER)
            share_key = (self._network_of(provider or publisher), REQUESTED, publisher)
            await self._accept(signed, source, batch_key, share_key)
        except Rejected as rejected:
            # A batch of this node's own is not the requested publisher's either.
            is_mine = rejected.reason is Reason.CLAIMS_TO_BE_ME
            reason = Reason.SIGNER_NOT_SENDER if is_mine else rejected.reason
            family = rejected.family if signed is None else family_of(signed.batch)
            return replace(verdict(reason), family=family)
        return ACCEPT

    def _key_of(self, signed: SignedBatch) -> int:
        """Return the topic key of a batch, whose groups all have the same."""
        return self._context.rules.manifest.key_of(signed.batch.groups[0].task)

    def use_rules(self, rules: BatchRules) -> None:
        """Validate by these rules from now on: the node's families have changed."""
        self._context = replace(self._context, rules=rules)

    def queue_length(self) -> int:
        """Return how many validated batches wait for the buffer."""
        return self._send.statistics().current_buffer_used

    async def _wait_for_turn(self) -> None:
        """Wait until the ledger is restored, and while the buffer is behind."""
        if self._is_open is not None and not self._is_open.is_set():
            await self._is_open.wait()
        while self._send.statistics().current_buffer_used >= WAITING_BATCHES:
            await self._drained.wait()

    async def _open_fetched(
        self, raw: bytes, publisher: PeerId, provider: PeerId | None
    ) -> SignedBatch:
        def open_it() -> SignedEnvelope:
            return open_fetched(raw, context=self._context)

        # About 20 ms a megabyte, too long for the event loop.
        is_large = len(raw) > limits.WHOLE_MESSAGE_BYTES
        by = (self._network_of(provider or publisher), publisher)
        return await self._decoder.open(
            await self._decoder.in_thread(open_it, by) if is_large else open_it(),
            by,
            author=publisher,
            context=self._context,
            now_ms=self._wall_ms(),
            delivered_by=provider,
        )

    async def _take_announcement(
        self,
        announcement: Announcement,
        author: PeerId,
        forwarder: PeerId,
        key: int | None,
        *,
        statement: bytes,
    ) -> None:
        sequence, batch_id = announcement.sequence, announcement.batch_id
        num_groups = announcement.num_groups
        reason = self._ledger.check(author, sequence, batch_id, num_groups, trio.current_time())
        if reason is not None:
            await self._refuse(reason, author, sequence, batch_id, statement)
        receiver = self._receivers.announcements
        reason = receiver.on_announcement(author, announcement, forwarder, key)
        if reason is not None:
            raise Rejected(reason)
        if not self._receivers.announcements.pulls:
            self._ledger.record(author, sequence, batch_id, num_groups, trio.current_time())

    async def _accept(
        self,
        signed: SignedBatch,
        source: Source,
        key: int,
        share_key: ShareKey,
        *,
        is_direct: bool = False,
    ) -> None:
        """Queue an opened batch if it is new and its questions are right. Raises Rejected."""
        batch, ledger = signed.batch, self._ledger
        await self._check_new(signed, source, is_direct=is_direct)
        num_records = ledger.num_records
        regenerated = await self._regenerate(
            coordinates_of(batch),
            share_key,
            is_own=is_direct,
            tries=1 if source is Source.GOSSIP else _WORKER_TRIES,
        )
        if (reason := check_questions(batch, regenerated)) is not None:
            raise Rejected(reason)
        if source is not Source.GOSSIP:
            await self._wait_for_room()
        if ledger.num_records != num_records:
            # A copy may have been accepted in the meantime.
            await self._check_new(signed, source, is_direct=is_direct)
        if not self._has_room():
            raise Rejected(Reason.BUSY)
        self._send.send_nowait(signed)
        self._queued_bytes += sum(map(weight_of, batch.groups))
        now, num_groups = trio.current_time(), len(batch.groups)
        number = signed.publisher, batch.sequence, signed.batch_id
        if source is Source.BACKFILL:
            ledger.remember(*number, now)
        else:
            ledger.record(*number, num_groups, now)
        self._events.emit(
            BatchAccepted(
                publisher=signed.publisher,
                sequence=batch.sequence,
                previous_sequence=batch.previous_sequence,
                num_groups=num_groups,
                source=source,
                key=key,
                delivered_by=signed.delivered_by,
            )
        )
        if is_direct:
            ledger.charge_direct(signed.publisher, num_groups, now)

    async def _regenerate(
        self, tasks: list[TaskCoordinates], share_key: ShareKey, *, is_own: bool, tries: int
    ) -> list[Digest]:
        while True:
            tries -= 1
            try:
                return await self._scheduler.question_digests(tasks, share_key, is_own=is_own)
            except CostLimitExceeded:
                raise Rejected(Reason.COST_LIMIT) from None
            except WorkerUnavailable:
                if not tries:
                    raise Rejected(Reason.WORKER_UNAVAILABLE) from None
            except UnknownFamily:
                raise Rejected(Reason.UNKNOWN_FAMILY) from None
            await trio.sleep(RETRY_S)

    async def _wait_for_room(self) -> None:
        with trio.move_on_after(REPLY_S):
            while not self._has_room():
                await self._drained.wait()

    def _has_room(self) -> bool:
        queue = self._send.statistics()
        is_full = queue.current_buffer_used >= queue.max_buffer_size
        return not is_full and self._queued_bytes < QUEUE_BYTES

    async def _check_new(
        self, signed: SignedBatch, source: Source, *, is_direct: bool = False
    ) -> None:
        """Check that the batch is new and within its publisher's quota. Raises Rejected."""
        now, num_groups = trio.current_time(), len(signed.batch.groups)
        number = signed.publisher, signed.batch.sequence, signed.batch_id
        reason = self._ledger.check(*number, num_groups, now, source=source)
        if (
            is_direct
            and reason is Reason.OVER_QUOTA
            and self._ledger.charge_direct(signed.publisher, num_groups, now)
        ):
            # Other peers forwarded too much of it, perhaps replays. That is not its fault.
            reason = Reason.BUSY
        if reason is not None:
            await self._refuse(
                reason, signed.publisher, signed.batch.sequence, signed.batch_id, signed.envelope
            )

    async def _refuse(
        self,
        reason: Reason,
        publisher: PeerId,
        sequence: int,
        batch_id: BatchId,
        statement: bytes,
    ) -> NoReturn:
        """Raise Rejected. With an equivocation, `statement` is the publisher's signed proof."""
        if reason is Reason.EQUIVOCATION:
            pair = self._ledger.record_equivocation(
                publisher, sequence, batch_id, trio.current_time()
            )
            if pair is not None:
                log.warning("%s signed two batches as number %d", publisher, sequence)
                await self._receivers.on_equivocation(pair, statement)
        raise Rejected(reason)
