"""The node's Unix socket for the trainer and debug CLIs, each with one request at a time.

    accept ─▶ same user? ─▶ hello ─▶ request ─▶ service ─▶ reply ─▶ … ─▶ end: leases are released

Owner only (directory and socket modes, and the peer's credentials are checked). A connection
that breaks the protocol is closed; nothing it sends can harm the node or another connection.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from shoal_base.waits import MINUTE_S, REPLY_S, RETRY_S, SHORT_DEADLINE_S
from shoal_ipc import messages as m
from shoal_ipc.client import READ_BYTES
from shoal_ipc.codec import decode_ipc, encode_ipc
from shoal_p2p.ipc.inspector import InspectorService
from shoal_wire.errors import WireError
from shoal_wire.framing import FrameDecoder, FrameError, encode_frame

if TYPE_CHECKING:
    from trio_typing import TaskStatus

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 32
_MAX_SOCKET_PATH = 100
"""sun_path holds 108 bytes on Linux and 104 on macOS, the closing NUL included."""


class SocketPathError(Exception):
    """No socket can be created at this path; the text says what to do."""


def check_socket_path(path: Path) -> None:
    """Raise SocketPathError if `path` is too long for a socket."""
    if len(os.fsencode(path)) > _MAX_SOCKET_PATH:
        raise SocketPathError(f"{path} is too long for a socket; choose a shorter --data-dir")


class IpcServer:
    """Serves the socket in a node's data directory."""

    def __init__(self, path: Path, service: InspectorService) -> None:
        self._path = path
        self._service = service
        self._next_connection = 0
        self._newest_trainer = 0
        self._open: list[_ClientConnection] = []
        """Oldest first."""

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Ready when the socket accepts."""
        listener = self._bind()
        try:
            async with trio.open_nursery() as nursery:
                task_status.started()
                while True:
                    try:
                        stream, _ = await listener.accept()
                    except OSError as error:  # out of file descriptors: wait for one
                        log.warning("the socket accepts no connection: %s", error)
                        await trio.sleep(RETRY_S)
                        continue
                    if not _same_user(stream) or not self._make_slot():
                        stream.close()
                        continue
                    self._next_connection += 1
                    name = f"connection-{self._next_connection}"
                    connection = _ClientConnection(trio.SocketStream(stream), name)
                    self._open.append(connection)
                    nursery.start_soon(self._serve, connection, self._next_connection)
        finally:
            listener.close()
            with contextlib.suppress(OSError):
                self._path.unlink()

    def _make_slot(self) -> bool:
        """Return whether a slot is free; if need be, close a silent or an idle connection."""
        if len(self._open) < MAX_CONNECTIONS:
            return True
        silent = (one for one in self._open if one.role is None)
        idle = (one for one in self._open if one.is_idle_since(trio.current_time() - MINUTE_S))
        for connection in (*silent, *idle):
            log.debug("%s is closed to free a slot", connection.holder)
            connection.scope.cancel()
            self._open.remove(connection)
            return True
        return False

    def _bind(self) -> trio.socket.SocketType:
        check_socket_path(self._path)
        # The data directory's lock is held: a socket file here is that of a node that crashed.
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        listener = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # The plain call, as trio's awaits. No client can connect before `listen`. A umask would
        # apply to the other threads, too.
        listener._sock.bind(str(self._path))  # type: ignore[attr-defined]
        self._path.chmod(0o600)
        listener.listen(MAX_CONNECTIONS)
        return listener

    def _is_current(self, number: int, role: m.Role) -> bool:
        """Return False for a trainer if a later connection is one: hellos may be out of order."""
        if role is not m.Role.TRAINER:
            return True
        if number < self._newest_trainer:
            return False
        self._newest_trainer = number
        return True

    async def _serve(self, connection: _ClientConnection, number: int) -> None:
        try:
            with connection.scope:
                await connection.serve(self._service, partial(self._is_current, number))
        except (WireError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            log.debug("%s ended: %s", connection.holder, error)
        except trio.TooSlowError:
            log.warning("%s does not read its replies: closed", connection.holder)
        except Exception:  # one connection must not take the node down with it
            log.exception("%s failed", connection.holder)
        finally:
            if connection in self._open:
                self._open.remove(connection)
            connection.close()
            if connection.role is not None:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + SHORT_DEADLINE_S):
                    await self._service.goodbye(connection.holder, connection.role)


class _ClientConnection:
    def __init__(self, stream: trio.SocketStream, holder: str) -> None:
        self._stream = stream
        self._decoder = FrameDecoder()
        self._frames: list[bytes] = []
        self._waiting_since: float | None = trio.current_time()
        """Time since which it has waited for a request; None while one is answered."""
        self.holder = holder
        self.role: m.Role | None = None
        """Role from its hello; None before that."""
        self.scope = trio.CancelScope()
        """Cancelled to free its slot for another connection."""

    def is_idle_since(self, before: float) -> bool:
        """Return whether it has sent no request since `before`, and is not a trainer's."""
        since = self._waiting_since
        return self.role is not m.Role.TRAINER and since is not None and since < before

    def close(self) -> None:
        """Close the socket at once."""
        self._stream.socket.close()

    async def serve(self, service: InspectorService, is_current: Callable[[m.Role], bool]) -> None:
        """Answer requests in order until the other side closes."""
        with trio.fail_after(SHORT_DEADLINE_S):
            first = await self._receive()
        if first is None:
            return
        if not isinstance(first.body, m.Hello):
            raise FrameError("first request is not a hello")
        if first.body.ipc_version != m.IPC_VERSION:
            failure = m.Failure(
                reason=f"IPC version {first.body.ipc_version}: this node speaks {m.IPC_VERSION}"
            )
            await self._send(m.IpcFrame(request_id=first.request_id, body=failure))
            return
        self.role = first.body.role
        greeting: m.Body = m.Failure(reason="a later connection is the trainer's")
        if is_current(self.role):
            greeting = await service.hello(self.holder, first.body)
        await self._send(m.IpcFrame(request_id=first.request_id, body=greeting))
        if isinstance(greeting, m.Failure):
            return
        while (frame := await self._next_request()) is not None:
            reply = await service.handle(self.holder, self.role, frame.body)
            await self._send(m.IpcFrame(request_id=frame.request_id, body=reply))

    async def _next_request(self) -> m.IpcFrame | None:
        self._waiting_since = trio.current_time()
        frame = await self._receive()
        self._waiting_since = None
        return frame

    async def _receive(self) -> m.IpcFrame | None:
        while not self._frames:
            data = await self._stream.receive_some(READ_BYTES)
            if not data:
                return None
            self._frames += self._decoder.feed(data)
        return decode_ipc(self._frames.pop(0))

    async def _send(self, frame: m.IpcFrame) -> None:
        with trio.fail_after(REPLY_S):
            await self._stream.send_all(encode_frame(encode_ipc(frame)))


def _same_user(sock: trio.socket.SocketType) -> bool:
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # there, only the modes of the socket and its directory protect it
    size = struct.calcsize("3i")
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    _, uid, _ = struct.unpack("3i", credentials)
    return bool(uid in (os.geteuid(), 0))
