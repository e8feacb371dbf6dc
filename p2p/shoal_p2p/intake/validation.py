"""Stateless validation of messages: bytes ─▶ envelope ─▶ `SignedBatch`, or a verdict. Pure.

Cheap checks run first. Nothing here keeps state, reads a clock or evaluates text. Checks with state
(duplicates, quotas) are in `ledger`. `check_questions` compares what the task worker regenerated.

A group's cost in memory and time differs from its wire size: zstd compresses megabytes to a few
hundred bytes, one emoji makes every character of its text four bytes wide, and a log-probability of
two bytes becomes a reference of eight.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from shoal_base.visible import visible_name
from shoal_tasks import wire_tasks
from shoal_tasks.types import TaskCoordinates
from shoal_wire.announcement import Announcement, check_announcement, decode_announcement
from shoal_wire.codec import ParsedBatch, PayloadError, decode_batch, group_size, parse_batch
from shoal_wire.digests import batch_id, question_digest
from shoal_wire.envelope import EnvelopeError, SignedEnvelope, open_envelope
from shoal_wire.limits import (
    ANNOUNCEMENT_PAYLOAD_TYPE,
    BATCH_PAYLOAD_TYPE,
    MAX_ANNOUNCEMENT_BYTES,
)
from shoal_wire.rules import BatchRules, check_batch
from shoal_wire.types import Digest, PeerId, PublishedGroup, RolloutBatch, RolloutGroup, SignedBatch
from shoal_wire.verdict import Reason, Verdict

GROUP_OVERHEAD_BYTES = 1200
COMPLETION_OVERHEAD_BYTES = 120
"""Memory overhead of the Python objects, in bytes, as measured."""
_LOGPROB_OVERHEAD_BYTES = 6
TRUNCATION_MARK = "…"
"""Marks the end of a truncated text."""
_GROUP_S, _COMPLETION_S, _LOGPROB_S, _BYTE_S = 60e-6, 6e-6, 150e-9, 1e-9
"""Processing cost of each from the envelope to the buffer, in seconds, as measured."""


def weight_of(group: RolloutGroup) -> int:
    """Return the memory that a group occupies, in bytes. Cached on the group."""
    try:
        return group.known_weight
    except AttributeError:
        texts = 0
        for completion in group.completions:
            if not completion.text.isascii():
                texts += _width(completion.text)
        if (inline := group.task.inline) is not None:
            texts += _width(inline.question) + _width(inline.answer)
        logprobs = sum(len(completion.logprobs or ()) for completion in group.completions)
        found = (
            group_size(group)
            + GROUP_OVERHEAD_BYTES
            + COMPLETION_OVERHEAD_BYTES * len(group.completions)
            + texts
            + _LOGPROB_OVERHEAD_BYTES * logprobs
        )
        object.__setattr__(group, "known_weight", found)
        return found


def work_of(groups: Sequence[RolloutGroup]) -> float:
    """Return the estimated cost of validating and storing groups, in seconds. Reads no clock."""
    num_completions = sum(len(group.completions) for group in groups)
    num_bytes = sum(map(group_size, groups))
    return _GROUP_S * len(groups) + _COMPLETION_S * num_completions + _BYTE_S * num_bytes


def is_light(parsed: ParsedBatch, max_s: float) -> bool:
    """Return whether finishing a parsed payload is estimated to take at most `max_s`."""
    left_s = max_s - _GROUP_S * parsed.num_groups - _COMPLETION_S * parsed.num_completions
    return left_s >= 0 and _LOGPROB_S * parsed.num_logprobs() <= left_s


def truncate(published: PublishedGroup, *, max_chars: int) -> PublishedGroup:
    """Return a group truncated to `max_chars`, without log-probabilities.

    Each completion keeps an equal share; the group id stays that of the whole group.
    """
    group = published.group
    share = max(1, max_chars // max(1, len(group.completions)))
    completions = tuple(
        replace(completion, text=_truncate(completion.text, share), logprobs=None)
        for completion in group.completions
    )
    task = group.task
    if (inline := task.inline) is not None:
        question, answer = (
            _truncate(inline.question, max_chars),
            _truncate(inline.answer, max_chars),
        )
        task = replace(task, inline=replace(inline, question=question, answer=answer))
    return replace(published, group=RolloutGroup(task=task, completions=completions))


def _width(text: str) -> int:
    """Return how many more bytes a text takes in memory than in UTF-8."""
    return 0 if text.isascii() else max(0, sys.getsizeof(text) - len(text.encode()))


def _truncate(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else text[:max_chars] + TRUNCATION_MARK


TopicValidator = Callable[[bytes, PeerId, PeerId, int], Awaitable[Verdict]]
"""A `Validator` that also gets the key of the topic (`shoal_wire.topic_keys`)."""

Validator = Callable[[bytes, PeerId, PeerId], Awaitable[Verdict]]
"""``await validator(data, author, forwarder)`` validates a message, and queues it if valid."""


_FAMILY_CHARS = 64
_BATCH = (BATCH_PAYLOAD_TYPE,)
_GOSSIPED = (BATCH_PAYLOAD_TYPE, ANNOUNCEMENT_PAYLOAD_TYPE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationContext:
    """The swarm's rules and this node's identity."""

    rules: BatchRules
    me: PeerId


class Rejected(Exception):  # noqa: N818 - a verdict, not a failure
    """A message failed validation; `reason` is its row in the verdict table.

    `work_s` is the estimated cost of the validation, 0 if negligible. `family` is the result of
    `family_of`, empty if the batch was not decoded.
    """

    def __init__(self, reason: Reason, *, work_s: float = 0.0, family: str = "") -> None:
        super().__init__(reason.value)
        self.reason = reason
        self.work_s = work_s
        self.family = family


def open_message(raw: bytes, *, author: PeerId, context: ValidationContext) -> SignedEnvelope:
    """Return the envelope of a batch or announcement that `author` gossiped.

    Raises:
        Rejected: with the verdict table's reason.
    """
    if len(raw) > context.rules.manifest.rules.max_message_bytes:
        raise Rejected(Reason.OVERSIZE_MESSAGE)
    if author == context.me:
        raise Rejected(Reason.CLAIMS_TO_BE_ME)
    announces = len(raw) <= MAX_ANNOUNCEMENT_BYTES
    try:
        return open_envelope(raw, payload_types=_GOSSIPED if announces else _BATCH)
    except EnvelopeError as error:
        raise Rejected(error.reason) from None


def open_fetched(raw: bytes, *, context: ValidationContext) -> SignedEnvelope:
    """Return the envelope of a fetched batch; it may exceed gossip's size limit.

    Raises:
        Rejected: with the verdict table's reason.
    """
    if len(raw) > context.rules.manifest.rules.max_envelope_bytes:
        raise Rejected(Reason.OVERSIZE_PAYLOAD)
    try:
        return open_envelope(raw, payload_types=_BATCH)
    except EnvelopeError as error:
        raise Rejected(error.reason) from None


def parse_payload(
    envelope: SignedEnvelope, *, author: PeerId, context: ValidationContext
) -> ParsedBatch:
    """Run the first step of `open_payload`, which shows how much work the rest is.

    Raises:
        Rejected: with the same reason as `open_payload`.
    """
    if envelope.payload_type != BATCH_PAYLOAD_TYPE:
        raise Rejected(Reason.MALFORMED_ENVELOPE)
    _check_signer(envelope.signer, author, context.me)
    try:
        return parse_batch(envelope.payload, max_bytes=context.rules.manifest.rules.max_batch_bytes)
    except PayloadError as error:
        raise Rejected(error.reason) from None


def open_payload(
    envelope: SignedEnvelope,
    *,
    author: PeerId,
    context: ValidationContext,
    now_ms: int,
    delivered_by: PeerId | None = None,
    parsed: ParsedBatch | None = None,
) -> SignedBatch:
    """Return the batch of `author` in an opened envelope, whatever its `Source`.

    Raises:
        Rejected: with the verdict table's reason.
    """
    parsed = parsed or parse_payload(envelope, author=author, context=context)
    max_bytes = context.rules.manifest.rules.max_batch_bytes
    try:
        batch = decode_batch(envelope.payload, max_bytes=max_bytes, parsed=parsed)
    except PayloadError as error:
        raise Rejected(error.reason) from None
    reason = check_batch(batch, context.rules, now_ms=now_ms)
    if reason is not None:
        raise Rejected(reason, work_s=work_of(batch.groups), family=family_of(batch))
    return SignedBatch(
        batch_id=batch_id(envelope.raw),
        publisher=envelope.signer,
        batch=batch,
        envelope=envelope.raw,
        delivered_by=delivered_by,
    )


def open_announcement(
    envelope: SignedEnvelope, *, author: PeerId, context: ValidationContext, now_ms: int
) -> Announcement:
    """Return the announcement of `author` in an opened envelope.

    Raises:
        Rejected: with the verdict table's reason.
    """
    if envelope.payload_type != ANNOUNCEMENT_PAYLOAD_TYPE:
        raise Rejected(Reason.MALFORMED_ENVELOPE)
    _check_signer(envelope.signer, author, context.me)
    try:
        announcement = decode_announcement(envelope.payload)
    except PayloadError as error:
        raise Rejected(error.reason) from None
    reason = check_announcement(announcement, context.rules.manifest, now_ms=now_ms)
    if reason is not None:
        raise Rejected(reason)
    return announcement


def reopen_batch(raw: bytes, *, max_bytes: int) -> SignedBatch:
    """Return a batch from disk. Checks signature and structure, but not its age.

    Raises:
        Rejected: the stored bytes are damaged.
    """
    try:
        envelope = open_envelope(raw)
        batch = decode_batch(envelope.payload, max_bytes=max_bytes)
    except (EnvelopeError, PayloadError) as error:
        raise Rejected(error.reason) from None
    return SignedBatch(batch_id=batch_id(raw), publisher=envelope.signer, batch=batch, envelope=raw)


def family_of(batch: RolloutBatch) -> str:
    """Return the family of a batch's first group, printable and truncated."""
    named = batch.groups[0].task.family if batch.groups else ""
    return visible_name(named[:_FAMILY_CHARS])[:_FAMILY_CHARS]


def _check_signer(signer: PeerId, author: PeerId, me: PeerId) -> None:
    if signer == me:
        raise Rejected(Reason.CLAIMS_TO_BE_ME)
    if signer != author:
        raise Rejected(Reason.SIGNER_NOT_SENDER)


def coordinates_of(batch: RolloutBatch) -> list[TaskCoordinates]:
    """Return the coordinates whose questions must be regenerated, in the groups' order."""
    tasks = (group.task for group in batch.groups)
    return [wire_tasks.coordinates_of(task) for task in tasks if task.inline is None]


def check_questions(batch: RolloutBatch, regenerated: Sequence[Digest]) -> Reason | None:
    """Compare stated question digests with the regenerated ones, in `coordinates_of`'s order.

    An entry is empty if the generator has no task at these coordinates. Inline tasks carry their
    question, so their digest is computed here.
    """
    remaining = iter(regenerated)
    for group in batch.groups:
        task = group.task
        if task.inline is not None:
            expected = question_digest(task.inline.question)
        else:
            expected = next(remaining)
        if expected != task.question_digest:
            return Reason.QUESTION_MISMATCH
    return None
