from shoal_wire.v1 import rollout_pb2 as _rollout_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROLE_UNSPECIFIED: _ClassVar[Role]
    ROLE_TRAINER: _ClassVar[Role]
    ROLE_INSPECTOR: _ClassVar[Role]
    ROLE_PUBLISHER: _ClassVar[Role]
ROLE_UNSPECIFIED: Role
ROLE_TRAINER: Role
ROLE_INSPECTOR: Role
ROLE_PUBLISHER: Role

class IpcFrame(_message.Message):
    __slots__ = ("request_id", "hello", "hello_reply", "publish", "publish_reply", "sample", "sample_reply", "ok", "report", "trainer_status", "inspect", "inspect_reply", "failure", "control", "judge_ask", "judge_challenge", "judge_answer", "judge_score", "task_order")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    HELLO_REPLY_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_REPLY_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_REPLY_FIELD_NUMBER: _ClassVar[int]
    OK_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    TRAINER_STATUS_FIELD_NUMBER: _ClassVar[int]
    INSPECT_FIELD_NUMBER: _ClassVar[int]
    INSPECT_REPLY_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    CONTROL_FIELD_NUMBER: _ClassVar[int]
    JUDGE_ASK_FIELD_NUMBER: _ClassVar[int]
    JUDGE_CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    JUDGE_ANSWER_FIELD_NUMBER: _ClassVar[int]
    JUDGE_SCORE_FIELD_NUMBER: _ClassVar[int]
    TASK_ORDER_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    hello: Hello
    hello_reply: HelloReply
    publish: Publish
    publish_reply: PublishReply
    sample: Sample
    sample_reply: SampleReply
    ok: Ok
    report: Report
    trainer_status: TrainerStatus
    inspect: Inspect
    inspect_reply: InspectReply
    failure: Failure
    control: Control
    judge_ask: JudgeAsk
    judge_challenge: JudgeChallenge
    judge_answer: JudgeAnswer
    judge_score: JudgeScore
    task_order: TaskOrder
    def __init__(self, request_id: _Optional[int] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., hello_reply: _Optional[_Union[HelloReply, _Mapping]] = ..., publish: _Optional[_Union[Publish, _Mapping]] = ..., publish_reply: _Optional[_Union[PublishReply, _Mapping]] = ..., sample: _Optional[_Union[Sample, _Mapping]] = ..., sample_reply: _Optional[_Union[SampleReply, _Mapping]] = ..., ok: _Optional[_Union[Ok, _Mapping]] = ..., report: _Optional[_Union[Report, _Mapping]] = ..., trainer_status: _Optional[_Union[TrainerStatus, _Mapping]] = ..., inspect: _Optional[_Union[Inspect, _Mapping]] = ..., inspect_reply: _Optional[_Union[InspectReply, _Mapping]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., control: _Optional[_Union[Control, _Mapping]] = ..., judge_ask: _Optional[_Union[JudgeAsk, _Mapping]] = ..., judge_challenge: _Optional[_Union[JudgeChallenge, _Mapping]] = ..., judge_answer: _Optional[_Union[JudgeAnswer, _Mapping]] = ..., judge_score: _Optional[_Union[JudgeScore, _Mapping]] = ..., task_order: _Optional[_Union[TaskOrder, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("ipc_version", "role", "pid", "consumed_ids", "held_ids")
    IPC_VERSION_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    CONSUMED_IDS_FIELD_NUMBER: _ClassVar[int]
    HELD_IDS_FIELD_NUMBER: _ClassVar[int]
    ipc_version: int
    role: Role
    pid: int
    consumed_ids: _containers.RepeatedScalarFieldContainer[bytes]
    held_ids: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, ipc_version: _Optional[int] = ..., role: _Optional[_Union[Role, str]] = ..., pid: _Optional[int] = ..., consumed_ids: _Optional[_Iterable[bytes]] = ..., held_ids: _Optional[_Iterable[bytes]] = ...) -> None: ...

class HelloReply(_message.Message):
    __slots__ = ("ipc_version", "peer_id", "manifest")
    IPC_VERSION_FIELD_NUMBER: _ClassVar[int]
    PEER_ID_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    ipc_version: int
    peer_id: str
    manifest: bytes
    def __init__(self, ipc_version: _Optional[int] = ..., peer_id: _Optional[str] = ..., manifest: _Optional[bytes] = ...) -> None: ...

class Publish(_message.Message):
    __slots__ = ("client_key", "round", "policy", "sampling", "groups")
    CLIENT_KEY_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    client_key: bytes
    round: int
    policy: _rollout_pb2.PolicyInfo
    sampling: _rollout_pb2.SamplingParams
    groups: _containers.RepeatedCompositeFieldContainer[_rollout_pb2.RolloutGroup]
    def __init__(self, client_key: _Optional[bytes] = ..., round: _Optional[int] = ..., policy: _Optional[_Union[_rollout_pb2.PolicyInfo, _Mapping]] = ..., sampling: _Optional[_Union[_rollout_pb2.SamplingParams, _Mapping]] = ..., groups: _Optional[_Iterable[_Union[_rollout_pb2.RolloutGroup, _Mapping]]] = ...) -> None: ...

class PublishReply(_message.Message):
    __slots__ = ("sequence", "batch_id", "is_new")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    IS_NEW_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    batch_id: bytes
    is_new: bool
    def __init__(self, sequence: _Optional[int] = ..., batch_id: _Optional[bytes] = ..., is_new: bool = ...) -> None: ...

class Sample(_message.Message):
    __slots__ = ("num_external", "lease_seconds")
    NUM_EXTERNAL_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    num_external: int
    lease_seconds: float
    def __init__(self, num_external: _Optional[int] = ..., lease_seconds: _Optional[float] = ...) -> None: ...

class PublishedGroup(_message.Message):
    __slots__ = ("group_id", "publisher", "batch_id", "round", "created_ms", "policy", "sampling", "group", "network")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    PUBLISHER_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    group_id: bytes
    publisher: str
    batch_id: bytes
    round: int
    created_ms: int
    policy: _rollout_pb2.PolicyInfo
    sampling: _rollout_pb2.SamplingParams
    group: _rollout_pb2.RolloutGroup
    network: str
    def __init__(self, group_id: _Optional[bytes] = ..., publisher: _Optional[str] = ..., batch_id: _Optional[bytes] = ..., round: _Optional[int] = ..., created_ms: _Optional[int] = ..., policy: _Optional[_Union[_rollout_pb2.PolicyInfo, _Mapping]] = ..., sampling: _Optional[_Union[_rollout_pb2.SamplingParams, _Mapping]] = ..., group: _Optional[_Union[_rollout_pb2.RolloutGroup, _Mapping]] = ..., network: _Optional[str] = ...) -> None: ...

class SampleReply(_message.Message):
    __slots__ = ("groups", "ready_external")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    READY_EXTERNAL_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[PublishedGroup]
    ready_external: int
    def __init__(self, groups: _Optional[_Iterable[_Union[PublishedGroup, _Mapping]]] = ..., ready_external: _Optional[int] = ...) -> None: ...

class Ok(_message.Message):
    __slots__ = ("count",)
    COUNT_FIELD_NUMBER: _ClassVar[int]
    count: int
    def __init__(self, count: _Optional[int] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("groups", "round", "outcomes", "consumed_ids", "released_ids")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    CONSUMED_IDS_FIELD_NUMBER: _ClassVar[int]
    RELEASED_IDS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[GroupReport]
    round: int
    outcomes: _containers.RepeatedCompositeFieldContainer[GroupOutcome]
    consumed_ids: _containers.RepeatedScalarFieldContainer[bytes]
    released_ids: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, groups: _Optional[_Iterable[_Union[GroupReport, _Mapping]]] = ..., round: _Optional[int] = ..., outcomes: _Optional[_Iterable[_Union[GroupOutcome, _Mapping]]] = ..., consumed_ids: _Optional[_Iterable[bytes]] = ..., released_ids: _Optional[_Iterable[bytes]] = ...) -> None: ...

class GroupOutcome(_message.Message):
    __slots__ = ("group_id", "publisher", "model", "family", "reward", "signal", "tokens", "skip_reason")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    PUBLISHER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    SKIP_REASON_FIELD_NUMBER: _ClassVar[int]
    group_id: bytes
    publisher: str
    model: str
    family: str
    reward: float
    signal: float
    tokens: int
    skip_reason: str
    def __init__(self, group_id: _Optional[bytes] = ..., publisher: _Optional[str] = ..., model: _Optional[str] = ..., family: _Optional[str] = ..., reward: _Optional[float] = ..., signal: _Optional[float] = ..., tokens: _Optional[int] = ..., skip_reason: _Optional[str] = ...) -> None: ...

class GroupReport(_message.Message):
    __slots__ = ("group_id", "publisher", "rewards")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    PUBLISHER_FIELD_NUMBER: _ClassVar[int]
    REWARDS_FIELD_NUMBER: _ClassVar[int]
    group_id: bytes
    publisher: str
    rewards: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, group_id: _Optional[bytes] = ..., publisher: _Optional[str] = ..., rewards: _Optional[_Iterable[float]] = ...) -> None: ...

class TrainerStatus(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...

class Inspect(_message.Message):
    __slots__ = ("view", "options_json")
    VIEW_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_JSON_FIELD_NUMBER: _ClassVar[int]
    view: str
    options_json: str
    def __init__(self, view: _Optional[str] = ..., options_json: _Optional[str] = ...) -> None: ...

class InspectReply(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...

class Control(_message.Message):
    __slots__ = ("action", "peer_id")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    PEER_ID_FIELD_NUMBER: _ClassVar[int]
    action: str
    peer_id: str
    def __init__(self, action: _Optional[str] = ..., peer_id: _Optional[str] = ...) -> None: ...

class TaskOrder(_message.Message):
    __slots__ = ("action", "task", "rule")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    action: str
    task: str
    rule: str
    def __init__(self, action: _Optional[str] = ..., task: _Optional[str] = ..., rule: _Optional[str] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("reason", "retryable")
    REASON_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    reason: str
    retryable: bool
    def __init__(self, reason: _Optional[str] = ..., retryable: bool = ...) -> None: ...

class JudgeAsk(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class JudgeChallenge(_message.Message):
    __slots__ = ("challenge_id", "family", "question", "tagged")
    CHALLENGE_ID_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    TAGGED_FIELD_NUMBER: _ClassVar[int]
    challenge_id: bytes
    family: str
    question: str
    tagged: bool
    def __init__(self, challenge_id: _Optional[bytes] = ..., family: _Optional[str] = ..., question: _Optional[str] = ..., tagged: bool = ...) -> None: ...

class JudgeAnswer(_message.Message):
    __slots__ = ("challenge_id", "text", "finish_reason", "round", "policy_version", "model_name", "uses_external_groups")
    CHALLENGE_ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    MODEL_NAME_FIELD_NUMBER: _ClassVar[int]
    USES_EXTERNAL_GROUPS_FIELD_NUMBER: _ClassVar[int]
    challenge_id: bytes
    text: str
    finish_reason: int
    round: int
    policy_version: int
    model_name: str
    uses_external_groups: bool
    def __init__(self, challenge_id: _Optional[bytes] = ..., text: _Optional[str] = ..., finish_reason: _Optional[int] = ..., round: _Optional[int] = ..., policy_version: _Optional[int] = ..., model_name: _Optional[str] = ..., uses_external_groups: bool = ...) -> None: ...

class JudgeScore(_message.Message):
    __slots__ = ("score", "number", "family")
    SCORE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    score: float
    number: int
    family: str
    def __init__(self, score: _Optional[float] = ..., number: _Optional[int] = ..., family: _Optional[str] = ...) -> None: ...
