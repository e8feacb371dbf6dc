"""Serves the page by the standard library's web server: one thread for each connection.

    accept ─▶ limits, in total and by address ─▶ head ─▶ guard ─▶ pages, files
                 reached ─▶ the oldest unauthorized connection is closed

Without limits a flood of connections would take every descriptor of the process, which it also
needs to reach its peers. Any client can open a connection, but only one with the token is
authorized, and others make room for it: so a browser always gets a connection. A client that does
not read its answer is disconnected. An error in a connection ends only that connection.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import secrets
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, BinaryIO, Final

from shoal.page.answers import Pages
from shoal.page.board import Board
from shoal.page.guard import HEADERS, PageReply, PageRequest, Rules, in_words, refusal
from shoal_base.bounded import FEW
from shoal_base.waits import POLL_S, REPLY_S
from shoal_settings.web_address import WebAddress, WebName

log = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 256  # descriptors that a page may take; a guess
MAX_PER_ADDRESS: Final = 96
"""Connections of one address: of 16 browsers with six each."""
_MAX_HEAD_BYTES: Final = 16 * 1024  # a browser sends one or two KiB
_STUCK_MS: Final = int(1000 * REPLY_S)
"""Milliseconds after which the kernel ends a connection whose other end reads nothing."""


class BindError(Exception):
    """It cannot listen there; the text is one line."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Connection:
    """An open connection."""

    sock: socket.socket
    address: str
    is_authorized: bool = False


class OpenConnections:
    """The page's open connections, and their limits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: list[_Connection] = []
        """The oldest first."""

    def enter(self, sock: socket.socket, address: str) -> bool:
        """Add a connection; False if the limit is reached and all open ones are authorized."""
        with self._lock:
            near = [one for one in self._connections if one.address == address]
            fits = self._fits(near, MAX_PER_ADDRESS) and self._fits(
                self._connections, MAX_CONNECTIONS
            )
            if fits:
                self._connections.append(_Connection(sock=sock, address=address))
            return fits

    def authorize(self, sock: socket.socket) -> None:
        """Protect a connection from being closed for a newer one."""
        with self._lock:
            for one in self._connections:
                one.is_authorized |= one.sock is sock

    def leave(self, sock: socket.socket) -> None:
        """Remove a connection; does nothing if it is not there."""
        with self._lock:
            self._connections = [one for one in self._connections if one.sock is not sock]

    def _fits(self, among: Sequence[_Connection], most: int) -> bool:
        """Return whether there is a slot; closes the oldest unauthorized connection for one."""
        if len(among) < most:
            return True
        oldest = next((one for one in among if not one.is_authorized), None)
        if oldest is None:
            return False
        self._connections.remove(oldest)
        with contextlib.suppress(OSError):  # closed already
            oldest.sock.shutdown(socket.SHUT_RDWR)
        return True


class PageServer(ThreadingHTTPServer):
    """Listens, and answers from a board."""

    daemon_threads = True
    request_queue_size = 32  # browsers of a household; a guess

    def __init__(self, board: Board, address: WebAddress, name: WebName | None = None) -> None:
        """Listen, at another port where the default is taken. Raises BindError."""
        self.address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        try:
            super().__init__((address.host, address.port), _Handler)
        except OSError as error:
            if not (address.may_move and error.errno == errno.EADDRINUSE):
                raise BindError(_why(address, error)) from None
            super().__init__((address.host, 0), _Handler)
        self.pages = Pages(board)
        self.limits = OpenConnections()
        self.request_slots = threading.BoundedSemaphore(FEW)
        # Each process makes its own token: a browser also sends the cookie to the port's next
        # owner, for which it is useless.
        self.rules = Rules(
            host=address.host.lower(),
            token=secrets.token_urlsafe(32),
            cookie=f"shoal_page_{self.server_port}",
            name=name,
        )

    @property
    def url(self) -> str:
        """The address to open, with the token."""
        rules, port = self.rules, self.server_port
        if rules.name is not None:
            origin = rules.name.origin or f"http://{rules.name.host}:{port}"
            return f"{origin}/?token={rules.token}"
        host = {"0.0.0.0": _own_address(), "::": "::1"}.get(rules.host, rules.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/?token={rules.token}"

    def server_bind(self) -> None:
        """Bind without a DNS lookup of the own name."""
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # accepted connections inherit it
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _STUCK_MS)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_port = self.socket.getsockname()[1]

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection; wait for a moment if no descriptor is left."""
        try:
            connection, address = self.socket.accept()
        except OSError:
            time.sleep(POLL_S)
            raise
        # A page sends a request each second and reads the answers.
        connection.settimeout(REPLY_S)
        return connection, address

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Return whether there is a slot for it."""
        return self.limits.enter(request, client_address[0])

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        self.limits.leave(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log the error of a connection, unless it is one of the network."""
        if not isinstance(error := sys.exc_info()[1], OSError):
            log.warning("error in a connection: %r", error)


class _Head:
    """Reads a request's head from a connection, up to a size limit."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.left = _MAX_HEAD_BYTES

    def readline(self, limit: int = -1) -> bytes:
        line = self._file.readline(self.left if limit < 0 else min(limit, self.left))
        self.left -= len(line)
        if not self.left:
            raise ConnectionError("the head of a request is too long")
        return line

    def close(self) -> None:
        self._file.close()


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"
    rfile: Any

    def setup(self) -> None:
        super().setup()
        self.rfile = _Head(self.rfile)

    def handle_one_request(self) -> None:
        self.rfile.left = _MAX_HEAD_BYTES
        super().handle_one_request()

    def do_GET(self) -> None:
        # An unread body would be parsed as the next request.
        if self.headers.get("Content-Length", "0") != "0" or self.headers.get("Transfer-Encoding"):
            self.close_connection = True
        if not self.server.request_slots.acquire(blocking=False):
            self._send(in_words(503, "too many requests at once"))
            return
        try:
            self._answer()
        finally:
            self.server.request_slots.release()

    do_HEAD = do_POST = do_PUT = do_DELETE = do_OPTIONS = do_PATCH = do_GET  # noqa: N815

    def _answer(self) -> None:
        path, _, query = self.path.partition("?")
        headers = {one.lower(): ", ".join(self.headers.get_all(one, ())) for one in self.headers}
        request = PageRequest(method=self.command, path=path, query=query, headers=headers)
        if (refused := refusal(request, self.server.rules)) is not None:
            self._send(refused)
            return
        self.server.limits.authorize(self.connection)
        self._send(self.server.pages.answer(path, query))

    def _send(self, answer: PageReply) -> None:
        self.send_response_only(answer.status)
        length = {"Content-Type": answer.media_type, "Content-Length": str(len(answer.body))}
        for name, value in {**length, **HEADERS, **answer.headers}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a malformed request."""
        self.close_connection = True
        self._send(in_words(code, "not a request that this page answers"))

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)


def _why(address: WebAddress, error: OSError) -> str:
    what = error.strerror or str(error)
    return f"cannot serve at {address.host}:{address.port} ({what}): give another --http HOST:PORT"


def _own_address() -> str:
    """Return the source address of outgoing packets; sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
