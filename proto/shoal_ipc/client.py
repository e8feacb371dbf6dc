"""A client of the node's socket: blocking, with deadlines, and made for a node that may be away.

    connected ──fault──▶ waiting (backoff) ──due──▶ connect, hello ──▶ connected

The node may be killed at any time. Every method then raises `NodeUnavailable` at once until the
backoff has run out, and the trainer goes on with what it has. Replies are matched to requests by
id, so an answer that arrives after its deadline cannot be taken for another's.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from shoal_wire import ipc_messages as m
from shoal_wire.errors import FrameError, WireError
from shoal_wire.framing import FrameDecoder, encode_frame
from shoal_wire.ipc import decode_ipc, encode_ipc
from shoal_wire.limits import IPC_VERSION
from shoal_wire.types import GroupId, PeerId

SOCKET_NAME = "node.sock"
_READ_BYTES = 1 << 18
MAX_POSTED = 32
"""Requests in a row whose answers are left unread."""
_FIRST_BACKOFF_SECONDS = 0.1
_MAX_BACKOFF_SECONDS = 2.0

Reply = TypeVar("Reply", bound=m.Body)


class NodeUnavailable(Exception):  # noqa: N818 - a state, not a fault of the caller
    """The node does not answer now; the text is one line and says why."""


class NodeRefused(Exception):  # noqa: N818 - an answer, not a fault
    """The node answered that the request did not take effect."""

    def __init__(self, failure: m.Failure) -> None:
        super().__init__(failure.reason)
        self.retryable = failure.retryable


@dataclass(frozen=True, slots=True, kw_only=True)
class Leases:
    """What the trainer tells the node of itself at every handshake."""

    consumed: tuple[GroupId, ...] = ()
    """Ids whose effect is in the last checkpoint."""
    held: tuple[GroupId, ...] = ()
    """Ids used since then."""


@dataclass(slots=True)
class _Connection:
    sock: socket.socket
    decoder: FrameDecoder = field(default_factory=FrameDecoder)
    frames: list[bytes] = field(default_factory=list)


class NodeClient:
    """One connection to the node, made again by itself. Not for use by several threads."""

    def __init__(
        self,
        path: Path,
        *,
        role: m.Role = m.Role.TRAINER,
        timeout_seconds: float = 30.0,
    ) -> None:
        self._path = path
        self._role = role
        self._timeout = timeout_seconds
        self.leases: Callable[[], Leases] = Leases
        """Asked at every handshake for what the trainer holds."""
        self._connection: _Connection | None = None
        self._request_id = 0
        self._posted = 0
        self._backoff = 0.0
        self._retry_at = 0.0
        self.peer_id: PeerId | None = None
        self.manifest: bytes | None = None
        self.connects = 0

    @property
    def connected(self) -> bool:
        """Whether the last exchange succeeded."""
        return self._connection is not None

    def ensure(self) -> bool:
        """Connect if it is time to; return whether there is a connection."""
        if self._connection is None and time.monotonic() >= self._retry_at:
            try:
                self._connect()
            except NodeUnavailable:
                return False
        return self._connection is not None

    def wait(self, seconds: float) -> bool:
        """Try to connect for at most `seconds`; return whether it succeeded."""
        deadline = time.monotonic() + seconds
        while not self.ensure():
            pause = min(self._retry_at, deadline) - time.monotonic()
            if time.monotonic() >= deadline:
                return False
            time.sleep(max(0.01, pause))
        return True

    def call(self, body: m.Body, reply_type: type[Reply]) -> Reply:
        """Send one request and return its reply.

        Blocks for at most the client's timeout.

        Raises:
            NodeUnavailable: no connection, or it broke; whether the request took effect is
                unknown, so it must be one that can be repeated.
            NodeRefused: the node answered with a failure.
        """
        if not self.ensure() or self._connection is None:
            raise NodeUnavailable(f"no node at {self._path}")
        try:
            return self._exchange(self._connection, body, reply_type)
        except (OSError, WireError) as error:
            self._drop()
            raise NodeUnavailable(f"connection to the node broke: {error}") from None

    def post(self, body: m.Body) -> None:
        """Send one request whose answer does not matter; the next `call` reads past it.

        Every MAX_POSTED-th waits for its answer, so that unread ones stay few.

        Raises:
            NodeUnavailable, NodeRefused: as `call`.
        """
        self._posted += 1
        if self._posted >= MAX_POSTED:
            self.call(body, m.Done)
            return
        if not self.ensure() or self._connection is None:
            raise NodeUnavailable(f"no node at {self._path}")
        try:
            self._send(self._connection, body)
        except (OSError, WireError) as error:
            self._drop()
            raise NodeUnavailable(f"connection to the node broke: {error}") from None

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        if self._connection is not None:
            self._connection.sock.close()
            self._connection = None

    def _connect(self) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(self._timeout)
        try:
            sock.connect(str(self._path))
            connection = _Connection(sock)
            leases = self.leases()
            hello = m.Hello(
                ipc_version=IPC_VERSION,
                role=self._role,
                pid=os.getpid(),
                consumed_ids=leases.consumed,
                held_ids=leases.held,
            )
            reply = self._exchange(connection, hello, m.HelloReply)
        except (OSError, WireError, NodeRefused) as error:
            sock.close()
            self._wait_longer()
            raise NodeUnavailable(f"no node at {self._path}: {error}") from None
        if reply.ipc_version != IPC_VERSION:
            sock.close()
            self._wait_longer()
            raise NodeUnavailable(f"node speaks IPC version {reply.ipc_version}, not {IPC_VERSION}")
        self._connection = connection
        self._backoff = 0.0
        self.connects += 1
        self.peer_id = reply.peer_id
        self.manifest = reply.manifest

    def _exchange(self, connection: _Connection, body: m.Body, reply_type: type[Reply]) -> Reply:
        deadline = time.monotonic() + self._timeout
        self._send(connection, body)
        self._posted = 0
        while True:
            reply = decode_ipc(self._read_frame(connection, deadline))
            if reply.request_id == self._request_id:
                break
        if isinstance(reply.body, m.Failure):
            raise NodeRefused(reply.body)
        if not isinstance(reply.body, reply_type):
            raise FrameError(f"node answered {type(reply.body).__name__}")
        return reply.body

    def _send(self, connection: _Connection, body: m.Body) -> None:
        self._request_id += 1
        frame = m.IpcFrame(request_id=self._request_id, body=body)
        connection.sock.settimeout(self._timeout)
        connection.sock.sendall(encode_frame(encode_ipc(frame)))

    def _read_frame(self, connection: _Connection, deadline: float) -> bytes:
        while not connection.frames:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("no answer in time")
            connection.sock.settimeout(left)
            data = connection.sock.recv(_READ_BYTES)
            if not data:
                raise ConnectionResetError("the node closed the connection")
            connection.frames += connection.decoder.feed(data)
        return connection.frames.pop(0)

    def _drop(self) -> None:
        self.close()
        self._wait_longer()

    def _wait_longer(self) -> None:
        self._backoff = min(_MAX_BACKOFF_SECONDS, max(_FIRST_BACKOFF_SECONDS, self._backoff * 2))
        self._retry_at = time.monotonic() + self._backoff
