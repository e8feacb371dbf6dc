"""Request and response over one stream: a 4-byte big-endian length and that many bytes, each way.

Reads and writes go in pieces of at most 1 MiB: py-libp2p's own exact read gives up after a
hundred partial reads (about 6.5 MB).  A stream that breaks any rule is reset; that is the only
error a requester sees.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

import trio
from libp2p.abc import INetStream
from libp2p.custom_types import TProtocol
from libp2p.host.basic_host import BasicHost
from libp2p.host.exceptions import HostException
from libp2p.host.ping import ID as PING_ID
from libp2p.host.ping import PING_LENGTH
from libp2p.io.exceptions import IOException
from libp2p.network.exceptions import SwarmException

from shoal_base.bounded import PIECE_BYTES
from shoal_p2p.net.address import from_libp2p_id, to_libp2p_id
from shoal_p2p.net.layers import source_of
from shoal_p2p.net.request_slots import RequestSlots, Seat
from shoal_p2p.net.streams import reset_stream
from shoal_wire.types import PeerId

RequestHandler = Callable[[PeerId, bytes], Awaitable[bytes]]
CHUNK_BYTES = 16 * PIECE_BYTES
"""Piece in which a message is read and written."""
_LENGTH = struct.Struct(">I")


class LongFrameError(Exception):
    """The other side announced more bytes than it may send."""


class RequestFailure(StrEnum):
    """Why a request got no answer."""

    NOT_CONNECTED = "not_connected"
    UNSUPPORTED = "unsupported"
    TIMEOUT = "timeout"
    RESET = "reset"
    OVERSIZE = "oversize"


class RequestError(Exception):
    """A request got no usable answer."""

    def __init__(self, failure: RequestFailure, detail: str) -> None:
        super().__init__(f"{failure}: {detail}")
        self.failure = failure


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """Deadlines and bounds for what one peer may occupy of a handler."""

    read_deadline_s: float = 10.0
    handle_deadline_s: float = 30.0
    write_deadline_s: float = 30.0
    max_concurrent: int = 32
    """Requests served at once, all peers together; who is over that, see `seats`."""
    max_concurrent_per_peer: int = 4


async def write_frame(stream: INetStream, payload: bytes) -> None:
    """Write one frame. Raises libp2p's stream errors; the caller holds the deadline."""
    await stream.write(_LENGTH.pack(len(payload)))
    for start in range(0, len(payload), CHUNK_BYTES):
        await stream.write(payload[start : start + CHUNK_BYTES])


async def read_frame(stream: INetStream, max_bytes: int) -> bytes:
    """Read one frame of at most `max_bytes`; the caller holds the deadline.

    Raises:
        LongFrameError: the length says more.
        libp2p's stream errors: reset, or closed before the end.
    """
    (length,) = _LENGTH.unpack(await _read_exactly(stream, _LENGTH.size))
    if length > max_bytes:
        raise LongFrameError(f"{length} bytes announced, {max_bytes} allowed")
    return await _read_exactly(stream, length)


async def _read_exactly(stream: INetStream, size: int) -> bytes:
    # Grows with what arrives, never with what is announced.
    buffer = bytearray()
    while len(buffer) < size:
        piece = await stream.read(min(CHUNK_BYTES, size - len(buffer)))
        if not piece:
            raise EOFError("the stream ended inside a frame")
        buffer += piece
    return bytes(buffer)


async def exchange(
    host: BasicHost, peer_id: PeerId, protocol_id: str, payload: bytes, max_response_bytes: int
) -> bytes:
    """Send one request and return the answer; the caller holds the deadline.

    Raises:
        RequestError: the reason is in `.failure`.
    """
    stream = await _open(host, peer_id, protocol_id)
    complete = False
    try:
        await write_frame(stream, payload)
        response = await read_frame(stream, max_response_bytes)
        await stream.close()
        complete = True
        return response
    except LongFrameError as error:
        raise RequestError(RequestFailure.OVERSIZE, f"{peer_id}: {error}") from error
    except (IOException, EOFError) as error:
        raise RequestError(RequestFailure.RESET, f"{peer_id}: {error!r}") from error
    finally:
        if not complete:
            await reset_stream(stream)


async def ping(host: BasicHost, peer_id: PeerId) -> float:
    """Return one round trip in milliseconds, without the stream's negotiation.

    libp2p's ping (`/ipfs/ping/1.0.0`): 32 random bytes, and the same 32 back. The caller holds the
    deadline.

    Raises:
        RequestError: the reason is in `.failure`.
    """
    stream = await _open(host, peer_id, PING_ID)
    try:
        sent_at, sent, heard = trio.current_time(), secrets.token_bytes(PING_LENGTH), b""
        await stream.write(sent)
        while len(heard) < PING_LENGTH:
            piece = await stream.read(PING_LENGTH - len(heard))
            if not piece:
                raise RequestError(RequestFailure.RESET, f"{peer_id} ended the stream")
            heard += piece
        took_ms = (trio.current_time() - sent_at) * 1000
    except IOException as error:
        raise RequestError(RequestFailure.RESET, f"{peer_id}: {error!r}") from error
    finally:
        await reset_stream(stream)
    if heard != sent:
        raise RequestError(RequestFailure.RESET, f"{peer_id} answered with other bytes")
    return took_ms


async def _open(host: BasicHost, peer_id: PeerId, protocol_id: str) -> INetStream:
    try:
        return await host.new_stream(to_libp2p_id(peer_id), [TProtocol(protocol_id)])
    except (HostException, SwarmException, IOException) as error:
        unsupported = "not supported" in root_cause(error)
        failure = RequestFailure.UNSUPPORTED if unsupported else RequestFailure.RESET
        raise RequestError(failure, f"{peer_id}: {root_cause(error)}") from error


def root_cause(error: BaseException) -> str:
    """Return, in one line, what started the chain of causes that ends in `error`."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(_said(error).split()) or type(error).__name__


def _said(error: BaseException) -> str:
    """Return an error's words; of several at once, theirs, each once."""
    if isinstance(error, BaseExceptionGroup):
        return f"{error.message}: {', '.join(dict.fromkeys(map(root_cause, error.exceptions)))}"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


class RequestServer:
    """Serves one protocol; bounded in bytes, time and concurrency."""

    def __init__(
        self,
        handler: RequestHandler,
        *,
        max_request_bytes: int,
        limits: RequestLimits,
        on_sent: Callable[[PeerId, bytes], None] = lambda _peer_id, _request: None,
    ) -> None:
        """`on_sent` learns of requests whose answer has been written."""
        self._handler = handler
        self._on_sent = on_sent
        self._max_request_bytes = max_request_bytes
        self._limits = limits
        self.seats = RequestSlots(
            max_seats=limits.max_concurrent, max_of_peer=limits.max_concurrent_per_peer
        )

    async def serve(self, stream: INetStream) -> None:
        """Answer the one request of `stream`. A handler's exception resets it (see the swarm)."""
        peer_id = from_libp2p_id(stream.muxed_conn.peer_id)
        scope = trio.CancelScope()
        seat = self.seats.take(peer_id, source_of(stream.muxed_conn, peer_id), evict=scope.cancel)
        if seat is None:
            await reset_stream(stream)
            return
        try:
            with scope:
                await self._answer(stream, peer_id, seat)
        finally:
            self.seats.leave(seat)
        if scope.cancelled_caught:
            await reset_stream(stream)

    async def _answer(self, stream: INetStream, peer_id: PeerId, seat: Seat) -> None:
        with trio.fail_after(self._limits.read_deadline_s):
            request = await read_frame(stream, self._max_request_bytes)
        self.seats.set_busy(seat, is_busy=True)
        with trio.fail_after(self._limits.handle_deadline_s):
            response = await self._handler(peer_id, request)
        self.seats.set_busy(seat, is_busy=False)
        with trio.fail_after(self._limits.write_deadline_s):
            await write_frame(stream, response)
            await stream.close()
        self._on_sent(peer_id, request)
