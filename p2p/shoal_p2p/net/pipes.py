"""Byte pipes below a connection's encryption: a socket asked directly, or any stream.

    begin(data) ── the system takes it at once: gone, and no other task has run
         └─ it takes a part, or none ─▶ finish(): the rest, when there is room

Data that was begun goes whole or the pipe is broken: after a part of a message nothing of another
may follow.
"""

from __future__ import annotations

import os

import trio
from libp2p.abc import IRawConnection
from libp2p.io.exceptions import ConnectionClosedError
from libp2p.io.trio import TrioTCPStream
from libp2p.network.connection.raw_connection import RawConnection

from shoal_base.bounded import PIECE_BYTES
from shoal_p2p.net.private import ClearStream, PrivateStream
from shoal_p2p.net.traffic import Traffic


def pipe_below(raw: IRawConnection, traffic: Traffic) -> SocketPipe | StreamPipe:
    """Return the way to the bytes of a connection whose handshake is over.

    Those of a socket are counted in `traffic`.
    """
    keyed = raw.stream if isinstance(raw, RawConnection) else None
    if isinstance(keyed, ClearStream | PrivateStream) and isinstance(keyed.stream, TrioTCPStream):
        return SocketPipe(keyed.stream.stream, keyed, traffic)
    return StreamPipe(raw)


class SocketPipe:
    """TCP. Trio's own send and receive let every other task run each time, also when they could
    go on at once; here the system is asked, and Trio only when it says "not now"."""

    def __init__(
        self,
        stream: trio.SocketStream,
        keyed: ClearStream | PrivateStream,
        traffic: Traffic | None = None,
    ) -> None:
        self._socket = stream.socket
        self._keyed = keyed
        self._rest = memoryview(b"")
        self._traffic = traffic or Traffic()

    async def receive(self) -> bytes:
        """Return what has come, at most a piece of it; none at the end. Raises IOException."""
        if held := self._keyed.take_held():
            await trio.lowlevel.checkpoint()
            return held
        while True:
            try:
                await trio.lowlevel.wait_readable(self._descriptor())
                data = os.read(self._descriptor(), PIECE_BYTES)
                self._traffic.bytes_in += len(data)
                return self._keyed.decipher(data)
            except BlockingIOError:
                continue
            except (OSError, trio.ClosedResourceError) as error:
                raise ConnectionClosedError(str(error), transport="tcp") from error

    def begin(self, data: bytes) -> bool:
        """Send what goes at once; True if that was all. Raises ConnectionClosedError."""
        _refuse_after(self._rest)
        self._rest = memoryview(self._keyed.encipher(data))
        self._push()
        return not self._rest

    async def finish(self) -> None:
        """Send the rest of what was begun. Raises ConnectionClosedError."""
        while self._rest:
            try:
                await trio.lowlevel.wait_writable(self._descriptor())
            except (OSError, trio.ClosedResourceError) as error:
                raise ConnectionClosedError(str(error), transport="tcp") from error
            self._push()

    def _descriptor(self) -> int:
        descriptor = self._socket.fileno()
        if descriptor < 0:
            raise ConnectionClosedError("the connection was closed here", transport="tcp")
        return descriptor

    def _push(self) -> None:
        try:
            num_sent = os.write(self._descriptor(), self._rest)
            self._traffic.bytes_out += num_sent
            self._rest = self._rest[num_sent:]
        except BlockingIOError:
            pass
        except OSError as error:
            raise ConnectionClosedError(str(error), transport="tcp") from error


class StreamPipe:
    """A circuit through a relay, or what else has no socket of its own: never sends at once."""

    def __init__(self, raw: IRawConnection) -> None:
        self._raw = raw
        self._rest = b""

    async def receive(self) -> bytes:
        """Return what has come; none at the end. Raises IOException."""
        return await self._raw.read(PIECE_BYTES)

    def begin(self, data: bytes) -> bool:
        """Keep `data` for `finish`. Raises ConnectionClosedError."""
        _refuse_after(self._rest)
        self._rest = data
        return not data

    async def finish(self) -> None:
        """Send what was begun. Raises IOException."""
        await self._raw.write(self._rest)
        self._rest = b""


def _refuse_after(rest: memoryview | bytes) -> None:
    if rest:
        raise ConnectionClosedError("a part of a message was sent, and never its rest")
