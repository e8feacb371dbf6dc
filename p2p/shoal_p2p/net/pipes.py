"""Byte pipes below a connection's encryption: a socket used directly, or any stream.

    start_send(data) ── the system accepts all of it: sent, and no other task has run
         └─ it accepts a part, or none ─▶ flush(): the rest, when the socket is writable

Data is sent completely or the pipe is broken: nothing may follow a partial message.
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
    """Return the pipe for a connection whose handshake is over.

    Bytes of a socket are counted in `traffic`.
    """
    keyed = raw.stream if isinstance(raw, RawConnection) else None
    if isinstance(keyed, ClearStream | PrivateStream) and isinstance(keyed.stream, TrioTCPStream):
        return SocketPipe(keyed.stream.stream, keyed, traffic)
    return StreamPipe(raw)


class SocketPipe:
    """A pipe over TCP. Trio's own send and receive always yield to other tasks, even if they need
    not wait; here Trio is used only if the system call would block."""

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
        """Wait for data and return at most one piece of it; empty at the end. Raises
        IOException."""
        if buffered := self._keyed.take_buffered():
            await trio.lowlevel.checkpoint()
            return buffered
        while True:
            try:
                await trio.lowlevel.wait_readable(self._descriptor())
                data = os.read(self._descriptor(), PIECE_BYTES)
                self._traffic.bytes_in += len(data)
                return self._keyed.decrypt(data)
            except BlockingIOError:
                continue
            except (OSError, trio.ClosedResourceError) as error:
                raise ConnectionClosedError(str(error), transport="tcp") from error

    def start_send(self, data: bytes) -> bool:
        """Send what is possible without waiting; True if that was all. Raises
        ConnectionClosedError."""
        _refuse_after(self._rest)
        self._rest = memoryview(self._keyed.encrypt(data))
        self._push()
        return not self._rest

    async def flush(self) -> None:
        """Send the rest of the pending data. Raises ConnectionClosedError."""
        while self._rest:
            try:
                await trio.lowlevel.wait_writable(self._descriptor())
            except (OSError, trio.ClosedResourceError) as error:
                raise ConnectionClosedError(str(error), transport="tcp") from error
            self._push()

    def _descriptor(self) -> int:
        descriptor = self._socket.fileno()
        if descriptor < 0:
            raise ConnectionClosedError("the connection was closed by this node", transport="tcp")
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
    """A pipe over a relayed circuit, or another stream without a socket. Always needs `flush`."""

    def __init__(self, raw: IRawConnection) -> None:
        self._raw = raw
        self._rest = b""

    async def receive(self) -> bytes:
        """Wait for data and return it; empty at the end. Raises IOException."""
        return await self._raw.read(PIECE_BYTES)

    def start_send(self, data: bytes) -> bool:
        """Keep `data` for `flush`. Raises ConnectionClosedError."""
        _refuse_after(self._rest)
        self._rest = data
        return not data

    async def flush(self) -> None:
        """Send the pending data. Raises IOException."""
        await self._raw.write(self._rest)
        self._rest = b""


def _refuse_after(rest: memoryview | bytes) -> None:
    if rest:
        raise ConnectionClosedError("an earlier message was sent only in part")
