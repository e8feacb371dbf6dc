"""Encodes and decodes `/shoal/judge/1` and the judge's records, and checks every bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from google.protobuf.message import DecodeError

from shoal_wire.codec import ROLLOUT_WIRES
from shoal_wire.envelope import EnvelopeError, open_envelope, seal
from shoal_wire.errors import LocalError, RemoteError
from shoal_wire.fields import OutOfBoundsError, Wire, Wires, coded
from shoal_wire.judge_messages import (
    MAX_RECORD_BYTES,
    MAX_RECORDS,
    JudgeRecord,
    JudgeRefusalReason,
    JudgeReply,
    JudgeRequest,
    Mode,
    SealedRecord,
    bounded_record,
    known_peer_id,
)
from shoal_wire.limits import MAX_COMPLETION_BYTES, SCHEMA_MAJOR
from shoal_wire.oneof import OneOf
from shoal_wire.types import PeerId
from shoal_wire.v1 import judge_pb2 as pb

JUDGE_PROTOCOL: Final = "/shoal/judge/1"
RECORD_PAYLOAD_TYPE: Final = b"/shoal/judge-record/1"
MAX_JUDGE_REQUEST_BYTES: Final = MAX_COMPLETION_BYTES + 1024
MAX_JUDGE_REPLY_BYTES: Final = MAX_RECORDS * (MAX_RECORD_BYTES + 4) + 1024

_MODES = {Mode.SWARM: pb.MODE_SWARM, Mode.SILO: pb.MODE_SILO}
_REFUSALS = {
    JudgeRefusalReason.BUSY: pb.JUDGE_REFUSAL_BUSY,
    JudgeRefusalReason.WRONG_SWARM: pb.JUDGE_REFUSAL_WRONG_SWARM,
    JudgeRefusalReason.UNKNOWN_CHALLENGE: pb.JUDGE_REFUSAL_UNKNOWN_CHALLENGE,
    JudgeRefusalReason.LATE: pb.JUDGE_REFUSAL_LATE,
    JudgeRefusalReason.BAD_ANSWER: pb.JUDGE_REFUSAL_BAD_ANSWER,
}
_WIRES = Wires(
    {
        **ROLLOUT_WIRES,
        Mode: coded(_MODES, unknown="no known mode"),
        JudgeRefusalReason: coded(_REFUSALS, unknown="judge refuses for no known reason"),
        # All peers are asked for by an empty id.
        PeerId | None: Wire(
            write=lambda peer: peer or "",
            read=lambda text: PeerId(known_peer_id(text)) if text else None,
        ),
        SealedRecord: Wire(
            write=lambda sealed: sealed.envelope,
            read=lambda raw: SealedRecord(envelope=bounded_record(raw)),
        ),
    }
)
_REQUESTS: OneOf[JudgeRequest] = OneOf(
    pb.JudgeRequest,
    JudgeRequest,
    _WIRES,
    name="judge request",
    empty="judge request asks for nothing known",
)
_REPLIES: OneOf[JudgeReply] = OneOf(
    pb.JudgeReply,
    JudgeReply,
    _WIRES,
    bare={SealedRecord: "record"},
    name="judge reply",
    empty="judge reply says nothing known",
)


class BadAnswerError(RemoteError):
    """An answer that parses but has a field out of bounds."""


def encode_request(request: JudgeRequest) -> bytes:
    """Return the bytes of `request`."""
    return _REQUESTS.encode(request)


def decode_request(raw: bytes) -> JudgeRequest:
    """Decode a peer's request to a judge.

    Raises:
        BadAnswerError: an answer with a field out of bounds.
        RemoteError: anything else that the contract does not allow.
    """
    message = _REQUESTS.parse(raw)
    try:
        return _REQUESTS.body(message)
    except RemoteError as error:
        if message.HasField("answer"):
            raise BadAnswerError(str(error)) from None
        raise


def encode_reply(reply: JudgeReply) -> bytes:
    """Return the bytes of `reply`."""
    return _REPLIES.encode(reply)


def decode_reply(raw: bytes) -> JudgeReply:
    """Decode a judge's reply; records in it are not opened. Raises RemoteError."""
    return _REPLIES.decode(raw)


def seal_record(record: JudgeRecord, *, public_key: bytes, sign: Callable[[bytes], bytes]) -> bytes:
    """Return the envelope of `record`, signed by the judge. Raises LocalError: out of bounds."""
    fields = _WIRES.of(JudgeRecord).write(record)
    payload = pb.JudgeRecord(schema_major=SCHEMA_MAJOR, **fields).SerializeToString()
    envelope = seal(payload, public_key=public_key, sign=sign, payload_type=RECORD_PAYLOAD_TYPE)
    if len(envelope) > MAX_RECORD_BYTES:
        raise LocalError(f"a record of {len(envelope)} bytes")
    return envelope


def open_record(envelope: bytes, *, judge: PeerId) -> JudgeRecord:
    """Verify an envelope as a record that `judge` signed. Raises RemoteError: it is not."""
    try:
        opened = open_envelope(bounded_record(envelope), payload_types=(RECORD_PAYLOAD_TYPE,))
    except EnvelopeError as error:
        raise RemoteError(f"record: {error.reason.value}") from None
    if opened.signer != judge:
        raise RemoteError(f"record signed by {opened.signer}, not by {judge}")
    try:
        message = pb.JudgeRecord.FromString(opened.payload)
    except DecodeError:
        raise RemoteError("record does not parse") from None
    if message.schema_major != SCHEMA_MAJOR:
        raise OutOfBoundsError("version of a record")
    record: JudgeRecord = _WIRES.of(JudgeRecord).read(message)
    return record
