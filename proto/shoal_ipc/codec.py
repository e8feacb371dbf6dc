"""IPC frames to and from bytes (`messages` ↔ `v1/ipc.proto`)."""

from __future__ import annotations

from shoal_ipc import messages as m
from shoal_ipc.v1 import ipc_pb2 as pb
from shoal_wire.codec import ROLLOUT_WIRES
from shoal_wire.digests import group_id as content_id
from shoal_wire.errors import RemoteError
from shoal_wire.fields import OutOfBoundsError, Wire, Wires, coded
from shoal_wire.framing import FrameError
from shoal_wire.oneof import OneOf
from shoal_wire.types import PublishedGroup

_ROLES = {
    m.Role.TRAINER: pb.ROLE_TRAINER,
    m.Role.INSPECTOR: pb.ROLE_INSPECTOR,
    m.Role.PUBLISHER: pb.ROLE_PUBLISHER,
}


def encode_ipc(frame: m.IpcFrame) -> bytes:
    """Return the protobuf bytes of `frame`, to be framed by `shoal_wire.framing`."""
    return _FRAMES.encode(frame.body, request_id=frame.request_id)


def decode_ipc(raw: bytes) -> m.IpcFrame:
    """Decode one frame's body.

    Raises:
        FrameError: not a message of this contract.
    """
    try:
        message = _FRAMES.parse(raw)
        return m.IpcFrame(request_id=message.request_id, body=_FRAMES.body(message))
    except OutOfBoundsError as error:
        raise FrameError(error.what) from None
    except RemoteError as error:
        raise FrameError(str(error)) from None


_GROUP = Wires(ROLLOUT_WIRES).of(PublishedGroup)


def _read_group(message: pb.PublishedGroup) -> PublishedGroup:
    published: PublishedGroup = _GROUP.read(message)
    if content_id(published.group) != published.group_id:
        raise FrameError("sampled group does not have the content its id names")
    if len(published.network) > m.MAX_LABEL_CHARS:
        raise FrameError("sampled group has a label longer than any network's")
    return published


_WIRES = Wires(
    {
        m.Role: coded(_ROLES, unknown="hello states no known role"),
        m.ControlAction: coded(
            {action: action.value for action in m.ControlAction},
            unknown="control states no known action",
        ),
        m.TaskAction: coded(
            {action: action.value for action in m.TaskAction},
            unknown="task order states no known action",
        ),
        **ROLLOUT_WIRES,
        PublishedGroup: Wire(write=_GROUP.write, read=_read_group),
    }
)
_FRAMES: OneOf[m.Body] = OneOf(
    pb.IpcFrame,
    m.Body,
    _WIRES,
    name="frame",
    empty="frame has no known body: node and trainer differ in version",
)
