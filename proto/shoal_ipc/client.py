"""A blocking client of the node's socket, with deadlines, for a node that may be unavailable.

    connected ──fault──▶ waiting (backoff) ──due──▶ connect, hello ──▶ connected

The node may be killed at any time. Every method then raises `NodeUnavailable` at once until the
backoff has run out, and the trainer continues with what it has. Replies are matched to requests
by id, so that a reply that arrives after its deadline is never mistaken for another request's.

There are three ways to send a request: `call` waits for the reply; `send` returns a ticket with
which to read it later; `post` ignores it. Use the latter two only for requests with short replies:
these stay unread in the socket, and a node that cannot write ends the connection.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from shoal_base.bounded import PIECE_BYTES
from shoal_base.waits import POLL_S, RETRY_S
from shoal_ipc import messages as m
from shoal_ipc.codec import decode_ipc, encode_ipc
from shoal_wire.errors import WireError
from shoal_wire.framing import FrameDecoder, FrameError, encode_frame
from shoal_wire.types import GroupId, PeerId

SOCKET_NAME = "node.sock"
READ_BYTES = 4 * PIECE_BYTES
"""Most bytes that either side reads from the socket at once."""
MAX_UNREAD = 32
"""Consecutive requests whose replies `post` leaves unread."""

Reply = TypeVar("Reply", bound=m.Body)


class NodeUnavailable(Exception):  # noqa: N818 - a state, not a fault of the caller
    """The node does not answer now. The message is one line with the reason."""


class NodeRefused(Exception):  # noqa: N818 - a reply, not a fault
    """The node replied that the request had no effect."""

    def __init__(self, failure: m.Failure) -> None:
        super().__init__(failure.reason)
        self.retryable = failure.retryable


@dataclass(frozen=True, slots=True, kw_only=True)
class Leases:
    """The leases that the trainer reports at every handshake."""

    consumed: tuple[GroupId, ...] = ()
    """Ids whose effect is in the last checkpoint."""
    held: tuple[GroupId, ...] = ()
    """Ids used since then."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """A handle for the reply to a sent request, valid on one connection only."""

    request_id: int
    deadline: float
    """The time at which the reply is due, by `time.monotonic`."""


@dataclass(slots=True)
class _Connection:
    sock: socket.socket
    decoder: FrameDecoder = field(default_factory=FrameDecoder)
    frames: list[bytes] = field(default_factory=list)
    answers: dict[int, m.Body | None] = field(default_factory=dict)
    """Replies by request id; None while a reply that `send` expects has not arrived."""
    last_read: int = 0
    """The newest request with a reply; the node replies in order."""


class NodeClient:
    """One connection to the node, which reconnects by itself. Not thread-safe."""

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
        """Called at every handshake for the trainer's leases."""
        self._connection: _Connection | None = None
        self._request_id = 0
        self._backoff = 0.0
        self._retry_at = 0.0
        self.peer_id: PeerId | None = None
        self.manifest: bytes | None = None
        self.connects = 0

    @property
    def connected(self) -> bool:
        """True if the last exchange succeeded."""
        return self._connection is not None

    def ensure(self) -> bool:
        """Connect if a try is due; return whether there is a connection."""
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
        with self._connected() as connection:
            return self._exchange(connection, body, reply_type)

    def inspect(self, view: str, **options: Any) -> dict[str, Any]:
        """Return a debug view, as JSON values.

        Raises:
            NodeUnavailable, NodeRefused: as `call`.
            ValueError: the reply is not a JSON object.
        """
        request = m.Inspect(view=view, options_json=json.dumps(options))
        found = json.loads(self.call(request, m.InspectReply).json)
        if not isinstance(found, dict):
            raise ValueError(f"view {view!r} is not a JSON object")
        return found

    def send(self, body: m.Body) -> Ticket:
        """Send one request and return at once. Its reply must be short, and be read by `answer`.

        Raises:
            NodeUnavailable: no connection, or it broke.
        """
        with self._connected() as connection:
            self._send(connection, body)
            connection.answers[self._request_id] = None
        return Ticket(self._request_id, time.monotonic() + self._timeout)

    def answered(self, ticket: Ticket) -> bool:
        """Read what has arrived; return whether `answer` would return, or raise, at once."""
        connection = self._connection
        if connection is None or ticket.request_id not in connection.answers:
            return True
        try:
            self._read_arrived(connection)
            if connection.answers[ticket.request_id] is None:
                if time.monotonic() < ticket.deadline:
                    return False
                raise TimeoutError("no answer in time")
        except (OSError, WireError) as error:
            self._broken(error)
        return True

    def answer(self, ticket: Ticket, reply_type: type[Reply]) -> Reply:
        """Wait for the reply to a sent request, at most until the ticket's deadline.

        Raises:
            NodeUnavailable: the connection broke meanwhile; whether the request took effect
                is unknown.
            NodeRefused: the node answered with a failure.
        """
        connection = self._connection
        if connection is None or ticket.request_id not in connection.answers:
            raise NodeUnavailable("the connection broke before the answer")
        try:
            body = connection.answers.pop(ticket.request_id)
            if body is None:
                body = self._read_answer(connection, ticket.request_id, ticket.deadline)
            return _checked(body, reply_type)
        except (OSError, WireError) as error:
            raise self._broken(error) from None

    def post(self, body: m.Body) -> None:
        """Send one request whose short reply does not matter; it is discarded later.

        If MAX_UNREAD replies are missing, it waits for its own, which bounds the unread ones.

        Raises:
            NodeUnavailable, NodeRefused: as `call`.
        """
        with self._connected() as connection:
            if self._request_id - connection.last_read >= MAX_UNREAD:
                self._read_arrived(connection)
            if self._request_id - connection.last_read >= MAX_UNREAD:
                self._exchange(connection, body, m.Ok)
            else:
                self._send(connection, body)

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        if self._connection is not None:
            self._connection.sock.close()
            self._connection = None

    @contextlib.contextmanager
    def _connected(self) -> Iterator[_Connection]:
        """Provide the connection, and close it on an error. Raises NodeUnavailable."""
        if not self.ensure() or self._connection is None:
            raise NodeUnavailable(f"no node at {self._path}")
        try:
            yield self._connection
        except (OSError, WireError) as error:
            raise self._broken(error) from None

    def _connect(self) -> None:
        try:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:  # out of file descriptors
            self._wait_longer()
            raise NodeUnavailable(f"no node at {self._path}: {error}") from None
        sock.settimeout(self._timeout)
        try:
            sock.connect(str(self._path))
            connection = _Connection(sock)
            leases = self.leases()
            hello = m.Hello(
                ipc_version=m.IPC_VERSION,
                role=self._role,
                pid=os.getpid(),
                consumed_ids=leases.consumed,
                held_ids=leases.held,
            )
            reply = self._exchange(connection, hello, m.HelloReply)
            if reply.ipc_version != m.IPC_VERSION:
                spoken = f"IPC version {reply.ipc_version}, not {m.IPC_VERSION}"
                raise FrameError(f"the node speaks {spoken}")
        except (OSError, WireError, NodeRefused) as error:
            sock.close()
            self._wait_longer()
            raise NodeUnavailable(f"no node at {self._path}: {error}") from None
        self._connection = connection
        self._backoff = 0.0
        self.connects += 1
        self.peer_id = reply.peer_id
        self.manifest = reply.manifest

    def _exchange(self, connection: _Connection, body: m.Body, reply_type: type[Reply]) -> Reply:
        deadline = time.monotonic() + self._timeout
        self._send(connection, body)
        return _checked(self._read_answer(connection, self._request_id, deadline), reply_type)

    def _read_answer(self, connection: _Connection, request_id: int, deadline: float) -> m.Body:
        """Read until this request's reply, and store those that have tickets."""
        while True:
            reply = decode_ipc(self._read_frame(connection, deadline))
            connection.last_read = reply.request_id
            if reply.request_id == request_id:
                return reply.body
            if reply.request_id in connection.answers:
                connection.answers[reply.request_id] = reply.body

    def _read_arrived(self, connection: _Connection) -> None:
        """Read what the socket has, without waiting."""
        connection.sock.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            while data := connection.sock.recv(READ_BYTES):
                connection.frames += connection.decoder.feed(data)
            raise ConnectionResetError("the node closed the connection")
        for frame in connection.frames:
            reply = decode_ipc(frame)
            connection.last_read = reply.request_id
            if reply.request_id in connection.answers:
                connection.answers[reply.request_id] = reply.body
        connection.frames.clear()

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
            data = connection.sock.recv(READ_BYTES)
            if not data:
                raise ConnectionResetError("the node closed the connection")
            connection.frames += connection.decoder.feed(data)
        return connection.frames.pop(0)

    def _broken(self, error: Exception) -> NodeUnavailable:
        """Close the connection and back off; return the exception to raise."""
        self.close()
        self._wait_longer()
        return NodeUnavailable(f"connection to the node broke: {error}")

    def _wait_longer(self) -> None:
        self._backoff = min(RETRY_S, max(POLL_S, self._backoff * 2))
        self._retry_at = time.monotonic() + self._backoff


def _checked(body: m.Body, reply_type: type[Reply]) -> Reply:
    if isinstance(body, m.Failure):
        raise NodeRefused(body)
    if not isinstance(body, reply_type):
        raise FrameError(f"node answered {type(body).__name__}")
    return body
