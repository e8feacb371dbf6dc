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
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NoReturn, Protocol

import trio

from shoal_base.bounded import QUEUE_BYTES
from shoal_base.waits import REPLY_S, RETRY_S
from shoal_p2p.fair import FORWARDED, PUBLISHED, ShareKey
from shoal_p2p.intake.batch_decoder import BatchDecoder
from shoal_p2p.intake.ledger import Equivocation, PublisherLedger
from shoal_p2p.intake.questions import check_questions, coordinates_of
from shoal_p2p.intake.validation import (
    Rejected,
    Source,
    ValidationContext,
    family_of,
    open_announcement,
    open_fetched,
    open_message,
    open_payload,
    parse_payload,
)
from shoal_p2p.intake.verifier_scheduler import (
    ASKED_FOR,
    CostLimitExceeded,
    QuestionSource,
    VerifierScheduler,
)
from shoal_p2p.intake.weight import weight_of, work_of
from shoal_p2p.threads import InThread
from shoal_tasks.errors import UnknownFamily, WorkerUnavailable
from shoal_tasks.types import TaskCoordinates
from shoal_wire import limits
from shoal_wire.announcement import Announcement
from shoal_wire.compression import declared_size
from shoal_wire.envelope import SignedEnvelope
from shoal_wire.types import BatchId, Digest, PeerId, SignedBatch
from shoal_wire.verdict import ACCEPT, Reason, Verdict, verdict

if TYPE_CHECKING:
    from trio_typing import TaskStatus

log = logging.getLogger(__name__)

KEPT_BATCHES = 16
KEPT_BYTES = 1024 * 1024
"""Batches that are kept together, where so many wait, and what they weigh before the last: they
share a transaction."""

QUEUE_BATCHES = 256
"""Validated batches that may wait for the buffer; beyond it new ones are ignored and counted."""

WAITING_BATCHES = 2 * KEPT_BATCHES
"""Validated batches that wait for the buffer while gossip's messages are opened. Beyond it these
wait themselves, unopened and unread, until gossip's deadline: so who sends them sees that this node
is behind. Twice `KEPT_BATCHES`. Where 256 waited unseen, 16 nodes at twice what their cores carry
validated most batches several times in vain (`benchmarks.delivery`, *overload*)."""


RESERVE_SHARE = 0.25
"""Share of a publisher's burst of groups that is left to its gossip when gaps are filled."""


_WORKER_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAccepted:
    """A valid batch is on its way to the buffer."""

    publisher: PeerId
    sequence: int
    previous_sequence: int
    num_groups: int
    source: Source
    delivered_by: PeerId | None = None
    """The peer that forwarded or gave it, where that is known."""


class Observer(Protocol):
    """Learns of what the intake lets through."""

    def accepted(self, told: BatchAccepted) -> None:
        """Take note; must not wait, and must not raise."""


class Announcements:
    """Takes up what is announced; this one does not care, as a relay does not."""

    pulls = False
    """True if announced batches are pulled. If not, the announcement itself counts as seen and
    takes its groups off the publisher's quota."""

    def announced(
        self, publisher: PeerId, announcement: Announcement, forwarder: PeerId
    ) -> Reason | None:
        """Take up an announcement; return why not. It is forwarded if there is no reason."""
        return None


async def _keep_nothing(*_what: object) -> None:
    """Keep nothing, as a peer that has no use for groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receivers:
    """The receivers of the intake's results."""

    keep: Callable[[Sequence[SignedBatch]], Awaitable[None]] = _keep_nothing
    """Takes valid batches, in their order."""
    accuse: Callable[[Equivocation, bytes], Awaitable[None]] = _keep_nothing
    """Takes proof that a publisher signed two batches under one number."""
    announcements: Announcements = field(default_factory=Announcements)
    observers: Sequence[Observer] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeLimits:
    """Bounds on the batches that wait for the intake, and on their wait."""

    queue_batches: int = QUEUE_BATCHES
    lanes: Mapping[str, str] = field(default_factory=dict)
    """Worker process of each family that an own server or judge makes (`FamilySpec.lane`)."""


class Intake:
    """Judges what peers send and hands on what is valid."""

    def __init__(
        self,
        *,
        context: ValidationContext,
        questions: QuestionSource,
        ledger: PublisherLedger,
        receivers: Receivers,
        wall_ms: Callable[[], int],
        is_open: trio.Event | None = None,
        in_thread: InThread = trio.to_thread.run_sync,
        network_of: Callable[[PeerId], str] = str,
        limits: IntakeLimits | None = None,
    ) -> None:
        """Messages wait until `is_open` is set: before the ledger knows what is on disk, the second
        batch under a number cannot be told from the first. `network_of` names the network of a peer
        that brings a batch, by which the worker's time is shared first (`Host.source_of`).
        """
        bounds = limits or IntakeLimits()
        self._context = context
        self._turns = VerifierScheduler(questions, lanes=bounds.lanes)
        self._network_of = network_of
        self._ledger = ledger
        self._receivers = receivers
        self._wall_ms = wall_ms
        self._is_open = is_open
        self._opener = BatchDecoder(in_thread)
        self._queued_bytes = 0
        self._taken = trio.Event()
        """Set when batches have left the queue."""
        self._send, self._receive = trio.open_memory_channel[SignedBatch](bounds.queue_batches)

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Move validated batches into the buffer until cancelled."""
        task_status.started()
        async with self._receive:
            async for first in self._receive:
                # Its second copy may have come while it waited here, where none could withdraw it.
                await self._receivers.keep(
                    [
                        signed
                        for signed in self._with_others(first)
                        if not self._ledger.is_equivocated(signed.publisher, signed.batch.sequence)
                    ]
                )

    def _with_others(self, first: SignedBatch) -> list[SignedBatch]:
        """Return a batch taken from the queue, and with it what waits behind it."""
        taken, num_bytes = [first], sum(map(weight_of, first.batch.groups))
        while len(taken) < KEPT_BATCHES and num_bytes < KEPT_BYTES:
            try:
                signed = self._receive.receive_nowait()
            except (trio.WouldBlock, trio.EndOfChannel):
                break
            taken.append(signed)
            num_bytes += sum(map(weight_of, signed.batch.groups))
        self._queued_bytes -= num_bytes
        self._taken.set()
        self._taken = trio.Event()
        return taken

    async def validate(self, data: bytes, author: PeerId, forwarder: PeerId) -> Verdict:
        """Judge one message, and queue it if it is valid. Gossip's deadline bounds its waits."""
        context, now_ms = self._context, self._wall_ms()
        work_s, signed = 0.0, None
        try:
            envelope = open_message(data, author=author, context=context)
            await self._until_open()
            await self._until_few_wait()
            match envelope.payload_type:
                case limits.ANNOUNCEMENT_PAYLOAD_TYPE:
                    told = open_announcement(
                        envelope, author=author, context=context, now_ms=now_ms
                    )
                    await self._take_announcement(told, author, forwarder, statement=data)
                case _:
                    said_itself, network = author == forwarder, self._network_of(forwarder)
                    size, by = declared_size(envelope.payload), (network, forwarder)
                    with self._opener.room_for(by, size):
                        signed = await self._opened(envelope, author, forwarder, by)
                        work_s = work_of(signed.batch.groups)
                        await self._check_new(signed, Source.GOSSIP, said_itself=said_itself)
                        share_key = (network, PUBLISHED if said_itself else FORWARDED, author)
                        regenerated = await self._regenerate(
                            coordinates_of(signed.batch), share_key, is_own=said_itself
                        )
                        _reject_for(check_questions(signed.batch, regenerated))
                        # Guard: another copy may have been judged while this was at the worker.
                        await self._check_new(signed, Source.GOSSIP, said_itself=said_itself)
                        self._accept(signed, Source.GOSSIP)
                    if said_itself:
                        num_groups = len(signed.batch.groups)
                        self._ledger.said(author, num_groups, trio.current_time())
        except Rejected as rejected:
            return replace(
                verdict(rejected.reason),
                work_s=max(work_s, rejected.work_s),
                family=rejected.family if signed is None else family_of(signed.batch),
            )
        return replace(ACCEPT, work_s=work_s)

    async def take(
        self,
        raw: bytes,
        *,
        publisher: PeerId,
        sequence: int,
        num_groups: int,
        source: Source,
        provider: PeerId | None = None,
    ) -> Verdict:
        """Judge a batch that was asked for as the publisher's under that number; queue it if valid.

        `signer_not_sender` says that it is another's, under another number, or of the recent ones
        and of other than `num_groups`, by which it was decided how much to ask for. Where gossip
        would ignore for want of room or of a worker, this waits a while.
        """
        signed = None
        try:
            signed = await self._open_fetched(raw, publisher, provider)
            counted = num_groups if source is Source.BACKFILL else len(signed.batch.groups)
            if (signed.batch.sequence, len(signed.batch.groups)) != (sequence, counted):
                raise Rejected(Reason.SIGNER_NOT_SENDER)
            await self._check_new(signed, source)
            share_key = (self._network_of(provider or publisher), ASKED_FOR, publisher)
            regenerated = await self._regenerate_patiently(coordinates_of(signed.batch), share_key)
            _reject_for(check_questions(signed.batch, regenerated))
            await self._wait_for_room()
            # Guard: gossip may have brought a copy while this one was at the worker or waited.
            await self._check_new(signed, source)
            self._accept(signed, source)
        except Rejected as rejected:
            # One of this node's own is another's than it was said to be, like any other's.
            is_mine = rejected.reason is Reason.CLAIMS_TO_BE_ME
            reason = Reason.SIGNER_NOT_SENDER if is_mine else rejected.reason
            family = rejected.family if signed is None else family_of(signed.batch)
            return replace(verdict(reason), family=family)
        return ACCEPT

    def queue_length(self) -> int:
        """Return how many validated batches wait for the buffer."""
        return self._send.statistics().current_buffer_used

    async def _until_open(self) -> None:
        if self._is_open is not None and not self._is_open.is_set():
            await self._is_open.wait()

    async def _until_few_wait(self) -> None:
        while self.queue_length() >= WAITING_BATCHES:
            await self._taken.wait()

    async def _open_fetched(
        self, raw: bytes, publisher: PeerId, provider: PeerId | None
    ) -> SignedBatch:
        def open_it() -> SignedEnvelope:
            return open_fetched(raw, context=self._context)

        # Some 20 ms a megabyte: the loop must not stand still for it.
        is_large = len(raw) > limits.WHOLE_MESSAGE_BYTES
        by = (self._network_of(provider or publisher), publisher)
        envelope = await self._opener.in_thread(open_it, by) if is_large else open_it()
        return await self._opened(envelope, publisher, provider, by)

    async def _opened(
        self, envelope: SignedEnvelope, author: PeerId, delivered_by: PeerId | None, by: ShareKey
    ) -> SignedBatch:
        """Return the batch in an envelope, opened where its size allows; `by` has the turn."""
        parse = partial(parse_payload, envelope, author=author, context=self._context)
        finish = partial(
            open_payload,
            envelope,
            author=author,
            context=self._context,
            now_ms=self._wall_ms(),
            delivered_by=delivered_by,
        )
        size = declared_size(envelope.payload)
        return await self._opener.open(lambda parsed: finish(parsed=parsed), size, by, parse=parse)

    async def _take_announcement(
        self, told: Announcement, author: PeerId, forwarder: PeerId, *, statement: bytes
    ) -> None:
        now = trio.current_time()
        reason = self._ledger.check(author, told.sequence, told.batch_id, told.num_groups, now)
        if reason is not None:
            await self._refuse(reason, author, told.sequence, told.batch_id, statement)
        _reject_for(self._receivers.announcements.announced(author, told, forwarder))
        if not self._receivers.announcements.pulls:
            self._ledger.record(
                author, told.sequence, told.batch_id, told.num_groups, trio.current_time()
            )

    def _accept(self, signed: SignedBatch, source: Source) -> None:
        if not self._has_room():
            raise Rejected(Reason.BUSY)
        self._send.send_nowait(signed)
        self._queued_bytes += sum(map(weight_of, signed.batch.groups))
        batch, now = signed.batch, trio.current_time()
        number = signed.publisher, batch.sequence, signed.batch_id
        if source is Source.BACKFILL:
            self._ledger.remember(*number, now)
        else:
            self._ledger.record(*number, len(batch.groups), now)
        told = BatchAccepted(
            publisher=signed.publisher,
            sequence=batch.sequence,
            previous_sequence=batch.previous_sequence,
            num_groups=len(batch.groups),
            source=source,
            delivered_by=signed.delivered_by,
        )
        for observer in self._receivers.observers:
            observer.accepted(told)

    async def _regenerate(
        self, tasks: list[TaskCoordinates], share_key: ShareKey, *, is_own: bool = False
    ) -> list[Digest]:
        try:
            return await self._turns.question_digests(tasks, share_key, is_own=is_own)
        except CostLimitExceeded:
            raise Rejected(Reason.COST_LIMIT) from None
        except WorkerUnavailable:
            raise Rejected(Reason.WORKER_UNAVAILABLE) from None
        except UnknownFamily:
            raise Rejected(Reason.UNKNOWN_FAMILY) from None

    async def _regenerate_patiently(
        self, tasks: list[TaskCoordinates], share_key: ShareKey
    ) -> list[Digest]:
        for _ in range(_WORKER_TRIES - 1):
            try:
                return await self._regenerate(tasks, share_key)
            except Rejected as rejected:
                if rejected.reason is not Reason.WORKER_UNAVAILABLE:
                    raise
            await trio.sleep(RETRY_S)
        return await self._regenerate(tasks, share_key)

    async def _wait_for_room(self) -> None:
        with trio.move_on_after(REPLY_S):
            while not self._has_room():
                await self._taken.wait()

    def _has_room(self) -> bool:
        full = self.queue_length() >= self._send.statistics().max_buffer_size
        return not full and self._queued_bytes < QUEUE_BYTES

    async def _check_new(
        self, signed: SignedBatch, source: Source, *, said_itself: bool = False
    ) -> None:
        """Ask the ledger whether the batch is new and within its publisher's quota."""
        now, num_groups = trio.current_time(), len(signed.batch.groups)
        number = signed.publisher, signed.batch.sequence, signed.batch_id
        reason = check_number(self._ledger, *number, num_groups, source, now)
        if (
            said_itself
            and reason is Reason.OVER_QUOTA
            and self._ledger.said(signed.publisher, num_groups, now)
        ):
            # Others have sent us so much of it, replays perhaps: it knows nothing of that.
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
        """Reject; `statement`, which the publisher signed, proves it where it signed two."""
        if reason is Reason.EQUIVOCATION:
            pair = self._ledger.accuse(publisher, sequence, batch_id, trio.current_time())
            if pair is not None:
                log.warning("%s signed two batches as number %d", publisher, sequence)
                await self._receivers.accuse(pair, statement)
        raise Rejected(reason)


def check_number(
    ledger: PublisherLedger,
    publisher: PeerId,
    sequence: int,
    batch_id: BatchId,
    num_groups: int,
    source: Source,
    now: float,
) -> Reason | None:
    """Return why a batch is not to be taken by its number, or by its publisher's quota.

    What a peer lists as recent has no quota: a publisher has used its own all the time that this
    node was away, and how much is asked for `Backfill` decides by the room that is left.
    """
    if source is Source.BACKFILL:
        return ledger.not_new(publisher, sequence, batch_id)
    # Gossip, and what is announced there, is the publisher's live traffic: the quota is for that.
    reserve_share = RESERVE_SHARE if source is Source.GAP else 0.0
    return ledger.check(publisher, sequence, batch_id, num_groups, now, reserve_share=reserve_share)


def _reject_for(reason: Reason | None) -> None:
    if reason is not None:
        raise Rejected(reason)
