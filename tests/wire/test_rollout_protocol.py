"""`/shoal/rollouts/1` and announcements: known answers, round trips, bounds, hostile bytes."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from shoal_wire import limits
from shoal_wire.announcement import (
    Announcement,
    check_announcement,
    decode_announcement,
    encode_announcement,
)
from shoal_wire.codec import PayloadError, compress, decode_batch
from shoal_wire.envelope import EnvelopeError, open_envelope, seal
from shoal_wire.rollout_codec import (
    RolloutProtocolError,
    decode_answer,
    decode_query,
    encode_answer,
    encode_query,
)
from shoal_wire.rollout_messages import (
    Answer,
    BatchRef,
    BatchRefusalReason,
    Chunk,
    Listing,
    Query,
    Refusal,
    WholeQuery,
)
from shoal_wire.rules import check_batch
from shoal_wire.v1 import fetch_pb2 as pb
from shoal_wire.verdict import Reason
from tests.wire import rollout_golden as golden
from tests.wire import wire_samples as sample
from tests.wire.test_wire_vectors import recorded
from tests.wire.wire_golden import NAMED_NOW
from tests.wire.wire_strategies import values_of

NAME = golden.NAME
RECORDED = recorded("rollouts")


def test_the_vectors_are_as_recorded() -> None:
    assert golden.vectors() == RECORDED


@pytest.mark.parametrize("vector", RECORDED["requests"], ids=lambda v: v["name"])
def test_a_recorded_request_reads_as_it_says(vector: dict[str, str]) -> None:
    body = bytes.fromhex(vector["frame"])[4:]
    assert decode_query(body) == golden.QUERIES[vector["name"]]


@pytest.mark.parametrize("vector", RECORDED["answers"], ids=lambda v: v["name"])
def test_a_recorded_answer_reads_as_it_says(vector: dict[str, str]) -> None:
    body = bytes.fromhex(vector["frame"])[4:]
    assert decode_answer(body) == golden.ANSWERS[vector["name"]]


@pytest.mark.parametrize("vector", RECORDED["payloads"], ids=lambda v: v["name"])
def test_a_recorded_payload_gets_its_verdict(vector: dict[str, str]) -> None:
    try:
        decode_batch(bytes.fromhex(vector["payload"]), max_bytes=limits.MAX_BATCH_BYTES)
    except PayloadError as error:
        assert error.reason == NAMED_NOW[vector["reason"]]
    else:
        assert vector["reason"] == "valid"


def test_the_recorded_announcement_opens() -> None:
    raw = bytes.fromhex(RECORDED["announcement"]["envelope"])
    assert len(raw) <= limits.MAX_ANNOUNCEMENT_BYTES
    opened = open_envelope(raw, payload_types=(limits.ANNOUNCEMENT_PAYLOAD_TYPE,))
    assert opened.signer == RECORDED["announcement"]["peer_id"]
    assert decode_announcement(opened.payload) == golden.announcement()
    # It is never taken for a batch.
    with pytest.raises(EnvelopeError, match="malformed_envelope"):
        open_envelope(raw)


@given(values_of(Query))
@settings(max_examples=100)
def test_a_request_survives_the_wire(query: Query) -> None:
    assert decode_query(encode_query(query)) == query


@given(values_of(Answer))
@settings(max_examples=100)
def test_an_answer_survives_the_wire(answer: Answer) -> None:
    assert decode_answer(encode_answer(answer)) == answer


def ref(**changes: Any) -> pb.BatchRef:
    good = {"batch_id": NAME, "publisher": "p", "sequence": 1, "num_bytes": 1, "num_groups": 1}
    return pb.BatchRef(**{**good, **changes})


@pytest.mark.parametrize(
    "request_",
    [
        pb.RolloutRequest(),
        pb.RolloutRequest(recent=pb.RecentQuery(max_batches=1)),
        pb.RolloutRequest(recent=pb.RecentQuery(shards=[0])),
        pb.RolloutRequest(recent=pb.RecentQuery(shards=[0], max_batches=513)),
        pb.RolloutRequest(recent=pb.RecentQuery(shards=[4096 << 48], max_batches=1)),
        pb.RolloutRequest(recent=pb.RecentQuery(shards=[0] * 65, max_batches=1)),
        pb.RolloutRequest(recent=pb.RecentQuery(shards=[0], max_batches=1, before=NAME[:31])),
        pb.RolloutRequest(since=pb.SinceQuery(max_batches=1)),
        pb.RolloutRequest(since=pb.SinceQuery(publisher="p" * 201, max_batches=1)),
        pb.RolloutRequest(since=pb.SinceQuery(publisher="p")),
        pb.RolloutRequest(since=pb.SinceQuery(publisher="p", max_batches=1, after_sequence=2**62)),
        pb.RolloutRequest(whole=pb.WholeQuery()),
        pb.RolloutRequest(whole=pb.WholeQuery(batch_ids=[NAME] * 65)),
        pb.RolloutRequest(whole=pb.WholeQuery(batch_ids=[NAME[:31]])),
        pb.RolloutRequest(chunk=pb.ChunkQuery(length=1)),
        pb.RolloutRequest(chunk=pb.ChunkQuery(batch_id=NAME)),
        pb.RolloutRequest(chunk=pb.ChunkQuery(batch_id=NAME, length=(1 << 20) + 1)),
        pb.RolloutRequest(chunk=pb.ChunkQuery(batch_id=NAME, length=1, offset=2**62)),
    ],
)
def test_a_request_out_of_bounds_is_none(request_: pb.RolloutRequest) -> None:
    with pytest.raises(RolloutProtocolError):
        decode_query(request_.SerializeToString())


@pytest.mark.parametrize(
    "answer",
    [
        pb.RolloutAnswer(),
        pb.RolloutAnswer(listing=pb.Listing(batches=[ref()] * 513)),
        pb.RolloutAnswer(listing=pb.Listing(batches=[ref(batch_id=NAME[:31])])),
        pb.RolloutAnswer(listing=pb.Listing(batches=[ref(publisher="")])),
        pb.RolloutAnswer(listing=pb.Listing(batches=[ref(publisher="p" * 201)])),
        pb.RolloutAnswer(listing=pb.Listing(batches=[ref(sequence=0)])),
        pb.RolloutAnswer(listing=pb.Listing(batches=[ref(sequence=2**62)])),
        pb.RolloutAnswer(listing=pb.Listing(batches=[ref(num_bytes=0)])),
        pb.RolloutAnswer(listing=pb.Listing(batches=[ref(num_groups=0)])),
        pb.RolloutAnswer(listing=pb.Listing(batches=[ref(num_groups=1025)])),
        pb.RolloutAnswer(envelopes=pb.Envelopes(envelopes=[b""] * 65)),
        pb.RolloutAnswer(chunk=pb.Chunk(num_bytes=1, data=bytes((1 << 20) + 1))),
    ],
)
def test_an_answer_out_of_bounds_is_none(answer: pb.RolloutAnswer) -> None:
    with pytest.raises(RolloutProtocolError):
        decode_answer(answer.SerializeToString())


def test_too_long_is_not_even_parsed() -> None:
    with pytest.raises(RolloutProtocolError, match="too long"):
        decode_query(bytes(limits.MAX_REQUEST_BYTES + 1))
    with pytest.raises(RolloutProtocolError, match="too long"):
        decode_answer(bytes(limits.MAX_ANSWER_BYTES + 1))


def test_the_largest_of_each_fits() -> None:
    most = WholeQuery(batch_ids=(NAME,) * limits.MAX_WHOLE_BATCHES)
    assert len(encode_query(most)) <= limits.MAX_REQUEST_BYTES
    chunk = Chunk(num_bytes=2**62, data=bytes(limits.MAX_CHUNK_BYTES))
    assert len(encode_answer(chunk)) <= limits.MAX_ANSWER_BYTES
    longest = BatchRef(
        batch_id=NAME,
        publisher="p" * limits.MAX_NAME_BYTES,  # type: ignore[arg-type]
        sequence=limits.MAX_SEQUENCE - 1,
        num_bytes=limits.MAX_SEQUENCE - 1,
        num_groups=1024,
    )
    listing = Listing(batches=(longest,) * limits.MAX_LISTED_BATCHES)
    assert len(encode_answer(listing)) <= limits.MAX_ANSWER_BYTES
    assert len(golden.sealed_announcement()) <= limits.MAX_ANNOUNCEMENT_BYTES // 1.2


def test_a_refusal_of_a_later_version_says_not_now() -> None:
    later = pb.RolloutAnswer(refusal=pb.Refusal(retry_after_ms=2**32 - 1))
    later.refusal.reason = 77  # type: ignore[assignment]
    expected = Refusal(reason=BatchRefusalReason.BUSY, retry_after_ms=limits.MAX_RETRY_MS)
    assert decode_answer(later.SerializeToString()) == expected


HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"swarm_digest": bytes(32)}, Reason.WRONG_SWARM),
        ({"created_ms": sample.NOW_MS - HOUR_MS - 1}, Reason.TOO_OLD),
        ({"created_ms": sample.NOW_MS + 121_000}, Reason.NEAR_FUTURE),
        ({"created_ms": sample.NOW_MS + 25 * HOUR_MS}, Reason.FAR_FUTURE),
        ({"expires_ms": sample.NOW_MS - 1}, Reason.TOO_OLD),
        ({"sequence": 0, "previous_sequence": 0}, Reason.BAD_FIELD),
        ({"sequence": 2**62}, Reason.BAD_FIELD),
        ({"previous_sequence": 2**53 + 2}, Reason.BAD_FIELD),
        ({"num_groups": 0}, Reason.BAD_FIELD),
        ({"num_groups": 1025}, Reason.BAD_FIELD),
        ({"num_bytes": 0}, Reason.BAD_FIELD),
        ({"num_bytes": sample.swarm().rules.max_envelope_bytes}, None),
        ({"num_bytes": sample.swarm().rules.max_envelope_bytes + 1}, Reason.OVERSIZE_PAYLOAD),
    ],
)
def test_an_announcement_is_judged_like_its_batch(
    changes: dict[str, object], reason: Reason | None
) -> None:
    announcement: Announcement = replace(golden.announcement(), **changes)  # type: ignore[arg-type]
    again = decode_announcement(encode_announcement(announcement))
    assert again == announcement
    assert check_announcement(again, sample.swarm(), now_ms=sample.NOW_MS) is reason


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("schema_major", 3, Reason.OTHER_VERSION),
        ("schema_major", 0, Reason.BAD_FIELD),
        ("swarm_digest", b"x", Reason.BAD_FIELD),
        ("batch_id", b"x", Reason.BAD_FIELD),
    ],
)
def test_an_announcement_of_another_form_is_none(field: str, value: object, reason: Reason) -> None:
    message = pb.BatchAnnouncement.FromString(encode_announcement(golden.announcement()))
    setattr(message, field, value)
    with pytest.raises(PayloadError) as raised:
        decode_announcement(message.SerializeToString())
    assert raised.value.reason is reason


def test_a_batch_that_names_itself_or_a_later_one_as_previous_is_rejected() -> None:
    for previous, reason in ((4, None), (5, Reason.BAD_FIELD), (6, Reason.BAD_FIELD)):
        batch = sample.batch(sequence=5, previous_sequence=previous)
        assert check_batch(batch, sample.batch_rules(), now_ms=sample.NOW_MS) is reason


def test_what_does_not_compress_still_fits_the_largest_envelope() -> None:
    public_key, key = sample.keypair()
    for size in (1024, 100_000, 2_097_152):
        rules = sample.swarm(max_batch_bytes=size).rules
        raw = seal(compress(random.Random(1).randbytes(size)), public_key=public_key, sign=key.sign)
        assert size < len(raw) <= rules.max_envelope_bytes
