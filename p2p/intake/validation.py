"""Validation of what peers bring, unasked or asked: bytes → `SignedBatch` or a verdict. Pure.

Cheap checks come first; nothing here keeps state, reads a clock or evaluates text. What needs
state (duplicates, quotas) is in `ledger`, what needs the task worker (question digests) is asked
for by `coordinates_of` and judged by `check_questions`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from shoal_tasks.types import TaskCoordinates
from shoal_wire import digests
from shoal_wire.announcement import Announcement, check_announcement, decode_announcement
from shoal_wire.codec import PayloadError, decode_batch
from shoal_wire.envelope import EnvelopeError, SignedEnvelope, open_envelope
from shoal_wire.limits import ANNOUNCEMENT_PAYLOAD_TYPE
from shoal_wire.rules import BatchRules, check_batch
from shoal_wire.types import Digest, PeerId, PublishedGroup, RolloutBatch, RolloutGroup, SignedBatch
from shoal_wire.verdict import Reason, Verdict

Validator = Callable[[bytes, PeerId, PeerId], Awaitable[Verdict]]
"""``await validator(data, author, forwarder)``: judges a message, keeps what is good."""


class Source(StrEnum):
    """How a batch came."""

    GOSSIP = "gossip"
    BACKFILL = "backfill"
    """Asked for as one of a peer's recent ones."""
    GAP = "gap"
    """Missed, noticed and asked for."""
    PULL = "pull"
    """Announced, too big to be gossiped whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationContext:
    """What a batch is judged against."""

    rules: BatchRules
    me: PeerId


class Rejected(Exception):  # noqa: N818 - a judgement, not a fault
    """A message that is not to be kept; `reason` is its row in the verdict table."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.value)
        self.reason = reason


def open_batch(
    raw: bytes, *, author: PeerId, context: ValidationContext, now_ms: int
) -> SignedBatch:
    """Return the batch that `author` published in `raw`.

    Raises:
        Rejected: with the verdict table's reason.
    """
    if len(raw) > context.rules.manifest.rules.max_message_bytes:
        raise Rejected(Reason.OVERSIZE_MESSAGE)
    if author == context.me:
        raise Rejected(Reason.CLAIMS_TO_BE_ME)
    try:
        envelope = open_envelope(raw)
    except EnvelopeError as error:
        raise Rejected(error.reason) from None
    _check_signer(envelope, author, context)
    return _open_payload(envelope, context, now_ms)


def open_fetched(
    raw: bytes, *, publisher: PeerId, context: ValidationContext, now_ms: int
) -> SignedBatch:
    """Return the batch in `raw`, given as one of `publisher`; it may be over gossip's cap.

    Raises:
        Rejected: with the verdict table's reason.
    """
    if len(raw) > context.rules.manifest.rules.max_envelope_bytes:
        raise Rejected(Reason.OVERSIZE_PAYLOAD)
    try:
        envelope = open_envelope(raw)
    except EnvelopeError as error:
        raise Rejected(error.reason) from None
    _check_signer(envelope, publisher, context)
    return _open_payload(envelope, context, now_ms)


def open_announcement(
    raw: bytes, *, author: PeerId, context: ValidationContext, now_ms: int
) -> Announcement:
    """Return what `author` announced in `raw`.

    Raises:
        Rejected: with the verdict table's reason.
    """
    if author == context.me:
        raise Rejected(Reason.CLAIMS_TO_BE_ME)
    try:
        envelope = open_envelope(raw, payload_type=ANNOUNCEMENT_PAYLOAD_TYPE)
        _check_signer(envelope, author, context)
        announcement = decode_announcement(envelope.payload)
    except (EnvelopeError, PayloadError) as error:
        raise Rejected(error.reason) from None
    reason = check_announcement(announcement, context.rules.manifest, now_ms=now_ms)
    if reason is not None:
        raise Rejected(reason)
    return announcement


def reopen_batch(raw: bytes, *, max_bytes: int) -> SignedBatch:
    """Return a batch from our own disk: signature and structure are checked, its age is not.

    Raises:
        Rejected: the stored bytes are damaged.
    """
    try:
        envelope = open_envelope(raw)
        return _signed(envelope, decode_batch(envelope.payload, max_bytes=max_bytes))
    except (EnvelopeError, PayloadError) as error:
        raise Rejected(error.reason) from None


def coordinates_of(batch: RolloutBatch) -> list[TaskCoordinates]:
    """Return the coordinates whose questions must be regenerated, in the groups' order."""
    return [group_coordinates(group) for group in batch.groups if group.task.inline is None]


def group_coordinates(group: RolloutGroup) -> TaskCoordinates:
    """Return the coordinates by which the task worker knows a group's task."""
    task = group.task
    return TaskCoordinates(
        family=task.family, config_digest=task.config_digest, seed=task.seed, index=task.index
    )


def check_questions(batch: RolloutBatch, regenerated: Sequence[Digest | None]) -> Reason | None:
    """Compare stated question digests with the regenerated ones, in `coordinates_of`'s order.

    An entry is None where the generator has no task at these coordinates. Inline tasks carry
    their question, so its digest is checked here and now.
    """
    remaining = iter(regenerated)
    for group in batch.groups:
        task = group.task
        if task.inline is not None:
            expected: Digest | None = digests.question_digest(task.inline.question)
        else:
            expected = next(remaining)
        if expected != task.question_digest:
            return Reason.QUESTION_MISMATCH
    return None


def published_groups(signed: SignedBatch) -> tuple[PublishedGroup, ...]:
    """Return the groups of a batch, each with its provenance."""
    batch = signed.batch
    return tuple(
        PublishedGroup(
            group_id=digests.group_id(group),
            publisher=signed.publisher,
            batch_id=signed.batch_id,
            round=batch.round,
            created_ms=batch.created_ms,
            policy=batch.policy,
            sampling=batch.sampling,
            group=group,
        )
        for group in batch.groups
    )


def _open_payload(envelope: SignedEnvelope, context: ValidationContext, now_ms: int) -> SignedBatch:
    try:
        batch = decode_batch(
            envelope.payload, max_bytes=context.rules.manifest.rules.max_batch_bytes
        )
    except PayloadError as error:
        raise Rejected(error.reason) from None
    reason = check_batch(batch, context.rules, now_ms=now_ms)
    if reason is not None:
        raise Rejected(reason)
    return _signed(envelope, batch)


def _check_signer(envelope: SignedEnvelope, author: PeerId, context: ValidationContext) -> None:
    if envelope.signer == context.me:
        raise Rejected(Reason.CLAIMS_TO_BE_ME)
    if envelope.signer != author:
        raise Rejected(Reason.SIGNER_NOT_SENDER)


def _signed(envelope: SignedEnvelope, batch: RolloutBatch) -> SignedBatch:
    return SignedBatch(
        batch_id=digests.batch_id(envelope.raw),
        publisher=envelope.signer,
        batch=batch,
        envelope=envelope.raw,
    )
