"""Yamux's frames between a channel and the muxer: taken from what has come, written at once.

py-libp2p 0.8.1 waits for a lock and lets every other task run at each step of each frame, also
where nothing keeps it.  Here others run when there is nothing to do, and after `FRAMES_A_TURN`:

    channel ── a piece ─▶ bytes that have come ── frame by frame, without waiting ─▶ the muxer
    the muxer ── a frame, in turn ─▶ channel.begin ── gone at once
                                          └─ a part of it ─▶ a task of the connection's sends the
                                             rest, whatever becomes of the writer
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
from shoal_p2p.net.streams import FRAMES_A_TURN

logger = logging.getLogger(__name__)

BYTES_A_TURN = 2 * PIECE_BYTES
"""Written at once, before other tasks have a turn."""
_FRAME_COST_BYTES = BYTES_A_TURN // FRAMES_A_TURN
"""Least that a frame counts in bytes: a small one is work too."""


class WriteLock:
    """A lock that is taken at once when it is free, and that any task may give back.

    `trio.Lock` lets every other task run first, also when nobody holds it: five of those in the way
    of each frame were most of what a delivery cost.  Who waits is served in order, and may be
    cancelled while waiting.
    """

    def __init__(self) -> None:
        self._free = trio.Semaphore(1)

    async def acquire(self) -> None:
        """Wait until it is free, and take it. Does not let others run if it is."""
        if not self.take():
            await self._free.acquire()

    def take(self) -> bool:
        """Take it if it is free."""
        if not self._free.value:
            return False
        self._free.acquire_nowait()
        return True

    def release(self) -> None:
        """Give it to who has waited longest."""
        self._free.release()

    def locked(self) -> bool:
        """True while a caller holds it."""
        return not self._free.value


class FramedYamux(Yamux):
    """A muxer's way to its channel."""

    def __init__(self, below: Channel, peer_id: ID) -> None:
        super().__init__(below, peer_id, is_initiator=below.is_initiator)
        self._below = below
        self._come = bytearray()
        """Read, and in no frame yet."""
        self._taken = 0
        self._written = 0
        self._turn = WriteLock()

    async def _header_bytes(self, size: int) -> bytes:
        """Return the next bytes, once they have come. Raises ConnectionClosedError at the end."""
        self._taken += 1
        if self._taken >= FRAMES_A_TURN:
            self._taken = 0
            await trio.lowlevel.checkpoint()
        while len(self._come) < size:
            await self._receive()
        return self._take(size)

    async def _read_data_body(self, length: int) -> bytes:
        """Return a frame's body. Raises TooSlowError where its rest is held back."""
        if len(self._come) < length:
            with trio.fail_after(LONG_DEADLINE_S):
                while len(self._come) < length:
                    await self._receive()
                    self._check_unread()
        return self._take(length)

    async def _receive(self) -> None:
        piece = await self._below.receive()
        if not piece:
            raise ConnectionClosedError("the peer closed the connection")
        self._taken = 0
        self._come += piece

    def _take(self, size: int) -> bytes:
        with memoryview(self._come) as come:
            found = bytes(come[:size])
        del self._come[:size]
        return found

    def _check_unread(self) -> None:
        """Raise if the connection holds more than it may."""

    async def _write_frame(self, data: bytes) -> None:
        """Write one frame. Cancelled, it is written whole or not at all.

        Raises:
            ConnectionClosedError: the connection is gone.
        """
        await self._turn.acquire()
        if self._begin(data):
            await self._let_others_run(len(data))
        else:
            await self._finish_apart()

    def write_frame_now(self, data: bytes) -> bool:
        """Write one frame unless it is another's turn, or others are to run first. What the socket
        does not take at once a task of the connection sends.

        Raises:
            ConnectionClosedError: the connection is gone.
        """
        if self._written >= BYTES_A_TURN or not self._turn.take():
            return False
        self._written += max(len(data), _FRAME_COST_BYTES)
        if not self._begin(data):
            self._send_rest()
        return True

    def _begin(self, data: bytes) -> bool:
        """Write a frame in the turn that was taken; True if that was all, and the turn is over."""
        try:
            is_gone = self._below.begin(data)
        except BaseException:
            self._turn.release()
            raise
        if is_gone:
            self._turn.release()
        return is_gone

    async def _let_others_run(self, num_bytes: int) -> None:
        self._written += max(num_bytes, _FRAME_COST_BYTES)
        if self._written >= BYTES_A_TURN:
            self._written = 0
            await trio.lowlevel.checkpoint()

    async def _finish_apart(self) -> None:
        rest = self._send_rest()
        await rest.over.wait()
        if not rest.is_sent:
            raise ConnectionClosedError("the connection ended in the middle of a frame")

    def _send_rest(self) -> _Rest:
        rest = _Rest(self._below, self._turn)
        try:
            if self._nursery is None:
                raise RuntimeError("the connection has not begun")
            self._nursery.start_soon(rest.send)
        except RuntimeError as error:  # it has not begun, or ended, and this frame with it
            self._turn.release()
            raise ConnectionClosedError("the connection does not run") from error
        return rest


class _Rest:
    """The rest of a frame that the socket did not take at once, and the turn that sends it."""

    def __init__(self, below: Channel, turn: WriteLock) -> None:
        self._below = below
        self._turn = turn
        self.is_sent = False
        self.over = trio.Event()

    async def send(self) -> None:
        """Send it. Raises nothing but cancellation: who writes next learns that it failed."""
        try:
            await self._below.finish()
            self.is_sent = True
        except Exception as error:  # noqa: BLE001 - whatever a broken connection raises
            logger.debug("a frame was not finished: %r", error)
        finally:
            self._turn.release()
            self.over.set()
