"""Length-prefixed frames without I/O: bytes in, complete frames out (in h2's sans-IO style)."""

from __future__ import annotations

from typing import Final

from shoal_wire.errors import LocalError, RemoteError

MAX_IPC_FRAME_BYTES: Final = 32 * 1024 * 1024
_PREFIX_BYTES = 4


class FrameError(RemoteError):
    """An IPC frame that is too long, truncated or not a message of the protocol."""


def encode_frame(body: bytes, *, max_bytes: int = MAX_IPC_FRAME_BYTES) -> bytes:
    """Return `body`, prefixed by its length as a big-endian u32.

    Raises:
        LocalError: the body is over `max_bytes`.
    """
    if len(body) > max_bytes:
        raise LocalError(f"frame of {len(body)} bytes is over {max_bytes}")
    return len(body).to_bytes(_PREFIX_BYTES, "big") + body


class FrameDecoder:
    """Collects received bytes into complete frames; buffers at most one frame and one read."""

    def __init__(self, *, max_bytes: int = MAX_IPC_FRAME_BYTES) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Add received bytes and return the frames that are now complete.

        Raises:
            FrameError: a length prefix over the limit; the stream cannot be read further. Complete
                frames before that prefix are returned, and the next call raises.
        """
        self._buffer += data
        frames: list[bytes] = []
        start = 0
        while len(self._buffer) - start >= _PREFIX_BYTES:
            body_start = start + _PREFIX_BYTES
            length = int.from_bytes(self._buffer[start:body_start], "big")
            if length > self._max_bytes:
                if frames:
                    break  # they are good: the prefix stays in the buffer for the next call
                raise FrameError(f"frame of {length} bytes is over {self._max_bytes}")
            if len(self._buffer) - body_start < length:
                break
            frames.append(bytes(self._buffer[body_start : body_start + length]))
            start = body_start + length
        del self._buffer[:start]
        return frames
