"""The page's web server: the standard library's, a thread for each connection, behind the guard.

    accept ─▶ room? of this address, too? ─▶ head ─▶ guard ─▶ state, curves, groups, health, files
                        no ─▶ the oldest that was not let in yet gives way

A flood of connections would else take every descriptor of the process, with which it asks its
peers. Whoever reaches the port can open connections, but only a reader with the token is let in: so
whatever others hold open, a browser always gets a connection. A reader that does not take what it
asked for is closed. What a connection breaks is that connection.
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
MAX_OF_ONE: Final = 96
"""Connections of one address: eight browsers' worth of six each, twice."""
_MAX_HEAD_BYTES: Final = 16 * 1024  # a browser sends one or two KiB
_STUCK_MS: Final = int(1000 * REPLY_S)
"""Milliseconds after which the kernel ends a connection whose other end takes nothing."""


class BindError(Exception):
    """It cannot listen there; the text is one line."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Visit:
    """A connection that is open."""

    sock: socket.socket
    address: str
    is_let_in: bool = False


class ConnectionRoom:
    """The page's connections, and the bounds on them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._visits: list[_Visit] = []
        """The oldest first."""

    def enter(self, sock: socket.socket, address: str) -> bool:
        """Take a place for one more connection; False where all who are there were let in."""
        with self._lock:
            near = [one for one in self._visits if one.address == address]
            fits = self._fits(near, MAX_OF_ONE) and self._fits(self._visits, MAX_CONNECTIONS)
            if fits:
                self._visits.append(_Visit(sock=sock, address=address))
            return fits

    def let_in(self, sock: socket.socket) -> None:
        """Keep a connection, whoever else comes."""
        with self._lock:
            for visit in self._visits:
                visit.is_let_in |= visit.sock is sock

    def leave(self, sock: socket.socket) -> None:
        """Give the place of a connection back; once more does nothing."""
        with self._lock:
            self._visits = [one for one in self._visits if one.sock is not sock]

    def _fits(self, among: Sequence[_Visit], most: int) -> bool:
        """Return whether there is a place; the oldest connection that was not let in makes one."""
        if len(among) < most:
            return True
        stranger = next((one for one in among if not one.is_let_in), None)
        if stranger is None:
            return False
        self._visits.remove(stranger)
        with contextlib.suppress(OSError):  # gone already
            stranger.sock.shutdown(socket.SHUT_RDWR)
        return True


class PageServer(ThreadingHTTPServer):
    """Listens, and answers what a board shows."""

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
        self.room = ConnectionRoom()
        self.places = threading.BoundedSemaphore(FEW)
        # Each process makes its own token: to the port's next owner a browser still sends the
        # cookie, which is worth nothing then.
        self.rules = Rules(
            host=address.host.lower(),
            token=secrets.token_urlsafe(32),
            cookie=f"shoal_page_{self.server_port}",
            name=name,
        )

    @property
    def url(self) -> str:
        """The address that people open, with the token."""
        rules, port = self.rules, self.server_port
        if rules.name is not None:
            origin = rules.name.origin or f"http://{rules.name.host}:{port}"
            return f"{origin}/?token={rules.token}"
        host = {"0.0.0.0": _own_address(), "::": "::1"}.get(rules.host, rules.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/?token={rules.token}"

    def server_bind(self) -> None:
        """Bind without asking a name server who this is."""
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # connections that it accepts have it, too
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _STUCK_MS)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_port = self.socket.getsockname()[1]

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection; where no descriptor is left, not again at once."""
        try:
            connection, address = self.socket.accept()
        except OSError:
            time.sleep(POLL_S)
            raise
        # A page asks each second, and a reader takes what it asked for.
        connection.settimeout(REPLY_S)
        return connection, address

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Return whether there is room for it."""
        return self.room.enter(request, client_address[0])

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        self.room.leave(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Note what broke a connection, unless its other end did."""
        if not isinstance(error := sys.exc_info()[1], OSError):
            log.warning("a connection broke: %r", error)


class _Head:
    """A connection's bytes, of which the head of a request may have so many and no more."""

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
        # A body would stand unread, and be taken for the next request.
        if self.headers.get("Content-Length", "0") != "0" or self.headers.get("Transfer-Encoding"):
            self.close_connection = True
        if not self.server.places.acquire(blocking=False):
            self._send(in_words(503, "too many requests at once"))
            return
        try:
            self._answer()
        finally:
            self.server.places.release()

    do_HEAD = do_POST = do_PUT = do_DELETE = do_OPTIONS = do_PATCH = do_GET  # noqa: N815

    def _answer(self) -> None:
        path, _, query = self.path.partition("?")
        headers = {one.lower(): ", ".join(self.headers.get_all(one, ())) for one in self.headers}
        asked = PageRequest(method=self.command, path=path, query=query, headers=headers)
        if (no := refusal(asked, self.server.rules)) is not None:
            self._send(no)
            return
        self.server.room.let_in(self.connection)
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
        """Answer what is no request that a browser sends."""
        self.close_connection = True
        self._send(in_words(code, "not a request that this page answers"))

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)


def _why(address: WebAddress, error: OSError) -> str:
    what = error.strerror or str(error)
    return f"cannot serve at {address.host}:{address.port} ({what}): give another --http HOST:PORT"


def _own_address() -> str:
    """Return the address by which this machine goes to others; sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
