"""Request and response over one stream: a 4-byte big-endian length and that many bytes, each way.

Data is read and written in pieces of at most 1 MiB, because py-libp2p's exact read fails after a
hundred partial reads (about 6.5 MB). A stream that breaks any rule is reset; that is the only error
that a requester sees.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

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
from shoal_base.ranges import Range, Ranged, Seconds
from shoal_p2p.net.address import from_libp2p_id, to_libp2p_id
from shoal_p2p.net.layers import source_of
from shoal_p2p.net.request_slots import RequestSlots, Slot
from shoal_p2p.net.streams import reset_stream
from shoal_wire.types import PeerId

RequestHandler = Callable[[PeerId, bytes], Awaitable[bytes]]
CHUNK_BYTES = 16 * PIECE_BYTES
"""Size of the pieces in which a message is read and written."""
_LENGTH = struct.Struct(">I")


class OversizeFrameError(Exception):
    """The other side announced more bytes than allowed."""


class RequestFailure(StrEnum):
    """Reason why a request failed."""

    NOT_CONNECTED = "not_connected"
    UNSUPPORTED = "unsupported"
    TIMEOUT = "timeout"
    RESET = "reset"
    OVERSIZE = "oversize"


class RequestError(Exception):
    """A request got no valid answer."""

    def __init__(self, failure: RequestFailure, detail: str) -> None:
        super().__init__(f"{failure}: {detail}")
        self.failure = failure


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits(Ranged):
    """Deadlines and limits for each peer's use of a handler."""

    read_deadline_s: Seconds = 10.0
    handle_deadline_s: Seconds = 30.0
    write_deadline_s: Seconds = 30.0
    max_concurrent: Annotated[int, Range("requests", 1, 100_000)] = 32
    """Requests served at once for all peers together; `request_slots` describes what happens
    beyond."""
    max_concurrent_per_peer: Annotated[int, Range("requests", 1, "max_concurrent")] = 4


async def write_frame(stream: INetStream, payload: bytes) -> None:
    """Write one frame. Raises libp2p's stream errors. The caller sets the deadline."""
    await stream.write(_LENGTH.pack(len(payload)))
    for start in range(0, len(payload), CHUNK_BYTES):
        await stream.write(payload[start : start + CHUNK_BYTES])


async def read_frame(stream: INetStream, max_bytes: int) -> bytes:
    """Read one frame of at most `max_bytes`. The caller sets the deadline.

    Raises:
        OversizeFrameError: the announced length is larger.
        libp2p's stream errors: reset, or closed before the end.
    """
    (length,) = _LENGTH.unpack(await _read_exactly(stream, _LENGTH.size))
    if length > max_bytes:
        raise OversizeFrameError(f"{length} bytes announced, {max_bytes} allowed")
    return await _read_exactly(stream, length)


async def _read_exactly(stream: INetStream, size: int) -> bytes:
    # The buffer grows with the data received, not with the length announced.
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
    """Send one request and return the answer. The caller sets the deadline.

    Raises:
        RequestError: `.failure` has the reason.
    """
    stream = await _open(host, peer_id, protocol_id)
    complete = False
    try:
        await write_frame(stream, payload)
        response = await read_frame(stream, max_response_bytes)
        await stream.close()
        complete = True
        return response
    except OversizeFrameError as error:
        raise RequestError(RequestFailure.OVERSIZE, f"{peer_id}: {error}") from error
    except (IOException, EOFError) as error:
        raise RequestError(RequestFailure.RESET, f"{peer_id}: {error!r}") from error
    finally:
        if not complete:
            await reset_stream(stream)


async def ping(host: BasicHost, peer_id: PeerId) -> float:
    """Return one round-trip time in milliseconds, without the stream's negotiation.

    This is libp2p's ping (`/ipfs/ping/1.0.0`): 32 random bytes, echoed. The caller sets the
    deadline.

    Raises:
        RequestError: `.failure` has the reason.
    """
    stream = await _open(host, peer_id, PING_ID)
    try:
        sent_at, sent, echoed = trio.current_time(), secrets.token_bytes(PING_LENGTH), b""
        await stream.write(sent)
        while len(echoed) < PING_LENGTH:
            piece = await stream.read(PING_LENGTH - len(echoed))
            if not piece:
                raise RequestError(RequestFailure.RESET, f"{peer_id} ended the stream")
            echoed += piece
        round_trip_ms = (trio.current_time() - sent_at) * 1000
    except IOException as error:
        raise RequestError(RequestFailure.RESET, f"{peer_id}: {error!r}") from error
    finally:
        await reset_stream(stream)
    if echoed != sent:
        raise RequestError(RequestFailure.RESET, f"{peer_id} answered with other bytes")
    return round_trip_ms


async def _open(host: BasicHost, peer_id: PeerId, protocol_id: str) -> INetStream:
    try:
        return await host.new_stream(to_libp2p_id(peer_id), [TProtocol(protocol_id)])
    except (HostException, SwarmException, IOException) as error:
        unsupported = "not supported" in root_cause(error)
        failure = RequestFailure.UNSUPPORTED if unsupported else RequestFailure.RESET
        raise RequestError(failure, f"{peer_id}: {root_cause(error)}") from error


def root_cause(error: BaseException) -> str:
    """Return the first error in the chain of causes of `error`, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(_describe(error).split()) or type(error).__name__


def _describe(error: BaseException) -> str:
    """Return an error's message; for a group, the distinct messages of its errors."""
    if isinstance(error, BaseExceptionGroup):
        return f"{error.message}: {', '.join(dict.fromkeys(map(root_cause, error.exceptions)))}"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


class RequestServer:
    """Serves one protocol, limited in bytes, time and concurrency."""

    def __init__(
        self,
        handler: RequestHandler,
        *,
        max_request_bytes: int,
        limits: RequestLimits,
        on_sent: Callable[[PeerId, bytes], None] = lambda _peer_id, _request: None,
    ) -> None:
        """`on_sent` is called for each request whose answer has been written."""
        self._handler = handler
        self._on_sent = on_sent
        self._max_request_bytes = max_request_bytes
        self._limits = limits
        self.slots = RequestSlots(
            max_slots=limits.max_concurrent, max_per_peer=limits.max_concurrent_per_peer
        )

    async def serve(self, stream: INetStream) -> None:
        """Answer the one request of `stream`. An exception in the handler resets it (see the
        swarm)."""
        peer_id = from_libp2p_id(stream.muxed_conn.peer_id)
        scope = trio.CancelScope()
        slot = self.slots.acquire(
            peer_id, source_of(stream.muxed_conn, peer_id), evict=scope.cancel
        )
        if slot is None:
            await reset_stream(stream)
            return
        try:
            with scope:
                await self._answer(stream, peer_id, slot)
        finally:
            self.slots.release(slot)
        if scope.cancelled_caught:
            await reset_stream(stream)

    async def _answer(self, stream: INetStream, peer_id: PeerId, slot: Slot) -> None:
        with trio.fail_after(self._limits.read_deadline_s):
            request = await read_frame(stream, self._max_request_bytes)
        self.slots.set_busy(slot, is_busy=True)
        with trio.fail_after(self._limits.handle_deadline_s):
            response = await self._handler(peer_id, request)
        self.slots.set_busy(slot, is_busy=False)
        with trio.fail_after(self._limits.write_deadline_s):
            await write_frame(stream, response)
            await stream.close()
        self._on_sent(peer_id, request)
