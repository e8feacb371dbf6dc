"""`/shoal/judge/1` and the judge's records to and from bytes, with every bound checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from google.protobuf.message import DecodeError

from shoal_wire.base58 import is_peer_id_text
from shoal_wire.envelope import EnvelopeError, open_envelope, seal
from shoal_wire.errors import LocalError, RemoteError
from shoal_wire.judge_messages import (
    Challenge,
    ChallengeAnswer,
    ChallengeRequest,
    JudgeRecord,
    JudgeRefusal,
    JudgeReply,
    JudgeRequest,
    Mode,
    RecordList,
    RecordQuery,
    RefusalReason,
    SealedRecord,
)
from shoal_wire.limits import (
    DIGEST_BYTES,
    MAX_COMPLETION_BYTES,
    MAX_INDEX,
    MAX_NAME_BYTES,
    MAX_RETRY_MS,
    MAX_ROUND,
    MAX_SEED,
    MAX_SEQUENCE,
    SCHEMA_MAJOR,
    SHORT_DIGEST_BYTES,
)
from shoal_wire.types import Digest, FinishReason, PeerId
from shoal_wire.v1 import judge_pb2 as pb

JUDGE_PROTOCOL: Final = "/shoal/judge/1"
RECORD_PAYLOAD_TYPE: Final = b"/shoal/judge-record/1"
CHALLENGE_ID_BYTES: Final = 16
MAX_QUESTION_BYTES: Final = 64 * 1024
MAX_RECORD_BYTES: Final = 1024
"""A record's whole envelope."""
MAX_RECORDS: Final = 256
"""Records in one answer."""
MAX_JUDGE_REQUEST_BYTES: Final = MAX_COMPLETION_BYTES + 1024
MAX_JUDGE_REPLY_BYTES: Final = MAX_RECORDS * (MAX_RECORD_BYTES + 4) + 1024
MAX_ANSWER_MS: Final = 3_600_000
_MAX_MS: Final = 1 << 48

_FINISH = {FinishReason.STOP: 1, FinishReason.LENGTH: 2}
_FINISH_BACK = {value: key for key, value in _FINISH.items()}
_MODES = {Mode.SWARM: pb.MODE_SWARM, Mode.SILO: pb.MODE_SILO}
_MODES_BACK = {value: key for key, value in _MODES.items()}
_REFUSALS = {
    RefusalReason.BUSY: pb.JUDGE_REFUSAL_BUSY,
    RefusalReason.WRONG_SWARM: pb.JUDGE_REFUSAL_WRONG_SWARM,
    RefusalReason.UNKNOWN_CHALLENGE: pb.JUDGE_REFUSAL_UNKNOWN_CHALLENGE,
    RefusalReason.LATE: pb.JUDGE_REFUSAL_LATE,
    RefusalReason.BAD_ANSWER: pb.JUDGE_REFUSAL_BAD_ANSWER,
}
_REFUSALS_BACK = {value: key for key, value in _REFUSALS.items()}


class BadAnswerError(RemoteError):
    """An answer that parses and has a field out of bounds."""


def encode_request(request: JudgeRequest) -> bytes:
    """Return the bytes of `request`."""
    match request:
        case ChallengeRequest():
            message = pb.JudgeRequest(ask=pb.ChallengeRequest(swarm_digest=request.swarm_digest))
        case ChallengeAnswer():
            message = pb.JudgeRequest(
                answer=pb.ChallengeAnswer(
                    challenge_id=request.challenge_id,
                    text=request.text,
                    finish_reason=_FINISH[request.finish_reason],
                    round=request.round,
                    policy_version=request.policy_version,
                    model_name=request.model_name,
                    mode=_MODES[request.mode],
                )
            )
        case RecordQuery():
            message = pb.JudgeRequest(
                records=pb.RecordQuery(
                    peer_id=request.peer_id or "", after=request.after, limit=request.limit
                )
            )
    return message.SerializeToString()


def decode_request(raw: bytes) -> JudgeRequest:
    """Decode what a peer asks of a judge.

    Raises:
        BadAnswerError: an answer with a field out of bounds.
        RemoteError: anything else that the contract does not allow.
    """
    try:
        message = pb.JudgeRequest.FromString(raw)
    except DecodeError:
        raise RemoteError("judge request does not parse") from None
    match message.WhichOneof("request"):
        case "ask":
            return ChallengeRequest(swarm_digest=_digest(message.ask.swarm_digest, DIGEST_BYTES))
        case "answer":
            return _answer(message.answer)
        case "records":
            query = message.records
            _require(1 <= query.limit <= MAX_RECORDS, "limit of records")
            _require(query.after < MAX_SEQUENCE, "number of a record")
            peer = _peer_id(query.peer_id) if query.peer_id else None
            return RecordQuery(after=query.after, limit=query.limit, peer_id=peer)
        case _:
            raise RemoteError("judge request asks for nothing known")


def encode_reply(reply: JudgeReply) -> bytes:
    """Return the bytes of `reply`."""
    match reply:
        case Challenge():
            message = pb.JudgeReply(
                challenge=pb.Challenge(
                    challenge_id=reply.challenge_id,
                    family=reply.family,
                    question=reply.question,
                    answer_within_ms=reply.answer_within_ms,
                )
            )
        case SealedRecord():
            message = pb.JudgeReply(record=reply.envelope)
        case RecordList():
            message = pb.JudgeReply(records=pb.RecordList(envelopes=reply.envelopes))
        case JudgeRefusal():
            message = pb.JudgeReply(
                refusal=pb.JudgeRefusal(
                    reason=_REFUSALS[reply.reason], retry_after_ms=reply.retry_after_ms
                )
            )
    return message.SerializeToString()


def decode_reply(raw: bytes) -> JudgeReply:
    """Decode a judge's reply; records in it are not opened. Raises RemoteError."""
    try:
        message = pb.JudgeReply.FromString(raw)
    except DecodeError:
        raise RemoteError("judge reply does not parse") from None
    match message.WhichOneof("reply"):
        case "challenge":
            return _challenge(message.challenge)
        case "record":
            return SealedRecord(envelope=_envelope(message.record))
        case "records":
            found = message.records.envelopes
            _require(len(found) <= MAX_RECORDS, "number of records")
            return RecordList(envelopes=tuple(map(_envelope, found)))
        case "refusal":
            reason = _REFUSALS_BACK.get(message.refusal.reason)
            if reason is None:
                raise RemoteError("judge refuses for no known reason")
            wait = min(message.refusal.retry_after_ms, MAX_RETRY_MS)
            return JudgeRefusal(reason=reason, retry_after_ms=wait)
        case _:
            raise RemoteError("judge reply says nothing known")


def seal_record(record: JudgeRecord, *, public_key: bytes, sign: Callable[[bytes], bytes]) -> bytes:
    """Return the envelope of `record`, signed by the judge. Raises LocalError: out of bounds."""
    payload = pb.JudgeRecord(
        schema_major=SCHEMA_MAJOR,
        number=record.number,
        peer_id=record.peer_id,
        round=record.round,
        policy_version=record.policy_version,
        model_name=record.model_name,
        mode=_MODES[record.mode],
        swarm_digest=record.swarm_digest,
        family=record.family,
        config_digest=record.config_digest,
        seed=record.seed,
        index=record.index,
        answer_digest=record.answer_digest,
        finish_reason=_FINISH[record.finish_reason],
        score=record.score,
        asked_ms=record.asked_ms,
        judged_ms=record.judged_ms,
        challenges=record.challenges,
    ).SerializeToString()
    envelope = seal(payload, public_key=public_key, sign=sign, payload_type=RECORD_PAYLOAD_TYPE)
    if len(envelope) > MAX_RECORD_BYTES:
        raise LocalError(f"a record of {len(envelope)} bytes")
    return envelope


def open_record(envelope: bytes, *, judge: PeerId) -> JudgeRecord:
    """Verify an envelope as a record that `judge` signed. Raises RemoteError: it is not."""
    try:
        opened = open_envelope(_envelope(envelope), payload_type=RECORD_PAYLOAD_TYPE)
    except EnvelopeError as error:
        raise RemoteError(f"record: {error.reason.value}") from None
    if opened.signer != judge:
        raise RemoteError(f"record signed by {opened.signer}, not by {judge}")
    try:
        message = pb.JudgeRecord.FromString(opened.payload)
    except DecodeError:
        raise RemoteError("record does not parse") from None
    _require(message.schema_major == SCHEMA_MAJOR, "version of a record")
    _require(1 <= message.number < MAX_SEQUENCE, "number of a record")
    _require(0.0 <= message.score <= 1.0, "score")
    _require(message.seed < MAX_SEED and message.index < MAX_INDEX, "coordinates")
    _require(max(message.asked_ms, message.judged_ms) < _MAX_MS, "time of a record")
    _require(1 <= message.challenges < MAX_SEQUENCE, "count of challenges")
    return JudgeRecord(
        number=message.number,
        peer_id=_peer_id(message.peer_id),
        round=_counter(message.round),
        policy_version=_counter(message.policy_version),
        model_name=_name(message.model_name),
        mode=_mode(message.mode),
        swarm_digest=_digest(message.swarm_digest, DIGEST_BYTES),
        family=_name(message.family),
        config_digest=_digest(message.config_digest, SHORT_DIGEST_BYTES),
        seed=message.seed,
        index=message.index,
        answer_digest=_digest(message.answer_digest, DIGEST_BYTES),
        finish_reason=_finish(message.finish_reason),
        score=message.score,
        asked_ms=message.asked_ms,
        judged_ms=message.judged_ms,
        challenges=message.challenges,
    )


def _answer(message: pb.ChallengeAnswer) -> ChallengeAnswer:
    try:
        _require(len(message.challenge_id) == CHALLENGE_ID_BYTES, "challenge id")
        _require(len(message.text.encode()) <= MAX_COMPLETION_BYTES, "length of the answer")
        return ChallengeAnswer(
            challenge_id=message.challenge_id,
            text=message.text,
            finish_reason=_finish(message.finish_reason),
            round=_counter(message.round),
            policy_version=_counter(message.policy_version),
            model_name=_name(message.model_name),
            mode=_mode(message.mode),
        )
    except RemoteError as error:
        raise BadAnswerError(str(error)) from None


def _challenge(message: pb.Challenge) -> Challenge:
    _require(len(message.challenge_id) == CHALLENGE_ID_BYTES, "challenge id")
    _require(0 < len(message.question.encode()) <= MAX_QUESTION_BYTES, "length of the question")
    _require(0 < message.answer_within_ms <= MAX_ANSWER_MS, "time to answer")
    return Challenge(
        challenge_id=message.challenge_id,
        family=_name(message.family),
        question=message.question,
        answer_within_ms=message.answer_within_ms,
    )


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise RemoteError(f"{what} out of bounds")


def _envelope(raw: bytes) -> bytes:
    _require(0 < len(raw) <= MAX_RECORD_BYTES, "length of a record")
    return raw


def _digest(raw: bytes, length: int) -> Digest:
    _require(len(raw) == length, "length of a digest")
    return Digest(raw)


def _peer_id(text: str) -> PeerId:
    _require(is_peer_id_text(text), "peer id")
    return PeerId(text)


def _name(text: str) -> str:
    _require(0 < len(text.encode()) <= MAX_NAME_BYTES and text.isprintable(), "name")
    return text


def _counter(value: int) -> int:
    _require(value < MAX_ROUND, "round or version")
    return value


def _mode(value: int) -> Mode:
    mode = _MODES_BACK.get(value)  # type: ignore[call-overload]
    if mode is None:
        raise RemoteError("no known mode")
    return Mode(mode)


def _finish(value: int) -> FinishReason:
    reason = _FINISH_BACK.get(value)
    if reason is None:
        raise RemoteError("no known finish reason")
    return reason
