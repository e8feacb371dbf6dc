from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODE_UNSPECIFIED: _ClassVar[Mode]
    MODE_SWARM: _ClassVar[Mode]
    MODE_SILO: _ClassVar[Mode]

class JudgeRefusalReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JUDGE_REFUSAL_UNSPECIFIED: _ClassVar[JudgeRefusalReason]
    JUDGE_REFUSAL_BUSY: _ClassVar[JudgeRefusalReason]
    JUDGE_REFUSAL_WRONG_SWARM: _ClassVar[JudgeRefusalReason]
    JUDGE_REFUSAL_UNKNOWN_CHALLENGE: _ClassVar[JudgeRefusalReason]
    JUDGE_REFUSAL_LATE: _ClassVar[JudgeRefusalReason]
    JUDGE_REFUSAL_BAD_ANSWER: _ClassVar[JudgeRefusalReason]
MODE_UNSPECIFIED: Mode
MODE_SWARM: Mode
MODE_SILO: Mode
JUDGE_REFUSAL_UNSPECIFIED: JudgeRefusalReason
JUDGE_REFUSAL_BUSY: JudgeRefusalReason
JUDGE_REFUSAL_WRONG_SWARM: JudgeRefusalReason
JUDGE_REFUSAL_UNKNOWN_CHALLENGE: JudgeRefusalReason
JUDGE_REFUSAL_LATE: JudgeRefusalReason
JUDGE_REFUSAL_BAD_ANSWER: JudgeRefusalReason

class JudgeRequest(_message.Message):
    __slots__ = ("ask", "answer", "records")
    ASK_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    ask: ChallengeRequest
    answer: ChallengeAnswer
    records: RecordQuery
    def __init__(self, ask: _Optional[_Union[ChallengeRequest, _Mapping]] = ..., answer: _Optional[_Union[ChallengeAnswer, _Mapping]] = ..., records: _Optional[_Union[RecordQuery, _Mapping]] = ...) -> None: ...

class ChallengeRequest(_message.Message):
    __slots__ = ("swarm_digest",)
    SWARM_DIGEST_FIELD_NUMBER: _ClassVar[int]
    swarm_digest: bytes
    def __init__(self, swarm_digest: _Optional[bytes] = ...) -> None: ...

class ChallengeAnswer(_message.Message):
    __slots__ = ("challenge_id", "text", "finish_reason", "round", "policy_version", "model_name", "mode")
    CHALLENGE_ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    MODEL_NAME_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    challenge_id: bytes
    text: str
    finish_reason: int
    round: int
    policy_version: int
    model_name: str
    mode: Mode
    def __init__(self, challenge_id: _Optional[bytes] = ..., text: _Optional[str] = ..., finish_reason: _Optional[int] = ..., round: _Optional[int] = ..., policy_version: _Optional[int] = ..., model_name: _Optional[str] = ..., mode: _Optional[_Union[Mode, str]] = ...) -> None: ...

class RecordQuery(_message.Message):
    __slots__ = ("peer_id", "after", "limit")
    PEER_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    peer_id: str
    after: int
    limit: int
    def __init__(self, peer_id: _Optional[str] = ..., after: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class JudgeReply(_message.Message):
    __slots__ = ("challenge", "record", "records", "refusal")
    CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    challenge: Challenge
    record: bytes
    records: RecordList
    refusal: JudgeRefusal
    def __init__(self, challenge: _Optional[_Union[Challenge, _Mapping]] = ..., record: _Optional[bytes] = ..., records: _Optional[_Union[RecordList, _Mapping]] = ..., refusal: _Optional[_Union[JudgeRefusal, _Mapping]] = ...) -> None: ...

class Challenge(_message.Message):
    __slots__ = ("challenge_id", "family", "question", "answer_within_ms")
    CHALLENGE_ID_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    ANSWER_WITHIN_MS_FIELD_NUMBER: _ClassVar[int]
    challenge_id: bytes
    family: str
    question: str
    answer_within_ms: int
    def __init__(self, challenge_id: _Optional[bytes] = ..., family: _Optional[str] = ..., question: _Optional[str] = ..., answer_within_ms: _Optional[int] = ...) -> None: ...

class RecordList(_message.Message):
    __slots__ = ("envelopes",)
    ENVELOPES_FIELD_NUMBER: _ClassVar[int]
    envelopes: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, envelopes: _Optional[_Iterable[bytes]] = ...) -> None: ...

class JudgeRefusal(_message.Message):
    __slots__ = ("reason", "retry_after_ms")
    REASON_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    reason: JudgeRefusalReason
    retry_after_ms: int
    def __init__(self, reason: _Optional[_Union[JudgeRefusalReason, str]] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...

class JudgeRecord(_message.Message):
    __slots__ = ("schema_major", "number", "peer_id", "round", "policy_version", "model_name", "mode", "swarm_digest", "family", "config_digest", "seed", "index", "answer_digest", "finish_reason", "score", "asked_ms", "judged_ms", "challenges")
    SCHEMA_MAJOR_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PEER_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    MODEL_NAME_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    SWARM_DIGEST_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    CONFIG_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ANSWER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    ASKED_MS_FIELD_NUMBER: _ClassVar[int]
    JUDGED_MS_FIELD_NUMBER: _ClassVar[int]
    CHALLENGES_FIELD_NUMBER: _ClassVar[int]
    schema_major: int
    number: int
    peer_id: str
    round: int
    policy_version: int
    model_name: str
    mode: Mode
    swarm_digest: bytes
    family: str
    config_digest: bytes
    seed: int
    index: int
    answer_digest: bytes
    finish_reason: int
    score: float
    asked_ms: int
    judged_ms: int
    challenges: int
    def __init__(self, schema_major: _Optional[int] = ..., number: _Optional[int] = ..., peer_id: _Optional[str] = ..., round: _Optional[int] = ..., policy_version: _Optional[int] = ..., model_name: _Optional[str] = ..., mode: _Optional[_Union[Mode, str]] = ..., swarm_digest: _Optional[bytes] = ..., family: _Optional[str] = ..., config_digest: _Optional[bytes] = ..., seed: _Optional[int] = ..., index: _Optional[int] = ..., answer_digest: _Optional[bytes] = ..., finish_reason: _Optional[int] = ..., score: _Optional[float] = ..., asked_ms: _Optional[int] = ..., judged_ms: _Optional[int] = ..., challenges: _Optional[int] = ...) -> None: ...
