"""Varint-prefixed frames and messages of a stream, and its end."""

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
"""A stream of one protocol with one peer, for rooms that do not import py-libp2p."""

AnyStreamError = BaseLibp2pError
"""Error of py-libp2p where a stream ends or a peer breaks the rules of a layer below."""

SHORT_BYTES = 1024
"""Longest name of a protocol, and longest request that asks for something there is one of."""
_MAX_VARINT_BYTES = 5
FRAMES_A_TURN = 64
"""Taken from what has come, before other tasks have a turn."""


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
"""Raised where the peer has closed or reset the stream, or the connection is lost."""


class MalformedFrameError(Exception):
    """The length prefix is no varint, or says more than one frame may hold."""


def framed(body: bytes) -> bytes:
    """Return `body` with its length before it, as a varint."""
    return encode_varint_prefixed(body)


async def write_message(stream: INetStream, message: Message) -> None:
    """Write one message with its length before it. The caller holds the deadline."""
    await stream.write(framed(message.SerializeToString()))


async def read_message(stream: INetStream, kind: type[M], max_bytes: int) -> M:
    """Read one message. Raises what the bytes or the stream deserve."""
    return kind.FromString(await read_varint_prefixed_bytes_limited(stream, max_bytes))


class FrameReader:
    """Reads frames, in large pieces; holds at most one frame and one piece."""

    def __init__(self, stream: Reader, max_frame_bytes: int) -> None:
        self._stream = stream
        self._max = max_frame_bytes
        self._buffer = bytearray()
        self._taken = 0

    async def read(self) -> bytes:
        """Return the next frame.

        Raises:
            MalformedFrameError: reset the stream.
            libp2p's stream errors: the stream ended.
        """
        self._taken += 1
        if self._taken >= FRAMES_A_TURN:
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

    async def _fill(self) -> None:
        piece = await self._stream.read(PIECE_BYTES)
        if not piece:
            raise StreamEOF
        self._taken = 0
        self._buffer += piece

    def _header(self) -> tuple[int, int] | None:
        """Return where the frame starts and its length; None if more bytes are needed."""
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


def below(stream: INetStream) -> IMuxedStream:
    """Return the muxer's stream, for who reads or writes much: py-libp2p's own asks two locks each
    time whether the stream is open, which the muxer's knows. Its end stays the caller's to tell."""
    assert isinstance(stream, NetStream)
    return stream.muxed_stream


async def wait_for_end(stream: INetStream) -> None:
    """Wait until the connection of `stream` ends."""
    await stream.muxed_conn.event_shutting_down.wait()


def log_failure(doing: str, peer_id: object, error: Exception) -> None:
    """Log that a stream failed while `doing` something (from or to) a peer.

    A peer that goes away in the middle of a stream is no news: that is told at debug level alone.
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
        except Exception as error:  # noqa: BLE001 - already broken, which is what we want
            logger.debug("reset failed: %r", error)
