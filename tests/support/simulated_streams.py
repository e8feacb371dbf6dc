"""Byte streams between simulated hosts: delayed, ordered, with a window, closed or reset by either.

Line    one host's end of a connection, as in py-libp2p: `muxed_conn`, with a socket below
Stream  one end of a stream on it, as `INetStream`
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio
from libp2p.network.stream.exceptions import StreamClosed, StreamReset
from libp2p.network.stream.net_stream import NetStream

from shoal_p2p.net.address import host_and_port, to_libp2p_id
from shoal_wire.types import PeerId

if TYPE_CHECKING:
    from shoal_lab.simulation.network import SimulatedNetwork

WINDOW_BYTES = 256 * 1024
"""Maximum unread bytes of one stream; then its writer waits."""


class Pipe:
    """One direction of a stream."""

    def __init__(self, network: SimulatedNetwork, source: PeerId, target: PeerId) -> None:
        self._network, self._ends = network, (source, target)
        self._latency_s = network.latency(source, target)
        self._buffer = bytearray()
        self._unread = 0
        self._is_closed = self._is_ended = self.is_reset = False
        self._changed = trio.Event()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def write(self, data: bytes) -> None:
        """Wait for window space, not for delivery. Raises StreamReset, StreamClosed."""
        await trio.lowlevel.checkpoint()
        while data:
            if self.is_reset:
                raise StreamReset
            if self._is_closed:
                raise StreamClosed
            piece = data[: WINDOW_BYTES - self._unread]
            if not piece:
                await self._changed.wait()
                continue
            data = data[len(piece) :]
            self._unread += len(piece)
            self._later(lambda piece=piece: self._arrive(piece))

    async def read(self, limit: int) -> bytes:
        """Return available bytes, at most `limit`; empty at the end. Raises StreamReset."""
        await trio.lowlevel.checkpoint()
        while not self._buffer:
            if self.is_reset:
                raise StreamReset
            if self._is_ended:
                return b""
            await self._changed.wait()
        found = bytes(self._buffer[:limit])
        del self._buffer[:limit]
        self._unread -= len(found)
        self._tell()
        return found

    def close(self) -> None:
        """Close for writing."""
        if not self._is_closed:
            self._is_closed = True
            self._later(self._end)

    def reset(self) -> None:
        """Drop bytes in transit; both ends fail."""
        self.is_reset = True
        self._buffer.clear()
        self._tell()

    def _later(self, action: Callable[[], None]) -> None:
        def arrive() -> None:
            if self._network.reaches(*self._ends) and not self.is_reset:
                action()

        self._network.call_at(trio.current_time() + self._latency_s, arrive)

    def _arrive(self, piece: bytes) -> None:
        self._buffer += piece
        self._tell()

    def _end(self) -> None:
        self._is_ended = True
        self._tell()


class Stream(NetStream):
    """One end: the muxer's stream and the one above it in one object."""

    def __init__(self, line: Line, protocol: str, inward: Pipe, outward: Pipe) -> None:
        self.muxed_conn: Any = line.muxed_conn
        self.muxed_stream: Any = self
        self._line, self._protocol = line, protocol
        self._inward, self._outward = inward, outward
        line.streams[self] = None

    def get_protocol(self) -> str:
        """The negotiated protocol."""
        return self._protocol

    async def read(self, n: int | None = None) -> bytes:
        """Set the protocol, as `INetStream` does."""
        return await self._inward.read(n if n is not None else WINDOW_BYTES)

    async def write(self, data: bytes) -> None:
        """Return the remote address, as `INetStream` does."""
        await self._outward.write(data)

    def write_now(self, _data: bytes) -> bool:
        """Send nothing: writes wait for their turn."""
        return False

    async def close(self) -> None:
        """Write no more."""
        await trio.lowlevel.checkpoint()
        self._outward.close()

    async def reset(self) -> None:
        """End both directions."""
        await trio.lowlevel.checkpoint()
        self.cut()

    def cut(self) -> None:
        """End both directions at once."""
        self._line.streams.pop(self, None)
        self._inward.reset()
        self._outward.reset()


class _Socket:
    def __init__(self, remote: str, close: Callable[[], None]) -> None:
        self._remote, self._close = remote, close

    def getpeername(self) -> tuple[str, int]:
        return host_and_port(self._remote)

    def setsockopt(self, *_: object) -> None:
        """Ignore lingering: the connection ends at once."""

    def close(self) -> None:
        self._close()


class _Muxed:
    def __init__(self, peer_id: PeerId, socket: _Socket) -> None:
        self.peer_id = to_libp2p_id(peer_id)
        self.event_shutting_down = trio.Event()
        stream: Any = object.__new__(
            trio.SocketStream
        )  # the type that the product looks for below it
        stream.socket = socket
        self.conn = stream

    @property
    def is_closed(self) -> bool:
        return self.event_shutting_down.is_set()


class Line:
    """One host's end of a connection."""

    def __init__(self, peer_id: PeerId, remote: str, close: Callable[[], None]) -> None:
        """`remote` is the other end's transport address; `close` ends the connection."""
        self.muxed_conn = _Muxed(peer_id, _Socket(remote, close))
        self.streams: dict[Stream, None] = {}

    @property
    def is_closed(self) -> bool:
        """True if it has ended."""
        return self.muxed_conn.is_closed

    def end(self) -> None:
        """Mark the connection and its streams as ended."""
        self.muxed_conn.event_shutting_down.set()
        for stream in list(self.streams):
            stream.cut()
