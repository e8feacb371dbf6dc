"""The receiving half of Yamux, with enforced windows.

py-libp2p 0.8.1 buffers data beyond a stream's window, doubles windows up to 16 MiB, and reads
frames of 16 MiB before it checks their stream, so a peer whose streams are not read controls this
node's memory. Here each frame is checked by its header, before its body is read:

    header ─▶ beyond its stream's window? ── yes ─▶ the connection is closed
                     │ no
                     ▼
    body ─▶ buffer ─▶ unread bytes of the connection over its limit? ─▶ it is closed
                  └─▶ unread bytes of all connections over theirs? ─▶ the largest is closed

A sender that respects its windows waits, which slows down a peer whose stream is not read. A
stream's reader waits only for bytes, and its writer only for window.
"""

from __future__ import annotations

import logging
import struct
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import trio
from libp2p.peer.id import ID
from libp2p.security.noise.io import MAX_PLAINTEXT_LENGTH
from libp2p.stream_muxer.exceptions import MuxedStreamEOF, MuxedStreamError, MuxedStreamReset
from libp2p.stream_muxer.yamux.yamux import (
    DEFAULT_WINDOW_SIZE,
    FLAG_ACK,
    FLAG_FIN,
    FLAG_RST,
    FLAG_SYN,
    GO_AWAY_NORMAL,
    HEADER_SIZE,
    TYPE_DATA,
    TYPE_GO_AWAY,
    TYPE_PING,
    TYPE_WINDOW_UPDATE,
    YAMUX_HEADER_FORMAT,
    YamuxStream,
)

from shoal_base.bounded import PIECE_BYTES
from shoal_base.waits import SHORT_DEADLINE_S
from shoal_p2p.net.channel import Channel
from shoal_p2p.net.frames import FramedYamux
from shoal_p2p.net.streams import reset_stream

logger = logging.getLogger(__name__)

WINDOW_BYTES: int = DEFAULT_WINDOW_SIZE
"""Bytes that a stream may have unread: Yamux's initial window, which never grows here."""
MAX_UNREAD_BYTES = 8 * 1024 * 1024
"""Limit for one connection: 32 full windows. An honest one has a few half-full windows."""
MAX_TOTAL_UNREAD_BYTES = 8 * MAX_UNREAD_BYTES
"""Limit for all connections together: eight at their own limit, so that memory stays small."""
MAX_BODY_BYTES = MAX_PLAINTEXT_LENGTH - HEADER_SIZE
"""Body of a frame that fits exactly one Noise message."""


class FlowControlError(Exception):
    """The peer sent more than its window allows. One line."""


@dataclass(frozen=True, slots=True)
class _Member:
    network: Hashable
    unread_bytes: Callable[[], int]


class ReceiveBufferLimit:
    """Limits the unread bytes of all connections together. Over the limit, the largest is
    closed."""

    def __init__(self, *, max_bytes: int, on_exceeded: Callable[[Hashable], None]) -> None:
        self._max_bytes = max_bytes
        self._on_exceeded = on_exceeded
        self._members: dict[Hashable, _Member] = {}
        self._recorded: dict[Hashable, int] = {}
        self._total = 0

    def add(
        self, connection: Hashable, *, network: str | None, unread_bytes: Callable[[], int]
    ) -> None:
        """Add a connection. Without a network it counts as a network of its own."""
        self._members[connection] = _Member(network or connection, unread_bytes)

    def remove(self, connection: Hashable) -> None:
        """Remove a connection."""
        self._members.pop(connection, None)
        self._total -= self._recorded.pop(connection, 0)

    def check(self, connection: Hashable, unread_bytes: int) -> None:
        """Record the unread bytes of a connection. Over the limit, close the largest connection of
        the network with the most."""
        if connection not in self._members:
            return
        self._record(connection, unread_bytes)
        if self._total <= self._max_bytes:
            return
        for other, member in self._members.items():  # bytes read since then no longer count
            self._record(other, member.unread_bytes())
        if self._total > self._max_bytes:
            largest = self._find_largest()
            self.remove(largest)
            self._on_exceeded(largest)

    def _record(self, connection: Hashable, unread_bytes: int) -> None:
        self._total += unread_bytes - self._recorded.get(connection, 0)
        self._recorded[connection] = unread_bytes

    def _find_largest(self) -> Hashable:
        of_network: Counter[Hashable] = Counter()
        for connection, unread_bytes in self._recorded.items():
            of_network[self._members[connection].network] += unread_bytes
        return max(
            self._recorded,
            key=lambda one: (of_network[self._members[one].network], self._recorded[one]),
        )


class WindowedStream(YamuxStream):
    """A stream that returns window to the sender as data is read, half a window at a time."""

    conn: WindowedYamux
    closed: bool

    def __init__(self, stream_id: int, conn: WindowedYamux, is_initiator: bool) -> None:
        super().__init__(stream_id, conn, is_initiator)
        self._window_changed = trio.Event()
        self.consume: Callable[[bytes], bool] | None = None
        """Called with data that arrives while `read` waits. It returns True if it has processed
        the data, and False to leave it to the reader. Must not raise."""
        self._is_reader_waiting = False

    async def read(self, n: int | None = None) -> bytes:
        """Wait for data and return at most `n` bytes of it. Always yields to other tasks.

        Raises:
            MuxedStreamEOF, MuxedStreamReset: the stream has ended.
        """
        if n == 0:
            return b""
        buffer = self.conn.stream_buffers.get(self.stream_id)
        if self.recv_closed and not buffer and self.reset_received:
            raise MuxedStreamReset("the stream was reset")
        if buffer:
            await trio.lowlevel.checkpoint()
        while not (data := self._read_buffered(n)):
            event = self.conn.stream_events[self.stream_id]
            self._is_reader_waiting = True
            try:
                await event.wait()
            finally:
                self._is_reader_waiting = False
            if self.stream_id in self.conn.stream_events:
                self.conn.stream_events[self.stream_id] = trio.Event()
        await self._auto_tune_and_send_window_update(bytes_read=len(data))
        return data

    def consume_now(self, data: bytes) -> bool:
        """Offer the next data to `consume`, and return whether it was processed.

        Waking the reader for each frame took a tenth of the cost of a delivery: a task switch and
        another pass of Trio's loop.
        """
        if (
            self.consume is None
            or not self._is_reader_waiting
            or self.conn.stream_events[self.stream_id].is_set()
            or self.recv_window - len(data) <= WINDOW_BYTES // 2  # the reader returns window
            or not self.consume(data)
        ):
            return False
        self.recv_window -= len(data)
        return True

    def _read_buffered(self, n: int | None) -> bytes:
        """Return buffered data, or nothing while the stream is open. Raises at its end."""
        conn = self.conn
        buffer = conn.stream_buffers.get(self.stream_id)
        if buffer is None or conn.event_shutting_down.is_set():
            raise MuxedStreamEOF("the stream has ended")
        if self.reset_received and not (self.recv_closed and buffer):
            raise MuxedStreamReset("the stream was reset")
        if buffer:
            size = len(buffer) if n is None or n < 0 else n
            data = bytes(buffer[:size])
            del buffer[:size]
            if self.closed:
                conn._finalize_stream_locked(self, fully_closed=True)
            return data
        if self.recv_closed:
            raise MuxedStreamEOF("the peer has closed the stream")
        if self.closed:
            raise MuxedStreamReset("the stream is closed")
        return b""

    async def write(self, data: bytes) -> None:
        """Send `data` as the window allows.

        Raises:
            MuxedStreamError: the stream has ended, or its window stayed full for too long.
            ConnectionClosedError: the connection has ended.
        """
        if self.send_closed:
            raise MuxedStreamError("the stream is closed for sending")
        start = 0
        while start < len(data):
            if self.send_window <= 0:
                await self._wait_for_window()
            if self.closed or self.send_closed:
                raise MuxedStreamError("the stream is closed")
            size = min(self.send_window, MAX_BODY_BYTES, len(data) - start)
            self.send_window -= size
            header = _header(TYPE_DATA, 0, self.stream_id, size)
            await self.conn._write_frame(header + data[start : start + size])
            start += size

    def write_now(self, data: bytes) -> bool:
        """Send `data` in one frame if that needs no waiting; otherwise send nothing and return
        False.

        Raises:
            ConnectionClosedError: the connection is gone.
        """
        if self.closed or self.send_closed or len(data) > min(self.send_window, MAX_BODY_BYTES):
            return False
        header = _header(TYPE_DATA, 0, self.stream_id, len(data))
        if not self.conn.write_frame_now(header + data):
            return False
        self.send_window -= len(data)
        return True

    async def _wait_for_window(self) -> None:
        with trio.move_on_after(SHORT_DEADLINE_S):
            while self.send_window <= 0 and not self.closed:
                await self._window_changed.wait()
            return
        raise MuxedStreamError(f"the stream's window stayed full for {SHORT_DEADLINE_S:g} s")

    def wake_writers(self) -> None:
        """Wake waiting writers: the window has grown, or the stream has ended."""
        self._window_changed.set()
        self._window_changed = trio.Event()

    async def _auto_tune_and_send_window_update(self, *, bytes_read: int = 0) -> None:
        unread = len(self.conn.stream_buffers.get(self.stream_id, b""))
        window = WINDOW_BYTES - self.recv_window - unread
        if window >= WINDOW_BYTES // 2 and not self.recv_closed:
            self.recv_window += window
            await self.send_window_update(window)

    async def close(self) -> None:
        """Close both directions and forget the stream, even if the peer never closes its side.

        py-libp2p 0.8.1 keeps a stream until both sides have closed it, so a peer that never does
        would make the connection's state grow with every answered request.
        """
        try:
            await self.close_write()
        except BaseException:  # a FIN that was not sent cannot be sent once the stream is forgotten
            await reset_stream(self)
            raise
        if not self.closed:
            self.recv_closed = self.closed = True
            self.conn.drop_unread(self)
            self.wake_writers()

    async def close_write(self) -> None:
        """Close the sending direction. Reading continues."""
        await super().close()

    async def reset(self) -> None:
        """Reset both directions, and drop unread data."""
        try:
            await super().reset()
        finally:
            self.wake_writers()
            self.conn.drop_unread(self)


class WindowedYamux(FramedYamux):
    """A connection that closes when its peer exceeds a window or the receive-buffer limit."""

    def __init__(
        self,
        below: Channel,
        peer_id: ID,
        *,
        shared_limit: ReceiveBufferLimit | None = None,
    ) -> None:
        super().__init__(below, peer_id)
        self._shared_limit = shared_limit

    async def handle_incoming(self) -> None:
        """Read frames until the connection ends, from either side or by an error."""
        try:
            while not self.event_shutting_down.is_set():
                await self._handle_frame()
        except FlowControlError as error:
            logger.info("closing the connection to %s: %s", self.peer_id, error)
        except Exception as error:  # noqa: BLE001 - a broken connection may raise anything
            logger.debug("connection to %s ended: %r", self.peer_id, error)
        if self._shared_limit is not None:
            self._shared_limit.remove(self)
        await self._cleanup_on_error()

    def unread_bytes(self) -> int:
        """Return the number of bytes received and not read."""
        return sum(map(len, self.stream_buffers.values())) + len(self._received)

    def drop_unread(self, stream: YamuxStream) -> None:
        """Drop unread data of a stream that has ended on this side, and forget the stream."""
        if (event := self.stream_events.get(stream.stream_id)) is not None:
            event.set()
        if buffer := self.stream_buffers.get(stream.stream_id):
            buffer.clear()
        self._finalize_stream_locked(stream, fully_closed=True)

    async def open_stream(self) -> YamuxStream:
        """Open a stream. Raises MuxedStreamError."""
        await self.stream_backlog_semaphore.acquire()
        if self.event_shutting_down.is_set():
            self.stream_backlog_semaphore.release()
            raise MuxedStreamError("Connection is shutting down")
        stream = self._add_stream(self.next_stream_id, is_initiator=True)
        stream._owns_backlog_slot = True
        self.next_stream_id += 2
        try:
            await self._write_frame(_header(TYPE_WINDOW_UPDATE, FLAG_SYN, stream.stream_id))
        except Exception as error:
            self._finalize_stream_locked(stream, fully_closed=True)
            raise MuxedStreamError(f"Failed to send SYN: {error}") from error
        return stream

    def _add_stream(self, stream_id: int, *, is_initiator: bool) -> WindowedStream:
        stream = WindowedStream(stream_id, self, is_initiator)
        self.streams[stream_id] = stream
        self.stream_buffers[stream_id] = bytearray()
        self.stream_events[stream_id] = trio.Event()
        return stream

    async def close(self, error_code: int = GO_AWAY_NORMAL) -> None:
        """Send GO_AWAY, and close the connection with all its streams."""
        with self._waking_writers():
            await super().close(error_code)

    async def _cleanup_on_error(self) -> None:
        with self._waking_writers():
            await super()._cleanup_on_error()

    @contextmanager
    def _waking_writers(self) -> Iterator[None]:
        """Wake writers too: when a connection ends, the library wakes only the readers."""
        streams = list(self.streams)
        ended = [stream for stream_id in streams if (stream := self._find_stream(stream_id))]
        try:
            yield
        finally:
            for stream in ended:
                stream.wake_writers()

    async def _handle_frame(self) -> None:
        header = await self._header_bytes(HEADER_SIZE)
        _version, kind, flags, stream_id, length = struct.unpack(YAMUX_HEADER_FORMAT, header)
        if kind == TYPE_DATA:
            await self._handle_data(flags, stream_id, length)
        elif kind == TYPE_WINDOW_UPDATE:
            stream = await self._stream_for_frame(flags, stream_id)
            if stream is not None:
                stream.send_window += length
                stream.wake_writers()
                await self._apply_flags(stream, flags)
        elif kind == TYPE_PING:
            await self._handle_ping(flags, length)
        elif kind == TYPE_GO_AWAY:
            self.event_shutting_down.set()
        else:
            raise FlowControlError(f"a frame of unknown type {kind}")

    async def _stream_for_frame(self, flags: int, stream_id: int) -> WindowedStream | None:
        """Return the stream of a frame, creating it for SYN; None if it is unknown."""
        known = self._find_stream(stream_id)
        if not flags & FLAG_SYN:
            return known
        if known is None:
            if stream_id == 0 or (stream_id % 2 == 1) == self.is_initiator_value:
                raise FlowControlError(f"stream {stream_id}: the id belongs to this side")
            return self._add_stream(stream_id, is_initiator=False)
        await self._write_frame(_header(TYPE_WINDOW_UPDATE, FLAG_RST, stream_id))
        return None

    def _find_stream(self, stream_id: int) -> WindowedStream | None:
        return cast("WindowedStream | None", self.streams.get(stream_id))

    async def _handle_data(self, flags: int, stream_id: int, length: int) -> None:
        known = self.streams.get(stream_id)
        if flags & FLAG_SYN:
            window = WINDOW_BYTES if known is None else 0
        else:
            window = known.recv_window if known is not None and not known.recv_closed else 0
        if length > window:
            await self._discard_data(known, flags, length)
            return
        data = await self._read_data_body(length) if length else b""
        stream = await self._stream_for_frame(flags, stream_id)
        # The stream may have been reset meanwhile.
        buffer = self.stream_buffers.get(stream_id)
        if stream is None or buffer is None:
            return
        if not flags and not buffer and stream.consume_now(data):
            return
        buffer += data
        stream.recv_window -= length
        await self._apply_flags(stream, flags)
        self._check_unread()

    async def _discard_data(self, known: YamuxStream | None, flags: int, length: int) -> None:
        """Read and discard data for a stream that has ended on this side: the sender may not know
        yet."""
        is_open = known is not None and not known.recv_closed
        if is_open or (flags & FLAG_SYN and known is None) or length > WINDOW_BYTES:
            raise FlowControlError(f"{length} bytes beyond the window of a stream")
        while length:
            piece = min(length, PIECE_BYTES)
            await self._read_data_body(piece)
            length -= piece

    def _check_unread(self) -> None:
        unread_bytes = self.unread_bytes()
        if unread_bytes > MAX_UNREAD_BYTES:
            raise FlowControlError(f"{unread_bytes} bytes unread on {len(self.streams)} streams")
        if self._shared_limit is not None:
            self._shared_limit.check(self, unread_bytes)

    async def _apply_flags(self, stream: WindowedStream, flags: int) -> None:
        """Apply a frame's flags, wake the stream's reader, and deliver a new stream."""
        if flags & FLAG_FIN:
            stream.recv_closed = True
            stream.closed = stream.send_closed
        if flags & FLAG_RST:
            stream.closed = stream.reset_received = True
            if not stream.recv_closed:
                self.stream_buffers[stream.stream_id].clear()
        self.stream_events[stream.stream_id].set()
        if stream.closed:
            stream.wake_writers()
            self._finalize_stream_locked(stream, fully_closed=True)
        if flags & FLAG_SYN:
            if not flags & FLAG_RST:
                await self._write_frame(_header(TYPE_WINDOW_UPDATE, FLAG_ACK, stream.stream_id))
            await self.new_stream_send_channel.send(stream)

    async def _handle_ping(self, flags: int, value: int) -> None:
        if flags & FLAG_SYN:
            await self._write_frame(_header(TYPE_PING, FLAG_ACK, 0, value))
        elif flags & FLAG_ACK:
            self._rtt = trio.current_time() - self._ping_sent_time
            self._ping_event.set()


def _header(kind: int, flags: int, stream_id: int, length: int = 0) -> bytes:
    return struct.pack(YAMUX_HEADER_FORMAT, 0, kind, flags, stream_id, length)
