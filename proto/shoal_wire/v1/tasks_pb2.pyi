from shoal_wire.v1 import swarm_pb2 as _swarm_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TaskRefusalReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_REFUSAL_REASON_UNSPECIFIED: _ClassVar[TaskRefusalReason]
    TASK_REFUSAL_REASON_BUSY: _ClassVar[TaskRefusalReason]
    TASK_REFUSAL_REASON_NOT_SHARED: _ClassVar[TaskRefusalReason]
TASK_REFUSAL_REASON_UNSPECIFIED: TaskRefusalReason
TASK_REFUSAL_REASON_BUSY: TaskRefusalReason
TASK_REFUSAL_REASON_NOT_SHARED: TaskRefusalReason

class TaskRequest(_message.Message):
    __slots__ = ("bundle", "piece", "offers")
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    OFFERS_FIELD_NUMBER: _ClassVar[int]
    bundle: BundleQuery
    piece: PieceQuery
    offers: OffersQuery
    def __init__(self, bundle: _Optional[_Union[BundleQuery, _Mapping]] = ..., piece: _Optional[_Union[PieceQuery, _Mapping]] = ..., offers: _Optional[_Union[OffersQuery, _Mapping]] = ...) -> None: ...

class BundleQuery(_message.Message):
    __slots__ = ("family",)
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    family: bytes
    def __init__(self, family: _Optional[bytes] = ...) -> None: ...

class PieceQuery(_message.Message):
    __slots__ = ("family", "file", "piece")
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    family: bytes
    file: int
    piece: int
    def __init__(self, family: _Optional[bytes] = ..., file: _Optional[int] = ..., piece: _Optional[int] = ...) -> None: ...

class OffersQuery(_message.Message):
    __slots__ = ("swarm_digest", "known")
    SWARM_DIGEST_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    swarm_digest: bytes
    known: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, swarm_digest: _Optional[bytes] = ..., known: _Optional[_Iterable[bytes]] = ...) -> None: ...

class TaskAnswer(_message.Message):
    __slots__ = ("bundle", "piece", "refusal", "offers")
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    OFFERS_FIELD_NUMBER: _ClassVar[int]
    bundle: Bundle
    piece: Piece
    refusal: TaskRefusal
    offers: Offers
    def __init__(self, bundle: _Optional[_Union[Bundle, _Mapping]] = ..., piece: _Optional[_Union[Piece, _Mapping]] = ..., refusal: _Optional[_Union[TaskRefusal, _Mapping]] = ..., offers: _Optional[_Union[Offers, _Mapping]] = ...) -> None: ...

class Offers(_message.Message):
    __slots__ = ("envelopes", "training")
    ENVELOPES_FIELD_NUMBER: _ClassVar[int]
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    envelopes: _containers.RepeatedScalarFieldContainer[bytes]
    training: _containers.RepeatedCompositeFieldContainer[Training]
    def __init__(self, envelopes: _Optional[_Iterable[bytes]] = ..., training: _Optional[_Iterable[_Union[Training, _Mapping]]] = ...) -> None: ...

class Training(_message.Message):
    __slots__ = ("family", "reward", "groups")
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    family: bytes
    reward: float
    groups: int
    def __init__(self, family: _Optional[bytes] = ..., reward: _Optional[float] = ..., groups: _Optional[int] = ...) -> None: ...

class TaskOffer(_message.Message):
    __slots__ = ("schema_major", "swarm_digest", "created_ms", "family")
    SCHEMA_MAJOR_FIELD_NUMBER: _ClassVar[int]
    SWARM_DIGEST_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    schema_major: int
    swarm_digest: bytes
    created_ms: int
    family: _swarm_pb2.TaskFamily
    def __init__(self, schema_major: _Optional[int] = ..., swarm_digest: _Optional[bytes] = ..., created_ms: _Optional[int] = ..., family: _Optional[_Union[_swarm_pb2.TaskFamily, _Mapping]] = ...) -> None: ...

class Bundle(_message.Message):
    __slots__ = ("files", "good", "bad", "hub_rows")
    FILES_FIELD_NUMBER: _ClassVar[int]
    GOOD_FIELD_NUMBER: _ClassVar[int]
    BAD_FIELD_NUMBER: _ClassVar[int]
    HUB_ROWS_FIELD_NUMBER: _ClassVar[int]
    files: _containers.RepeatedCompositeFieldContainer[BundleFile]
    good: _containers.RepeatedScalarFieldContainer[str]
    bad: _containers.RepeatedScalarFieldContainer[str]
    hub_rows: str
    def __init__(self, files: _Optional[_Iterable[_Union[BundleFile, _Mapping]]] = ..., good: _Optional[_Iterable[str]] = ..., bad: _Optional[_Iterable[str]] = ..., hub_rows: _Optional[str] = ...) -> None: ...

class BundleFile(_message.Message):
    __slots__ = ("name", "num_bytes", "sha256", "pieces")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUM_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    name: str
    num_bytes: int
    sha256: bytes
    pieces: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, name: _Optional[str] = ..., num_bytes: _Optional[int] = ..., sha256: _Optional[bytes] = ..., pieces: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Piece(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class TaskRefusal(_message.Message):
    __slots__ = ("reason", "retry_after_ms")
    REASON_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    reason: TaskRefusalReason
    retry_after_ms: int
    def __init__(self, reason: _Optional[_Union[TaskRefusalReason, str]] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...
