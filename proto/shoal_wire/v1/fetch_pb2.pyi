from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RefusalReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REFUSAL_REASON_UNSPECIFIED: _ClassVar[RefusalReason]
    REFUSAL_REASON_BUSY: _ClassVar[RefusalReason]
    REFUSAL_REASON_NOT_HELD: _ClassVar[RefusalReason]
    REFUSAL_REASON_PENDING: _ClassVar[RefusalReason]
REFUSAL_REASON_UNSPECIFIED: RefusalReason
REFUSAL_REASON_BUSY: RefusalReason
REFUSAL_REASON_NOT_HELD: RefusalReason
REFUSAL_REASON_PENDING: RefusalReason

class BatchAnnouncement(_message.Message):
    __slots__ = ("schema_major", "swarm_digest", "sequence", "previous_sequence", "created_ms", "num_groups", "batch_id", "num_bytes", "expires_ms")
    SCHEMA_MAJOR_FIELD_NUMBER: _ClassVar[int]
    SWARM_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    NUM_GROUPS_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    NUM_BYTES_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    schema_major: int
    swarm_digest: bytes
    sequence: int
    previous_sequence: int
    created_ms: int
    num_groups: int
    batch_id: bytes
    num_bytes: int
    expires_ms: int
    def __init__(self, schema_major: _Optional[int] = ..., swarm_digest: _Optional[bytes] = ..., sequence: _Optional[int] = ..., previous_sequence: _Optional[int] = ..., created_ms: _Optional[int] = ..., num_groups: _Optional[int] = ..., batch_id: _Optional[bytes] = ..., num_bytes: _Optional[int] = ..., expires_ms: _Optional[int] = ...) -> None: ...

class RolloutRequest(_message.Message):
    __slots__ = ("recent", "since", "whole", "chunk")
    RECENT_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    recent: RecentQuery
    since: SinceQuery
    whole: WholeQuery
    chunk: ChunkQuery
    def __init__(self, recent: _Optional[_Union[RecentQuery, _Mapping]] = ..., since: _Optional[_Union[SinceQuery, _Mapping]] = ..., whole: _Optional[_Union[WholeQuery, _Mapping]] = ..., chunk: _Optional[_Union[ChunkQuery, _Mapping]] = ...) -> None: ...

class RecentQuery(_message.Message):
    __slots__ = ("shards", "max_batches", "max_bytes", "max_age_seconds", "before")
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCHES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    shards: _containers.RepeatedScalarFieldContainer[int]
    max_batches: int
    max_bytes: int
    max_age_seconds: int
    before: bytes
    def __init__(self, shards: _Optional[_Iterable[int]] = ..., max_batches: _Optional[int] = ..., max_bytes: _Optional[int] = ..., max_age_seconds: _Optional[int] = ..., before: _Optional[bytes] = ...) -> None: ...

class SinceQuery(_message.Message):
    __slots__ = ("publisher", "after_sequence", "max_batches", "shards")
    PUBLISHER_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCHES_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    publisher: str
    after_sequence: int
    max_batches: int
    shards: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, publisher: _Optional[str] = ..., after_sequence: _Optional[int] = ..., max_batches: _Optional[int] = ..., shards: _Optional[_Iterable[int]] = ...) -> None: ...

class WholeQuery(_message.Message):
    __slots__ = ("batch_ids",)
    BATCH_IDS_FIELD_NUMBER: _ClassVar[int]
    batch_ids: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, batch_ids: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ChunkQuery(_message.Message):
    __slots__ = ("batch_id", "offset", "length")
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    batch_id: bytes
    offset: int
    length: int
    def __init__(self, batch_id: _Optional[bytes] = ..., offset: _Optional[int] = ..., length: _Optional[int] = ...) -> None: ...

class RolloutAnswer(_message.Message):
    __slots__ = ("listing", "envelopes", "chunk", "refusal")
    LISTING_FIELD_NUMBER: _ClassVar[int]
    ENVELOPES_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    listing: Listing
    envelopes: Envelopes
    chunk: Chunk
    refusal: Refusal
    def __init__(self, listing: _Optional[_Union[Listing, _Mapping]] = ..., envelopes: _Optional[_Union[Envelopes, _Mapping]] = ..., chunk: _Optional[_Union[Chunk, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ...) -> None: ...

class Listing(_message.Message):
    __slots__ = ("batches",)
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    batches: _containers.RepeatedCompositeFieldContainer[BatchRef]
    def __init__(self, batches: _Optional[_Iterable[_Union[BatchRef, _Mapping]]] = ...) -> None: ...

class BatchRef(_message.Message):
    __slots__ = ("batch_id", "publisher", "sequence", "num_bytes", "num_groups")
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    PUBLISHER_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    NUM_BYTES_FIELD_NUMBER: _ClassVar[int]
    NUM_GROUPS_FIELD_NUMBER: _ClassVar[int]
    batch_id: bytes
    publisher: str
    sequence: int
    num_bytes: int
    num_groups: int
    def __init__(self, batch_id: _Optional[bytes] = ..., publisher: _Optional[str] = ..., sequence: _Optional[int] = ..., num_bytes: _Optional[int] = ..., num_groups: _Optional[int] = ...) -> None: ...

class Envelopes(_message.Message):
    __slots__ = ("envelopes",)
    ENVELOPES_FIELD_NUMBER: _ClassVar[int]
    envelopes: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, envelopes: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("num_bytes", "data")
    NUM_BYTES_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    num_bytes: int
    data: bytes
    def __init__(self, num_bytes: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("reason", "retry_after_ms")
    REASON_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    reason: RefusalReason
    retry_after_ms: int
    def __init__(self, reason: _Optional[_Union[RefusalReason, str]] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...
