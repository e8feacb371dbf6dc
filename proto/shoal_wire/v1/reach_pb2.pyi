from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class ReachRequest(_message.Message):
    __slots__ = ("ports",)
    PORTS_FIELD_NUMBER: _ClassVar[int]
    ports: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ports: _Optional[_Iterable[int]] = ...) -> None: ...

class ReachReply(_message.Message):
    __slots__ = ("observed", "wall_ms", "open_ports", "dialled")
    OBSERVED_FIELD_NUMBER: _ClassVar[int]
    WALL_MS_FIELD_NUMBER: _ClassVar[int]
    OPEN_PORTS_FIELD_NUMBER: _ClassVar[int]
    DIALLED_FIELD_NUMBER: _ClassVar[int]
    observed: str
    wall_ms: int
    open_ports: _containers.RepeatedScalarFieldContainer[int]
    dialled: bool
    def __init__(self, observed: _Optional[str] = ..., wall_ms: _Optional[int] = ..., open_ports: _Optional[_Iterable[int]] = ..., dialled: bool = ...) -> None: ...
