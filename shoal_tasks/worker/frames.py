"""Frames between a client and the task worker: u32 big-endian length, then UTF-8 JSON. Sans-IO."""

from __future__ import annotations

import json
import struct
from typing import Final

from shoal_tasks.errors import WorkerProtocolError
from shoal_tasks.spec import JsonValue

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
"""Longest body, either way. The sender splits what would be longer."""

READ_BYTES: Final = 1 << 16
"""Bytes that are read from a pipe at once."""

_HEADER: Final = struct.Struct(">I")

Message = dict[str, JsonValue]


def encode_frame(message: Message) -> bytes:
    """One frame. ASCII-only JSON, so that a lone surrogate in a completion survives."""
    body = json.dumps(message, separators=(",", ":"), allow_nan=False).encode("ascii")
    if len(body) > MAX_FRAME_BYTES:
        raise ValueError(f"message of {len(body)} bytes exceeds {MAX_FRAME_BYTES}")
    return _HEADER.pack(len(body)) + body


class WorkerFrameDecoder:
    """Bytes in, at most one message out per call. Raises `WorkerProtocolError` on bad bytes."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Take bytes as they came."""
        self._buffer += data

    def next_message(self) -> Message | None:
        """The next complete message, or None until more bytes are fed."""
        if len(self._buffer) < _HEADER.size:
            return None
        (length,) = _HEADER.unpack_from(self._buffer)
        if length > MAX_FRAME_BYTES:
            raise WorkerProtocolError(f"frame of {length} bytes exceeds {MAX_FRAME_BYTES}")
        if len(self._buffer) < _HEADER.size + length:
            return None
        body = bytes(self._buffer[_HEADER.size : _HEADER.size + length])
        del self._buffer[: _HEADER.size + length]
        return _decode_body(body)


def _decode_body(body: bytes) -> Message:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise WorkerProtocolError(f"frame is not JSON: {error}") from None
    if not isinstance(message, dict):
        raise WorkerProtocolError("frame is not a JSON object")
    return message
