"""Yamux frames between a channel and the muxer, read and written without unnecessary waits.

py-libp2p 0.8.1 acquires a lock and yields to all other tasks at each step of each frame, even if
nothing blocks. Here other tasks run when there is nothing to do, and after `FRAMES_PER_TURN`:

    channel ── a piece ─▶ received bytes ── frame by frame, without waiting ─▶ muxer
    muxer ── a frame, under the write lock ─▶ channel.start_send ── sent at once
                                          └─ partly sent ─▶ a task of the connection sends the
                                             rest, even if the writer is cancelled
"""

from __future__ import annotations

import logging

import trio
from libp2p.io.exceptions import ConnectionClosedError
from libp2p.peer.id import ID
from libp2p.stream_muxer.yamux.yamux import Yamux

from shoal_base.bounded import PIECE_BYTES
from shoal_base.waits import LONG_DEADLINE_S
from shoal_p2p.net.channel import Channel
from shoal_p2p.net.streams import FRAMES_PER_TURN

logger = logging.getLogger(__name__)

BYTES_PER_TURN = 2 * PIECE_BYTES
"""Bytes written before other tasks run."""
_FRAME_COST_BYTES = BYTES_PER_TURN // FRAMES_PER_TURN
"""Minimum cost of a frame in bytes, since a small frame is work too."""


class WriteLock:
    """A lock that is acquired without yielding if it is free, and that any task may release.

    `trio.Lock` always yields first, even if it is free, and five such locks for each frame were
    most of the cost of a delivery. Waiters are served in order and can be cancelled.
    """

    def __init__(self) -> None:
        self._free = trio.Semaphore(1)

    async def acquire(self) -> None:
        """Wait for the lock and acquire it. Does not yield if it is free."""
        if not self.try_acquire():
            await self._free.acquire()

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free, and return whether it was."""
        if not self._free.value:
            return False
        self._free.acquire_nowait()
        return True

    def release(self) -> None:
        """Pass the lock to the longest waiter."""
        self._free.release()

    def locked(self) -> bool:
        """Return whether the lock is held."""
        return not self._free.value


class FramedYamux(Yamux):
    """The muxer's interface to its channel."""

    def __init__(self, below: Channel, peer_id: ID) -> None:
        super().__init__(below, peer_id, is_initiator=below.is_initiator)
        self._below = below
        self._received = bytearray()
        """Bytes read that are not yet part of a frame."""
        self._taken = 0
        self._written = 0
        self._frame_lock = WriteLock()

    async def _header_bytes(self, size: int) -> bytes:
        """Wait for the next bytes and return them. Raises ConnectionClosedError at the end."""
        self._taken += 1
        if self._taken >= FRAMES_PER_TURN:
            self._taken = 0
            await trio.lowlevel.checkpoint()
        while len(self._received) < size:
            await self._receive()
        return self._take(size)

    async def _read_data_body(self, length: int) -> bytes:
        """Return a frame's body. Raises TooSlowError if the rest of it does not arrive in time."""
        if len(self._received) < length:
            with trio.fail_after(LONG_DEADLINE_S):
                while len(self._received) < length:
                    await self._receive()
                    self._check_unread()
        return self._take(length)

    async def _receive(self) -> None:
        piece = await self._below.receive()
        if not piece:
            raise ConnectionClosedError("the peer closed the connection")
        self._taken = 0
        self._received += piece

    def _take(self, size: int) -> bytes:
        with memoryview(self._received) as received:
            found = bytes(received[:size])
        del self._received[:size]
        return found

    def _check_unread(self) -> None:
        """Raise if the connection exceeds its receive-buffer limit."""

    async def _write_frame(self, data: bytes) -> None:
        """Write one frame. If cancelled, it is written completely or not at all.

        Raises:
            ConnectionClosedError: the connection is gone.
        """
        await self._frame_lock.acquire()
        if self._start_send(data):
            await self._maybe_yield(len(data))
        else:
            await self._finish_frame()

    def write_frame_now(self, data: bytes) -> bool:
        """Write one frame without waiting. False if another write is in progress or other tasks
        must run first. A task of the connection sends what the socket does not accept at once.

        Raises:
            ConnectionClosedError: the connection is gone.
        """
        if self._written >= BYTES_PER_TURN or not self._frame_lock.try_acquire():
            return False
        self._written += max(len(data), _FRAME_COST_BYTES)
        if not self._start_send(data):
            self._send_remainder()
        return True

    def _start_send(self, data: bytes) -> bool:
        """Start sending a frame under the write lock. If all of it was sent, release the lock and
        return True."""
        try:
            is_sent = self._below.start_send(data)
        except BaseException:
            self._frame_lock.release()
            raise
        if is_sent:
            self._frame_lock.release()
        return is_sent

    async def _maybe_yield(self, num_bytes: int) -> None:
        self._written += max(num_bytes, _FRAME_COST_BYTES)
        if self._written >= BYTES_PER_TURN:
            self._written = 0
            await trio.lowlevel.checkpoint()

    async def _finish_frame(self) -> None:
        rest = self._send_remainder()
        await rest.done.wait()
        if not rest.is_sent:
            raise ConnectionClosedError("the connection ended in the middle of a frame")

    def _send_remainder(self) -> _FrameRemainder:
        rest = _FrameRemainder(self._below, self._frame_lock)
        try:
            if self._nursery is None:
                raise RuntimeError("the connection has not started")
            self._nursery.start_soon(rest.send)
        except RuntimeError as error:  # not started, or already closed, and the frame is lost
            self._frame_lock.release()
            raise ConnectionClosedError("the connection is not running") from error
        return rest


class _FrameRemainder:
    """The part of a frame that the socket did not accept at once. It holds the write lock."""

    def __init__(self, below: Channel, frame_lock: WriteLock) -> None:
        self._below = below
        self._frame_lock = frame_lock
        self.is_sent = False
        self.done = trio.Event()

    async def send(self) -> None:
        """Send it. Raises only cancellation: the next writer gets the error."""
        try:
            await self._below.flush()
            self.is_sent = True
        except Exception as error:  # noqa: BLE001 - a broken connection may raise anything
            logger.debug("a frame was not finished: %r", error)
        finally:
            self._frame_lock.release()
            self.done.set()
