"""Validation without state: bytes to a signed batch, or a row of the verdict table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_p2p.intake.validation import (
    Rejected,
    ValidationContext,
    check_questions,
    coordinates_of,
    open_announcement,
    open_fetched,
    open_message,
    open_payload,
    reopen_batch,
)
from shoal_p2p.rollouts.groups import published_groups
from shoal_wire.digests import group_id, question_digest
from shoal_wire.limits import (
    ANNOUNCEMENT_PAYLOAD_TYPE,
    MAX_ANNOUNCEMENT_BYTES,
    MAX_BATCH_BYTES,
)
from shoal_wire.types import Digest, InlineTask, PeerId, RolloutGroup, SignedBatch
from shoal_wire.verdict import Outcome, Reason, verdict
from tests.support import factories as make

MANIFEST = make.swarm()
PEER = make.Author(MANIFEST)
CONTEXT = make.context(MANIFEST, make.fresh_identity().peer_id)
INLINE = make.group(
    of=make.task(1, inline=InlineTask(question="Who?", answer="I"), question="Who?")
)


def opened(
    raw: bytes,
    author: PeerId = PEER.peer_id,
    context: ValidationContext = CONTEXT,
    now_ms: int = make.NOW_MS,
) -> SignedBatch:
    envelope = open_message(raw, author=author, context=context)
    return open_payload(envelope, author=author, context=context, now_ms=now_ms)


def reason_of(raw: bytes, **options: object) -> Reason:
    with pytest.raises(Rejected) as caught:
        opened(raw, **options)  # type: ignore[arg-type]
    return caught.value.reason


def test_reasons_follow_the_order_from_cheap_to_expensive() -> None:
    me = make.Author(MANIFEST)
    mine = make.context(MANIFEST, me.peer_id)
    stranger = make.Author(make.swarm("another"))
    # Too long, and junk, and under my name: the length is looked at first.
    over = b"\0" * (MANIFEST.rules.max_message_bytes + 1)
    for raw, author, expected in (
        (over, me.peer_id, Reason.OVERSIZE_MESSAGE),
        (b"junk", me.peer_id, Reason.CLAIMS_TO_BE_ME),
        (b"junk", PEER.peer_id, Reason.MALFORMED_ENVELOPE),
        (me.envelope(), PEER.peer_id, Reason.CLAIMS_TO_BE_ME),
        (stranger.envelope(), PEER.peer_id, Reason.SIGNER_NOT_SENDER),
        (stranger.envelope(), stranger.peer_id, Reason.WRONG_SWARM),
    ):
        with pytest.raises(Rejected) as caught:
            opened(raw, author, mine)
        assert caught.value.reason is expected


def test_batches_from_disk_are_checked_for_damage_and_not_for_age() -> None:
    old = PEER.envelope(PEER.batch(created_ms=1, groups=(make.group(1),)))
    assert reopen_batch(old, max_bytes=MAX_BATCH_BYTES).batch.created_ms == 1
    for damaged in (old[:-1], b"", old.replace(b"\x12", b"\x13", 1)):
        with pytest.raises(Rejected):
            reopen_batch(damaged, max_bytes=MAX_BATCH_BYTES)
    with pytest.raises(Rejected) as caught:
        reopen_batch(old, max_bytes=16)
    assert caught.value.reason is Reason.OVERSIZE_PAYLOAD


def test_an_announcement_is_no_batch_and_a_batch_no_announcement() -> None:
    def sealed(num_bytes: int) -> bytes:
        return PEER.seal(bytes(num_bytes), ANNOUNCEMENT_PAYLOAD_TYPE)

    message = open_message(sealed(8), author=PEER.peer_id, context=CONTEXT)
    assert message.payload_type == ANNOUNCEMENT_PAYLOAD_TYPE
    assert reason_of(sealed(8)) is Reason.MALFORMED_ENVELOPE
    # One too long for what it says is opened as a batch, and is none.
    assert reason_of(sealed(MAX_ANNOUNCEMENT_BYTES)) is Reason.MALFORMED_ENVELOPE
    with pytest.raises(Rejected, match="malformed_envelope"):
        open_fetched(sealed(8), context=CONTEXT)
    batch = open_message(PEER.envelope(), author=PEER.peer_id, context=CONTEXT)
    with pytest.raises(Rejected, match="malformed_envelope"):
        open_announcement(batch, author=PEER.peer_id, context=CONTEXT, now_ms=make.NOW_MS)


@given(st.binary(max_size=300))
def test_no_bytes_are_more_than_a_verdict(junk: bytes) -> None:
    assert verdict(reason_of(junk)).outcome is Outcome.REJECT


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_no_changed_byte_gets_through(position: int, change: int) -> None:
    raw = bytearray(RAW)
    raw[position % len(raw)] ^= change
    with pytest.raises(Rejected):
        opened(bytes(raw))


RAW = PEER.envelope(PEER.batch([make.group(1)]))


def test_only_regenerable_tasks_are_sent_to_the_worker() -> None:
    groups = [make.group(1), INLINE, make.group(2)]
    batch = PEER.batch(groups)
    assert coordinates_of(batch) == [make.coordinates_at(1), make.coordinates_at(2)]
    true = [g.task.question_digest for g in (groups[0], groups[2])]
    assert check_questions(batch, true) is None
    assert check_questions(batch, true[::-1]) is Reason.QUESTION_MISMATCH
    assert check_questions(batch, [true[0], None]) is Reason.QUESTION_MISMATCH  # type: ignore[list-item]
    assert check_questions(batch, [true[0], Digest(bytes(16))]) is Reason.QUESTION_MISMATCH


def test_an_inline_question_must_be_the_one_that_is_named() -> None:
    forged = RolloutGroup(
        task=make.task(1, inline=InlineTask(question="Who?", answer="I"), question="What?"),
        completions=INLINE.completions,
    )
    assert forged.task.question_digest == question_digest("What?")
    assert check_questions(PEER.batch([INLINE]), []) is None
    assert check_questions(PEER.batch([forged]), []) is Reason.QUESTION_MISMATCH


def test_every_group_carries_its_origin() -> None:
    signed = PEER.sign(1, 2, round=9)
    made = published_groups(signed)
    assert [group.group for group in made] == list(signed.batch.groups)
    for group in made:
        assert group.group_id == group_id(group.group)
        assert (group.publisher, group.batch_id) == (signed.publisher, signed.batch_id)
        assert (group.round, group.created_ms) == (9, make.NOW_MS)
        assert (group.policy, group.sampling) == (make.POLICY, make.SAMPLING)
