"""Length-prefixed frames and messages on streams, and how streams end."""

from __future__ import annotations

import logging
from typing import TypeVar

import trio
from google.protobuf.message import Message
from libp2p.abc import IMuxedStream, INetStream
from libp2p.exceptions import BaseLibp2pError
from libp2p.io.abc import Reader
from libp2p.io.exceptions import ConnectionClosedError, IncompleteReadError
from libp2p.network.connection.exceptions import RawConnError
from libp2p.network.stream.exceptions import StreamEOF, StreamError
from libp2p.network.stream.net_stream import NetStream
from libp2p.stream_muxer.exceptions import MuxedConnError, MuxedStreamError
from libp2p.utils.varint import encode_varint_prefixed, read_varint_prefixed_bytes_limited

from shoal_base.bounded import PIECE_BYTES
from shoal_base.waits import AT_ONCE_S

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=Message)

Stream = INetStream
"""A stream of one protocol with one peer, for packages that do not import py-libp2p."""

AnyStreamError = BaseLibp2pError
"""py-libp2p's base error, raised when a stream ends or a peer violates a lower-layer protocol."""

SHORT_BYTES = 1024
"""Maximum length of a protocol name, and of a request without variable content."""
_MAX_VARINT_BYTES = 5
FRAMES_PER_TURN = 64
"""Frames processed before other tasks run."""


_GONE = (
    ConnectionClosedError,
    IncompleteReadError,
    MuxedConnError,
    MuxedStreamError,
    RawConnError,
    StreamError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
)
"""Raised if the peer has closed or reset the stream, or the connection is lost."""


class MalformedFrameError(Exception):
    """The length prefix is not a varint, or exceeds the limit."""


def add_length_prefix(body: bytes) -> bytes:
    """Return `body` with its length as a varint in front."""
    return encode_varint_prefixed(body)


async def write_message(stream: INetStream, message: Message) -> None:
    """Write one length-prefixed message. The caller sets the deadline."""
    await stream.write(add_length_prefix(message.SerializeToString()))


async def read_message(stream: INetStream, kind: type[M], max_bytes: int) -> M:
    """Read one message. Raises for malformed bytes or a broken stream."""
    return kind.FromString(await read_varint_prefixed_bytes_limited(stream, max_bytes))


class FrameReader:
    """Reads frames in large pieces. Buffers at most one frame and one piece."""

    def __init__(self, stream: Reader, max_frame_bytes: int) -> None:
        self._stream = stream
        self._max = max_frame_bytes
        self._buffer = bytearray()
        self._taken = 0

    async def read(self) -> bytes:
        """Return the next frame.

        Raises:
            MalformedFrameError: the stream must be reset.
            libp2p's stream errors: the stream ended.
        """
        self._taken += 1
        if self._taken >= FRAMES_PER_TURN:
            self._taken = 0
            await trio.lowlevel.checkpoint()
        while (header := self._header()) is None:
            await self._fill()
        start, length = header
        while len(self._buffer) < start + length:
            await self._fill()
        frame = bytes(memoryview(self._buffer)[start : start + length])
        del self._buffer[: start + length]
        return frame

    def whole_frame(self, data: bytes) -> bytes | None:
        """Return the frame if `data`, which is the next of the stream, is exactly one frame."""
        if self._buffer or not data:
            return None
        length, start = data[0], 1
        if length >= 0x80:
            if len(data) < 2 or data[1] >= 0x80:
                return None
            length, start = (length & 0x7F) | data[1] << 7, 2
        return data[start:] if len(data) == start + length else None

    async def _fill(self) -> None:
        piece = await self._stream.read(PIECE_BYTES)
        if not piece:
            raise StreamEOF
        self._taken = 0
        self._buffer += piece

    def _header(self) -> tuple[int, int] | None:
        """Return the start and length of the frame; None if more bytes are needed."""
        length = 0
        for position, byte in enumerate(self._buffer[:_MAX_VARINT_BYTES]):
            length |= (byte & 0x7F) << (7 * position)
            if length > self._max:
                raise MalformedFrameError(f"a frame of more than {self._max} bytes")
            if byte < 0x80:
                return position + 1, length
        if len(self._buffer) >= _MAX_VARINT_BYTES:
            raise MalformedFrameError("an over-long varint")
        return None


def muxed_stream(stream: INetStream) -> IMuxedStream:
    """Return the muxer's stream, for bulk reads and writes: py-libp2p's own acquires two locks
    on each call to check a state that the muxer knows. The caller remains responsible for
    closing it."""
    assert isinstance(stream, NetStream)
    return stream.muxed_stream


async def wait_for_end(stream: INetStream) -> None:
    """Wait until the connection of `stream` ends."""
    await stream.muxed_conn.event_shutting_down.wait()


def log_failure(doing: str, peer_id: object, error: Exception) -> None:
    """Log that a stream failed while `doing` something (from or to) a peer.

    A peer that disconnects inside a stream is normal and is logged at debug level only.
    """
    if isinstance(error, _GONE):
        logger.debug("%s %s ended with the stream: %r", doing, peer_id, error)
    elif isinstance(error, trio.TooSlowError):
        logger.info(
            "%s %s took too long: the stream is closed; the peer may try again", doing, peer_id
        )
    else:
        what = str(error) or type(error).__name__
        logger.info("%s %s failed (%s): the stream is closed, nothing else", doing, peer_id, what)


async def reset_stream(stream: INetStream | IMuxedStream) -> None:
    """Reset `stream`, whatever its state, within a second."""
    with trio.move_on_after(AT_ONCE_S) as scope:
        scope.shield = True
        try:
            await stream.reset()
        except Exception as error:  # noqa: BLE001 - already broken, as intended
            logger.debug("reset failed: %r", error)
