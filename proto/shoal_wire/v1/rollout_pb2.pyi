from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_STOP: _ClassVar[FinishReason]
    FINISH_REASON_LENGTH: _ClassVar[FinishReason]
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_STOP: FinishReason
FINISH_REASON_LENGTH: FinishReason

class Envelope(_message.Message):
    __slots__ = ("public_key", "payload_type", "payload", "signature")
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_TYPE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    public_key: bytes
    payload_type: bytes
    payload: bytes
    signature: bytes
    def __init__(self, public_key: _Optional[bytes] = ..., payload_type: _Optional[bytes] = ..., payload: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class RolloutBatch(_message.Message):
    __slots__ = ("schema_major", "swarm_digest", "sequence", "round", "created_ms", "policy", "sampling", "groups", "previous_sequence")
    SCHEMA_MAJOR_FIELD_NUMBER: _ClassVar[int]
    SWARM_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    schema_major: int
    swarm_digest: bytes
    sequence: int
    round: int
    created_ms: int
    policy: PolicyInfo
    sampling: SamplingParams
    groups: _containers.RepeatedCompositeFieldContainer[RolloutGroup]
    previous_sequence: int
    def __init__(self, schema_major: _Optional[int] = ..., swarm_digest: _Optional[bytes] = ..., sequence: _Optional[int] = ..., round: _Optional[int] = ..., created_ms: _Optional[int] = ..., policy: _Optional[_Union[PolicyInfo, _Mapping]] = ..., sampling: _Optional[_Union[SamplingParams, _Mapping]] = ..., groups: _Optional[_Iterable[_Union[RolloutGroup, _Mapping]]] = ..., previous_sequence: _Optional[int] = ...) -> None: ...

class PolicyInfo(_message.Message):
    __slots__ = ("model_name", "tokenizer_digest", "policy_version")
    MODEL_NAME_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    model_name: str
    tokenizer_digest: bytes
    policy_version: int
    def __init__(self, model_name: _Optional[str] = ..., tokenizer_digest: _Optional[bytes] = ..., policy_version: _Optional[int] = ...) -> None: ...

class SamplingParams(_message.Message):
    __slots__ = ("temperature", "top_p", "top_k", "max_new_tokens")
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    MAX_NEW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_p: float
    top_k: int
    max_new_tokens: int
    def __init__(self, temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., top_k: _Optional[int] = ..., max_new_tokens: _Optional[int] = ...) -> None: ...

class RolloutGroup(_message.Message):
    __slots__ = ("task", "completions")
    TASK_FIELD_NUMBER: _ClassVar[int]
    COMPLETIONS_FIELD_NUMBER: _ClassVar[int]
    task: Task
    completions: _containers.RepeatedCompositeFieldContainer[Completion]
    def __init__(self, task: _Optional[_Union[Task, _Mapping]] = ..., completions: _Optional[_Iterable[_Union[Completion, _Mapping]]] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("family", "config_digest", "seed", "index", "verifier", "verifier_version", "question_digest", "inline")
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    CONFIG_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    VERIFIER_FIELD_NUMBER: _ClassVar[int]
    VERIFIER_VERSION_FIELD_NUMBER: _ClassVar[int]
    QUESTION_DIGEST_FIELD_NUMBER: _ClassVar[int]
    INLINE_FIELD_NUMBER: _ClassVar[int]
    family: str
    config_digest: bytes
    seed: int
    index: int
    verifier: str
    verifier_version: str
    question_digest: bytes
    inline: InlineTask
    def __init__(self, family: _Optional[str] = ..., config_digest: _Optional[bytes] = ..., seed: _Optional[int] = ..., index: _Optional[int] = ..., verifier: _Optional[str] = ..., verifier_version: _Optional[str] = ..., question_digest: _Optional[bytes] = ..., inline: _Optional[_Union[InlineTask, _Mapping]] = ...) -> None: ...

class InlineTask(_message.Message):
    __slots__ = ("question", "answer")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    question: str
    answer: str
    def __init__(self, question: _Optional[str] = ..., answer: _Optional[str] = ...) -> None: ...

class Completion(_message.Message):
    __slots__ = ("text", "num_tokens", "finish_reason", "logprobs")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    text: str
    num_tokens: int
    finish_reason: FinishReason
    logprobs: bytes
    def __init__(self, text: _Optional[str] = ..., num_tokens: _Optional[int] = ..., finish_reason: _Optional[_Union[FinishReason, str]] = ..., logprobs: _Optional[bytes] = ...) -> None: ...
