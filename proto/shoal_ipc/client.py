"""A client of the node's socket: blocking, with deadlines, and made for a node that may be away.

    connected ──fault──▶ waiting (backoff) ──due──▶ connect, hello ──▶ connected

The node may be killed at any time. Every method then raises `NodeUnavailable` at once until the
backoff has run out, and the trainer goes on with what it has. Replies are matched to requests by
id, so an answer that arrives after its deadline cannot be taken for another's.

Three ways to ask: `call` waits for the answer; `send` returns a ticket by which it is read later;
`post` is for answers that do not matter. What is sent without waiting must have short answers:
they lie unread in the socket, and a node that cannot write ends the connection.
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
"""Most bytes that either side takes from the socket at once."""
MAX_UNREAD = 32
"""Requests in a row whose answers are left unread by `post`."""

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
    """The leases that the trainer states at every handshake."""

    consumed: tuple[GroupId, ...] = ()
    """Ids whose effect is in the last checkpoint."""
    held: tuple[GroupId, ...] = ()
    """Ids used since then."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """A claim to the answer of a sent request. It is worth nothing on another connection."""

    request_id: int
    deadline: float
    """Time by which the answer must be there, by `time.monotonic`."""


@dataclass(slots=True)
class _Connection:
    sock: socket.socket
    decoder: FrameDecoder = field(default_factory=FrameDecoder)
    frames: list[bytes] = field(default_factory=list)
    answers: dict[int, m.Body | None] = field(default_factory=dict)
    """Answers by request; None until an answer that `send` expects has come."""
    last_read: int = 0
    """The newest request that was answered; the node answers in order."""


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
        with self._connected() as connection:
            return self._exchange(connection, body, reply_type)

    def inspect(self, view: str, **options: Any) -> dict[str, Any]:
        """Return the node's answer for a debug view, as JSON values.

        Raises:
            NodeUnavailable, NodeRefused: as `call`.
            ValueError: the answer is no JSON object.
        """
        asked = m.Inspect(view=view, options_json=json.dumps(options))
        found = json.loads(self.call(asked, m.InspectReply).json)
        if not isinstance(found, dict):
            raise ValueError(f"view {view!r} is no object")
        return found

    def send(self, body: m.Body) -> Ticket:
        """Send one request and return at once; its answer must be short, and be asked for.

        Raises:
            NodeUnavailable: no connection, or it broke.
        """
        with self._connected() as connection:
            self._send(connection, body)
            connection.answers[self._request_id] = None
        return Ticket(self._request_id, time.monotonic() + self._timeout)

    def answered(self, ticket: Ticket) -> bool:
        """Return whether `answer` would return, or raise, at once. Reads what has come."""
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
        """Wait for the answer to a sent request, at most until the ticket's deadline.

        Raises:
            NodeUnavailable: the connection broke since; whether the request took effect is
                unknown.
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
        """Send one request whose short answer does not matter; it is read past later.

        When MAX_UNREAD answers are missing it waits for its own, so that unread ones stay few.

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
        """Give the connection; where it breaks meanwhile it is given up. Raises NodeUnavailable."""
        if not self.ensure() or self._connection is None:
            raise NodeUnavailable(f"no node at {self._path}")
        try:
            yield self._connection
        except (OSError, WireError) as error:
            raise self._broken(error) from None

    def _connect(self) -> None:
        try:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:  # no descriptor is left
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
        """Read until this request's answer, keeping those that tickets are out for."""
        while True:
            reply = decode_ipc(self._read_frame(connection, deadline))
            connection.last_read = reply.request_id
            if reply.request_id == request_id:
                return reply.body
            if reply.request_id in connection.answers:
                connection.answers[reply.request_id] = reply.body

    def _read_arrived(self, connection: _Connection) -> None:
        """Read what lies in the socket, without waiting."""
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
        """Give the connection up, for a while; return what to raise."""
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
