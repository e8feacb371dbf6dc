"""Yamux's receiving half, with windows that are kept.

py-libp2p 0.8.1 appends whatever comes past a stream's window, doubles windows up to 16 MiB, and
reads frames of 16 MiB before it looks whose they are: who is not read makes the node hold what it
likes.  Here each frame is weighed by its header, before its body is read:

    header ─▶ past its stream's window? ── yes ─▶ the connection is cut
                     │ no
                     ▼
    body ─▶ buffer ─▶ all unread of the connection over its bound? ─▶ it is cut
                  └─▶ all connections together over theirs? ─▶ that of the greediest network is

A sender that keeps to its windows waits, which is what holds a peer back whose stream is not read.
A stream's reader and writer wait for bytes and for room, and for nothing else.
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
"""Bytes that a stream may send unread: yamux's initial window, which no stream outgrows."""
MAX_UNREAD_BYTES = 8 * 1024 * 1024
"""Bound of one connection: 32 full windows, where an honest one has some few half full."""
MAX_UNREAD_OF_ALL_BYTES = 8 * MAX_UNREAD_BYTES
"""Bound of all connections together: eight at their own bound, so that memory stays small."""
MAX_BODY_BYTES = MAX_PLAINTEXT_LENGTH - HEADER_SIZE
"""Body of a frame that is exactly one message of noise."""


class OverrunError(Exception):
    """The peer sent more than it was given room for; one line."""


@dataclass(frozen=True, slots=True)
class _Holder:
    network: Hashable
    held: Callable[[], int]


class ReceiveBufferLimit:
    """Counts what all connections hold unread; over the bound it cuts the one that holds most."""

    def __init__(self, *, max_bytes: int, cut: Callable[[Hashable], None]) -> None:
        self._max_bytes = max_bytes
        self._cut = cut
        self._members: dict[Hashable, _Holder] = {}
        self._noted: dict[Hashable, int] = {}
        self._total = 0

    def joined(self, connection: Hashable, *, network: str | None, held: Callable[[], int]) -> None:
        """A connection has begun; one of no network is a network of its own."""
        self._members[connection] = _Holder(network or connection, held)

    def left(self, connection: Hashable) -> None:
        """A connection has ended."""
        self._members.pop(connection, None)
        self._total -= self._noted.pop(connection, 0)

    def check(self, connection: Hashable, held: int) -> None:
        """Note what a connection holds, and cut the greediest if that is too much for all."""
        if connection not in self._members:
            return
        self._note(connection, held)
        if self._total <= self._max_bytes:
            return
        for other, member in self._members.items():  # what has been read since is no burden
            self._note(other, member.held())
        if self._total > self._max_bytes:
            greediest = self._greediest()
            self.left(greediest)
            self._cut(greediest)

    def _note(self, connection: Hashable, held: int) -> None:
        self._total += held - self._noted.get(connection, 0)
        self._noted[connection] = held

    def _greediest(self) -> Hashable:
        of_network: Counter[Hashable] = Counter()
        for connection, held in self._noted.items():
            of_network[self._members[connection].network] += held
        return max(
            self._noted,
            key=lambda one: (of_network[self._members[one].network], self._noted[one]),
        )


class WindowedStream(YamuxStream):
    """A stream that gives back the room that was read, half a window at a time."""

    conn: WindowedYamux
    closed: bool

    def __init__(self, stream_id: int, conn: WindowedYamux, is_initiator: bool) -> None:
        super().__init__(stream_id, conn, is_initiator)
        self._grown = trio.Event()

    async def read(self, n: int | None = None) -> bytes:
        """Return what has come, at most `n` bytes, and wait for it. Lets others run.

        Raises:
            MuxedStreamEOF, MuxedStreamReset: it has ended.
        """
        if n == 0:
            return b""
        buffer = self.conn.stream_buffers.get(self.stream_id)
        if self.recv_closed and not buffer and self.reset_received:
            raise MuxedStreamReset("the stream was reset")
        if buffer:
            await trio.lowlevel.checkpoint()
        while not (data := self._take(n)):
            event = self.conn.stream_events[self.stream_id]
            await event.wait()
            if self.stream_id in self.conn.stream_events:
                self.conn.stream_events[self.stream_id] = trio.Event()
        await self._auto_tune_and_send_window_update(bytes_read=len(data))
        return data

    def _take(self, n: int | None) -> bytes:
        """Return what is there; none while the stream goes on. Raises at its end."""
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
        """Send `data`, as the peer makes room for it.

        Raises:
            MuxedStreamError: the stream has ended, or there is no room for too long.
            ConnectionClosedError: the connection has.
        """
        if self.send_closed:
            raise MuxedStreamError("the stream is closed for sending")
        start = 0
        while start < len(data):
            if self.send_window <= 0:
                await self._wait_for_room()
            if self.closed or self.send_closed:
                raise MuxedStreamError("the stream is closed")
            size = min(self.send_window, MAX_BODY_BYTES, len(data) - start)
            self.send_window -= size
            header = _header(TYPE_DATA, 0, self.stream_id, size)
            await self.conn._write_frame(header + data[start : start + size])
            start += size

    def write_now(self, data: bytes) -> bool:
        """Send `data` in one frame if that needs no waiting; else send nothing and return False.

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

    async def _wait_for_room(self) -> None:
        with trio.move_on_after(SHORT_DEADLINE_S):
            while self.send_window <= 0 and not self.closed:
                await self._grown.wait()
            return
        raise MuxedStreamError(f"no room in the stream's window for {SHORT_DEADLINE_S:g} s")

    def wake_writers(self) -> None:
        """The window has grown, or the stream has ended."""
        self._grown.set()
        self._grown = trio.Event()

    async def _auto_tune_and_send_window_update(self, *, bytes_read: int = 0) -> None:
        unread = len(self.conn.stream_buffers.get(self.stream_id, b""))
        room = WINDOW_BYTES - self.recv_window - unread
        if room >= WINDOW_BYTES // 2 and not self.recv_closed:
            self.recv_window += room
            await self.send_window_update(room)

    async def close(self) -> None:
        """Say that no more is sent, and read no more: what the peer leaves open is forgotten.

        py-libp2p 0.8.1 keeps a stream until both sides have closed it, so a peer that never does
        made its end of the connection grow with every request that was answered.
        """
        try:
            await self.close_write()
        except BaseException:  # what was not said cannot be said once it is forgotten here
            await reset_stream(self)
            raise
        if not self.closed:
            self.recv_closed = self.closed = True
            self.conn.drop_unread(self)
            self.wake_writers()

    async def close_write(self) -> None:
        """Say that no more is sent; what comes is read on."""
        await super().close()

    async def reset(self) -> None:
        """End both directions; nobody reads what has come."""
        try:
            await super().reset()
        finally:
            self.wake_writers()
            self.conn.drop_unread(self)


class WindowedYamux(FramedYamux):
    """A connection that is cut when its peer sends past a window or makes it hold too much."""

    def __init__(
        self,
        below: Channel,
        peer_id: ID,
        *,
        of_all: ReceiveBufferLimit | None = None,
    ) -> None:
        super().__init__(below, peer_id)
        self._of_all = of_all

    async def handle_incoming(self) -> None:
        """Read frames until the connection ends, by either side or by a fault in it."""
        try:
            while not self.event_shutting_down.is_set():
                await self._take_frame()
        except OverrunError as error:
            logger.info("cutting the connection of %s: %s", self.peer_id, error)
        except Exception as error:  # noqa: BLE001 - whatever a broken connection raises
            logger.debug("connection of %s ended: %r", self.peer_id, error)
        if self._of_all is not None:
            self._of_all.left(self)
        await self._cleanup_on_error()

    def unread_bytes(self) -> int:
        """Return what has come and nobody has read."""
        return sum(map(len, self.stream_buffers.values())) + len(self._come)

    def drop_unread(self, stream: YamuxStream) -> None:
        """Forget what came on a stream that has ended here, and the stream with it."""
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
        """Say goodbye, and end the connection with all its streams."""
        with self._waking_writers():
            await super().close(error_code)

    async def _cleanup_on_error(self) -> None:
        with self._waking_writers():
            await super()._cleanup_on_error()

    @contextmanager
    def _waking_writers(self) -> Iterator[None]:
        """The library forgets the streams of a connection that ends, and wakes readers alone."""
        streams = list(self.streams)
        ended = [stream for stream_id in streams if (stream := self._known(stream_id))]
        try:
            yield
        finally:
            for stream in ended:
                stream.wake_writers()

    async def _take_frame(self) -> None:
        header = await self._header_bytes(HEADER_SIZE)
        _version, kind, flags, stream_id, length = struct.unpack(YAMUX_HEADER_FORMAT, header)
        if kind == TYPE_DATA:
            await self._take_data(flags, stream_id, length)
        elif kind == TYPE_WINDOW_UPDATE:
            stream = await self._stream_of(flags, stream_id)
            if stream is not None:
                stream.send_window += length
                stream.wake_writers()
                await self._conclude(stream, flags)
        elif kind == TYPE_PING:
            await self._take_ping(flags, length)
        elif kind == TYPE_GO_AWAY:
            self.event_shutting_down.set()
        else:
            raise OverrunError(f"a frame of the unknown type {kind}")

    async def _stream_of(self, flags: int, stream_id: int) -> WindowedStream | None:
        """Return the stream of a frame, a new one if it says so; None if there is none."""
        known = self._known(stream_id)
        if not flags & FLAG_SYN:
            return known
        if known is None:
            if stream_id == 0 or (stream_id % 2 == 1) == self.is_initiator_value:
                raise OverrunError(f"stream {stream_id}, which is not the peer's to open")
            return self._add_stream(stream_id, is_initiator=False)
        await self._write_frame(_header(TYPE_WINDOW_UPDATE, FLAG_RST, stream_id))
        return None

    def _known(self, stream_id: int) -> WindowedStream | None:
        return cast("WindowedStream | None", self.streams.get(stream_id))

    async def _take_data(self, flags: int, stream_id: int, length: int) -> None:
        known = self.streams.get(stream_id)
        if flags & FLAG_SYN:
            room = WINDOW_BYTES if known is None else 0
        else:
            room = known.recv_window if known is not None and not known.recv_closed else 0
        if length > room:
            await self._take_what_has_no_room(known, flags, length)
            return
        data = await self._read_data_body(length) if length else b""
        stream = await self._stream_of(flags, stream_id)
        # It may have been reset while its data came.
        buffer = self.stream_buffers.get(stream_id)
        if stream is None or buffer is None:
            return
        buffer += data
        stream.recv_window -= length
        await self._conclude(stream, flags)
        self._check_unread()

    async def _take_what_has_no_room(
        self, known: YamuxStream | None, flags: int, length: int
    ) -> None:
        """Read past what comes for a stream that has ended here: its sender may not know yet."""
        is_open = known is not None and not known.recv_closed
        if is_open or (flags & FLAG_SYN and known is None) or length > WINDOW_BYTES:
            raise OverrunError(f"{length} bytes past the window of a stream")
        while length:
            piece = min(length, PIECE_BYTES)
            await self._read_data_body(piece)
            length -= piece

    def _check_unread(self) -> None:
        held = self.unread_bytes()
        if held > MAX_UNREAD_BYTES:
            raise OverrunError(f"{held} bytes unread on {len(self.streams)} streams")
        if self._of_all is not None:
            self._of_all.check(self, held)

    async def _conclude(self, stream: WindowedStream, flags: int) -> None:
        """Act on a frame's flags and wake the stream's reader; hand on a stream that is new."""
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

    async def _take_ping(self, flags: int, value: int) -> None:
        if flags & FLAG_SYN:
            await self._write_frame(_header(TYPE_PING, FLAG_ACK, 0, value))
        elif flags & FLAG_ACK:
            self._rtt = trio.current_time() - self._ping_sent_time
            self._ping_event.set()


def _header(kind: int, flags: int, stream_id: int, length: int = 0) -> bytes:
    return struct.pack(YAMUX_HEADER_FORMAT, 0, kind, flags, stream_id, length)
