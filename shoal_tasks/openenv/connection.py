"""A connection to an OpenEnv server: HTTP by h11, WebSocket by wsproto, over a blocking socket.

Every wait has a deadline and every read a limit. All failures are `ServerUnavailable`: they say
nothing about the game or about the sender of the task.
"""

from __future__ import annotations

import socket
import ssl
import time
from typing import Any, Final

import h11
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    CloseConnection,
    Message,
    Ping,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.utilities import ProtocolError

from shoal_base.bounded import PIECE_BYTES
from shoal_base.waits import POLL_S, SHORT_DEADLINE_S
from shoal_tasks.errors import ServerUnavailable
from shoal_tasks.openenv.address import ServerAddress
from shoal_tasks.openenv.forms import NotAnActionError
from shoal_tasks.openenv.messages import (
    EnvironmentRaisedError,
    OpenEnvError,
    SessionLimitError,
    StepResult,
    parse_reply,
    read_json,
    reset_message,
    step_message,
)
from shoal_tasks.turns import MAX_TRANSCRIPT_CHARS

ANSWER_S: Final = SHORT_DEADLINE_S
"""Maximum wait for one reply, and for a connection, in seconds."""
MAX_ANSWER_BYTES: Final = 16 * MAX_TRANSCRIPT_CHARS
"""Maximum bytes of a reply: the characters of one game, up to twelve bytes each in JSON, and the
message around them."""


class ResolvedServer:
    """A server's address, resolved before the sandbox: its numeric addresses and the trusted
    certificates."""

    def __init__(self, address: ServerAddress, text: str) -> None:
        """Resolve the name. Raises `ServerUnavailable`."""
        self.address = address
        self.text = text
        try:
            found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise unavailable(text, error) from None
        self.sockets = [(family, place) for family, _, _, _, place in found]
        self.context = ssl.create_default_context() if address.is_encrypted else None


def unavailable(text: str, why: object) -> ServerUnavailable:
    """Return the error for a server that cannot be used now."""
    if isinstance(why, TimeoutError):
        why = "it does not answer in time"
    elif isinstance(why, OSError):
        why = why.strerror or why
    return ServerUnavailable(f"the OpenEnv server at {text} cannot be used: {why}")


class _BoundedSocket:
    """A connected socket with a deadline and a limit of bytes for each reply."""

    def __init__(self, place: ResolvedServer) -> None:
        """Connect. Raises OSError."""
        self._deadline = time.monotonic() + ANSWER_S
        self._left = MAX_ANSWER_BYTES
        self._socket = self._connect(place)

    def _connect(self, place: ResolvedServer) -> socket.socket:
        refused: OSError | None = None
        for family, where in place.sockets:
            one = socket.socket(family, socket.SOCK_STREAM)
            try:
                one.settimeout(self._seconds())
                one.connect(where)
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if place.context is None:
                    return one
                return place.context.wrap_socket(one, server_hostname=place.address.host)
            except OSError as error:
                one.close()
                refused = error
        raise refused or OSError("it has no address")

    def expect(self) -> None:
        """Begin a new reply, with a new deadline and limit."""
        self._deadline = time.monotonic() + ANSWER_S
        self._left = MAX_ANSWER_BYTES

    def send(self, data: bytes) -> None:
        """Write all of `data`. Raises OSError, or TimeoutError after the deadline."""
        self._socket.settimeout(self._seconds())
        self._socket.sendall(data)

    def read(self) -> bytes:
        """Return the available bytes; empty at the end. Raises OSError and `OpenEnvError`."""
        self._socket.settimeout(self._seconds())
        data = self._socket.recv(PIECE_BYTES)
        self._left -= len(data)
        if self._left < 0:
            raise OpenEnvError(f"a reply of more than {MAX_ANSWER_BYTES} bytes")
        return data

    def close(self) -> None:
        self._socket.close()

    def _seconds(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def get_json(place: ResolvedServer, path: str) -> dict[str, Any]:
    """Return the JSON object at a path of the server. Raises `ServerUnavailable`."""
    try:
        line = _BoundedSocket(place)
        try:
            return read_json(_get(line, place.address, path))
        finally:
            line.close()
    except (OSError, h11.ProtocolError, OpenEnvError) as error:
        raise unavailable(place.text, error) from None


def _get(line: _BoundedSocket, address: ServerAddress, path: str) -> bytes:
    protocol = h11.Connection(our_role=h11.CLIENT)
    headers = [
        ("Host", address.host_header),
        ("Accept", "application/json"),
        ("Accept-Encoding", "identity"),
        ("Connection", "close"),
    ]
    request = h11.Request(method="GET", target=f"{address.path}{path}", headers=headers)
    line.send((protocol.send(request) or b"") + (protocol.send(h11.EndOfMessage()) or b""))
    body = bytearray()
    while True:
        event = protocol.next_event()
        if event is h11.NEED_DATA:
            protocol.receive_data(line.read())
        elif isinstance(event, h11.Response) and event.status_code != 200:
            raise OpenEnvError(f"{path} answers {event.status_code}")
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            return bytes(body)
        elif isinstance(event, h11.ConnectionClosed):
            raise OpenEnvError(f"{path} ends in the middle")


class Session:
    """One session: a private environment on the server, until the connection ends."""

    def __init__(self, place: ResolvedServer) -> None:
        """Connect; retry for a while if all sessions are in use. Raises `ServerUnavailable`."""
        self._place = place
        self._line: _BoundedSocket | None = None
        deadline = time.monotonic() + ANSWER_S
        while True:
            try:
                self._open()
                self._check_capacity()
                return
            except SessionLimitError:
                self.close()
                if time.monotonic() > deadline:
                    why = "all its sessions are in use: start it with max_concurrent_envs = 4"
                    raise unavailable(place.text, why) from None
                time.sleep(POLL_S)
            except (OSError, ProtocolError, OpenEnvError) as error:
                self.close()
                raise unavailable(place.text, error) from None
            except BaseException:
                self.close()
                raise

    def reset(self, seed: int) -> StepResult:
        """Begin an episode. Raises as `step`."""
        return self._exchange(reset_message(seed))

    def step(self, action: dict[str, Any]) -> StepResult:
        """Take an action.

        Raises:
            ServerUnavailable: the session has ended.
            NotAnActionError, EnvironmentRaisedError: the session continues.
        """
        return self._exchange(step_message(action))

    @property
    def is_open(self) -> bool:
        """True until the session has ended."""
        return self._line is not None

    def close(self) -> None:
        """End the session."""
        line, self._line = self._line, None
        if line is not None:
            line.close()

    def _exchange(self, message: str) -> StepResult:
        try:
            return self._request(message)
        except (OSError, ProtocolError, OpenEnvError, SessionLimitError) as error:
            self.close()
            raise unavailable(self._place.text, error or "its session has ended") from None

    def _check_capacity(self) -> None:
        """Send one request: a server without a free session refuses only then."""
        try:
            self._request(reset_message(0))
        except ConnectionError:
            # The server closes the connection, possibly before its error message arrives.
            raise SessionLimitError from None
        except (NotAnActionError, EnvironmentRaisedError) as error:
            raise OpenEnvError(f"it cannot be reset: {error}") from None

    def _open(self) -> None:
        self._line = line = _BoundedSocket(self._place)
        self._protocol = WSConnection(ConnectionType.CLIENT)
        address = self._place.address
        request = Request(host=address.host_header, target=f"{address.path}/ws")
        line.send(self._protocol.send(request))
        while True:
            self._receive(line)
            for event in self._protocol.events():
                if isinstance(event, AcceptConnection):
                    return
                if isinstance(event, RejectConnection):
                    raise OpenEnvError(f"/ws answers {event.status_code}")

    def _request(self, text: str) -> StepResult:
        assert self._line is not None
        self._line.expect()
        self._line.send(self._protocol.send(Message(data=text)))
        parts: list[str] = []
        while True:
            for event in self._protocol.events():
                if isinstance(event, Ping):
                    self._line.send(self._protocol.send(event.response()))
                elif isinstance(event, CloseConnection):
                    raise OpenEnvError("it closed the session")
                elif isinstance(event, TextMessage):
                    parts.append(event.data)
                    if event.message_finished:
                        return parse_reply("".join(parts))
                elif isinstance(event, Message):
                    raise OpenEnvError("a reply that is not text")
            self._receive(self._line)

    def _receive(self, line: _BoundedSocket) -> None:
        data = line.read()
        if not data:
            raise OpenEnvError("it closed the connection")
        self._protocol.receive_data(data)
