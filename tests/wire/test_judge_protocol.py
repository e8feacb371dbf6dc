"""`/shoal/judge/1`: round trips, bounds, forged and hostile records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from shoal_wire import judge, limits
from shoal_wire.envelope import seal
from shoal_wire.errors import RemoteError
from shoal_wire.judge_messages import (
    MAX_RECORD_BYTES,
    MAX_RECORDS,
    ChallengeAnswer,
    ChallengeRequest,
    JudgeRecord,
    JudgeReply,
    JudgeRequest,
    Mode,
    RecordList,
    RecordQuery,
)
from shoal_wire.types import Digest, FinishReason, PeerId
from shoal_wire.v1 import judge_pb2 as pb
from shoal_wire.v1 import rollout_pb2
from tests.support import factories as make
from tests.wire.wire_strategies import values_of

JUDGE = make.fresh_identity()
RECORD = JudgeRecord(
    number=7,
    peer_id=make.fresh_identity().peer_id,
    round=20,
    policy_version=19,
    model_name="tiny",
    mode=Mode.SWARM,
    swarm_digest=Digest(b"s" * 32),
    family="gcd_easy",
    config_digest=Digest(b"c" * 16),
    seed=600_000,
    index=0,
    answer_digest=Digest(b"a" * 32),
    finish_reason=FinishReason.STOP,
    score=0.5,
    asked_ms=1_700_000_000_000,
    judged_ms=1_700_000_000_900,
    challenges=8,
)
ANSWER = ChallengeAnswer(
    challenge_id=b"i" * 16,
    text="7",
    finish_reason=FinishReason.STOP,
    round=20,
    policy_version=19,
    model_name="tiny",
    mode=Mode.SWARM,
)


def sealed(record: JudgeRecord = RECORD) -> bytes:
    return judge.seal_record(record, public_key=JUDGE.public_key_bytes, sign=JUDGE.sign)


@given(values_of(JudgeRequest))
def test_a_request_survives_the_wire(request: JudgeRequest) -> None:
    assert judge.decode_request(judge.encode_request(request)) == request


@given(values_of(JudgeReply))
def test_a_reply_survives_the_wire(reply: JudgeReply) -> None:
    assert judge.decode_reply(judge.encode_reply(reply)) == reply


@given(values_of(JudgeRecord))
@settings(max_examples=30)
def test_a_record_survives(record: JudgeRecord) -> None:
    assert judge.open_record(sealed(record), judge=JUDGE.peer_id) == record


def test_another_signers_record_is_refused() -> None:
    forger = make.fresh_identity()
    forged = judge.seal_record(RECORD, public_key=forger.public_key_bytes, sign=forger.sign)
    with pytest.raises(RemoteError, match="not by"):
        judge.open_record(forged, judge=JUDGE.peer_id)


@pytest.mark.parametrize(
    "changes",
    [
        {"score": float("nan")},
        {"score": 1.01},
        {"number": 0},
        {"challenges": 0},
        {"schema_major": 3},
        {"mode": 0},
        {"mode": 9},
        {"finish_reason": 3},
        {"peer_id": "unknown"},
        {"family": "a\x1b[2J"},
        {"model_name": ""},
        {"swarm_digest": b"short"},
        {"seed": limits.MAX_SEED},
        {"round": limits.MAX_ROUND},
        {"asked_ms": 1 << 60},
    ],
    ids=str,
)
def test_a_signed_record_with_a_field_out_of_bounds_is_refused(changes: dict[str, object]) -> None:
    payload = pb.JudgeRecord.FromString(rollout_pb2.Envelope.FromString(sealed()).payload)
    for name, value in changes.items():
        setattr(payload, name, value)
    raw = seal(
        payload.SerializeToString(),
        public_key=JUDGE.public_key_bytes,
        sign=JUDGE.sign,
        payload_type=judge.RECORD_PAYLOAD_TYPE,
    )
    with pytest.raises(RemoteError):
        judge.open_record(raw, judge=JUDGE.peer_id)


@pytest.mark.parametrize(
    "answer",
    [
        replace(ANSWER, challenge_id=b"short"),
        replace(ANSWER, text="x" * (limits.MAX_COMPLETION_BYTES + 1)),
        replace(ANSWER, model_name="a\nb"),
        replace(ANSWER, round=limits.MAX_ROUND),
    ],
    ids=["id", "text", "name", "round"],
)
def test_an_answer_out_of_bounds_is_distinguished(answer: ChallengeAnswer) -> None:
    with pytest.raises(judge.BadAnswerError):
        judge.decode_request(judge.encode_request(answer))


@pytest.mark.parametrize(
    "request_",
    [
        RecordQuery(limit=0),
        RecordQuery(limit=MAX_RECORDS + 1),
        RecordQuery(peer_id=PeerId("not a peer")),
        ChallengeRequest(swarm_digest=Digest(b"short")),
    ],
    ids=["none", "many", "peer", "swarm"],
)
def test_a_forbidden_question_is_refused(request_: JudgeRequest) -> None:
    with pytest.raises(RemoteError):
        judge.decode_request(judge.encode_request(request_))


def test_the_longest_of_all_fit_their_frames() -> None:
    longest = replace(
        RECORD,
        model_name="m" * limits.MAX_NAME_BYTES,
        family="f" * limits.MAX_NAME_BYTES,
        number=limits.MAX_SEQUENCE - 1,
        round=limits.MAX_ROUND - 1,
        policy_version=limits.MAX_ROUND - 1,
        challenges=limits.MAX_SEQUENCE - 1,
    )
    raw = sealed(longest)
    assert judge.open_record(raw, judge=JUDGE.peer_id) == longest
    full = RecordList(envelopes=(b"x" * MAX_RECORD_BYTES,) * MAX_RECORDS)
    assert len(judge.encode_reply(full)) <= judge.MAX_JUDGE_REPLY_BYTES
    answer = replace(ANSWER, text="x" * limits.MAX_COMPLETION_BYTES, model_name="m" * 200)
    assert len(judge.encode_request(answer)) <= judge.MAX_JUDGE_REQUEST_BYTES
