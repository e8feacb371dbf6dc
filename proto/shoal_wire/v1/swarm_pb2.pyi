from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SwarmManifest(_message.Message):
    __slots__ = ("schema_major", "swarm_name", "families", "min_completions", "max_completions", "max_message_bytes", "max_batch_bytes", "max_completion_bytes", "max_age_seconds", "max_future_seconds", "shard_count", "allow_inline_tasks", "allowed_peers")
    SCHEMA_MAJOR_FIELD_NUMBER: _ClassVar[int]
    SWARM_NAME_FIELD_NUMBER: _ClassVar[int]
    FAMILIES_FIELD_NUMBER: _ClassVar[int]
    MIN_COMPLETIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_COMPLETIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_COMPLETION_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MAX_FUTURE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SHARD_COUNT_FIELD_NUMBER: _ClassVar[int]
    ALLOW_INLINE_TASKS_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_PEERS_FIELD_NUMBER: _ClassVar[int]
    schema_major: int
    swarm_name: str
    families: _containers.RepeatedCompositeFieldContainer[TaskFamily]
    min_completions: int
    max_completions: int
    max_message_bytes: int
    max_batch_bytes: int
    max_completion_bytes: int
    max_age_seconds: int
    max_future_seconds: int
    shard_count: int
    allow_inline_tasks: bool
    allowed_peers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, schema_major: _Optional[int] = ..., swarm_name: _Optional[str] = ..., families: _Optional[_Iterable[_Union[TaskFamily, _Mapping]]] = ..., min_completions: _Optional[int] = ..., max_completions: _Optional[int] = ..., max_message_bytes: _Optional[int] = ..., max_batch_bytes: _Optional[int] = ..., max_completion_bytes: _Optional[int] = ..., max_age_seconds: _Optional[int] = ..., max_future_seconds: _Optional[int] = ..., shard_count: _Optional[int] = ..., allow_inline_tasks: bool = ..., allowed_peers: _Optional[_Iterable[str]] = ...) -> None: ...

class TaskFamily(_message.Message):
    __slots__ = ("name", "generator", "config_json", "weight", "verifier", "verifier_version", "answer_format")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GENERATOR_FIELD_NUMBER: _ClassVar[int]
    CONFIG_JSON_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    VERIFIER_FIELD_NUMBER: _ClassVar[int]
    VERIFIER_VERSION_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FORMAT_FIELD_NUMBER: _ClassVar[int]
    name: str
    generator: str
    config_json: str
    weight: float
    verifier: str
    verifier_version: str
    answer_format: str
    def __init__(self, name: _Optional[str] = ..., generator: _Optional[str] = ..., config_json: _Optional[str] = ..., weight: _Optional[float] = ..., verifier: _Optional[str] = ..., verifier_version: _Optional[str] = ..., answer_format: _Optional[str] = ...) -> None: ...

class PeerQuery(_message.Message):
    __slots__ = ("shards",)
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    shards: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, shards: _Optional[_Iterable[int]] = ...) -> None: ...

class PeerList(_message.Message):
    __slots__ = ("peers",)
    PEERS_FIELD_NUMBER: _ClassVar[int]
    peers: _containers.RepeatedCompositeFieldContainer[PeerAddresses]
    def __init__(self, peers: _Optional[_Iterable[_Union[PeerAddresses, _Mapping]]] = ...) -> None: ...

class PeerAddresses(_message.Message):
    __slots__ = ("peer_id", "addresses", "shards")
    PEER_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    peer_id: str
    addresses: _containers.RepeatedScalarFieldContainer[str]
    shards: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, peer_id: _Optional[str] = ..., addresses: _Optional[_Iterable[str]] = ..., shards: _Optional[_Iterable[int]] = ...) -> None: ...
