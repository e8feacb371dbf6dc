"""Listening and serving: a socket of our own, hypercorn on Trio behind the guard.

bind (another port where the default is taken) ─▶ connections ─▶ guard ─▶ Starlette
"""

from __future__ import annotations

import errno
import secrets
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import trio

from shoal.page.app import make_app
from shoal.page.board import Board
from shoal.page.connections import Http1Config, serve_connections
from shoal.page.guard import Guard, Rules
from shoal_settings.web_address import WebAddress, WebName

if TYPE_CHECKING:
    from hypercorn.typing import ASGIFramework
    from trio_typing import TaskStatus

_BACKLOG: Final = 32  # browsers of a household; a guess
_STUCK_MS: Final = 10_000
"""After so long the kernel ends a connection whose other end takes nothing."""
_END_S: Final = 1.0  # a guess: an answer on loopback is done by then
_KEEP_ALIVE_S: Final = 30.0  # a page asks each second
_MAX_HEAD_BYTES: Final = 16 * 1024  # a browser sends one or two KiB


class BindError(Exception):
    """It cannot listen there; the text is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Where the page is reached."""

    sock: socket.socket
    host: str
    port: int
    token: str
    """The token that opens it. Each process makes its own: to the port's next owner a browser still
    sends the cookie, which is worth nothing then."""

    name: WebName | None = None
    """How browsers reach it otherwise than by its address."""

    @property
    def url(self) -> str:
        """The address that people open, with the token."""
        if self.name is not None:
            origin = self.name.origin or f"http://{self.name.host}:{self.port}"
            return f"{origin}/?token={self.token}"
        host = {"0.0.0.0": _own_address(), "::": "[::1]"}.get(self.host, self.host)
        host = f"[{host}]" if ":" in host and not host.startswith("[") else host
        return f"http://{host}:{self.port}/?token={self.token}"


def open_door(address: WebAddress, name: WebName | None = None) -> Door:
    """Listen; raises BindError where that cannot be."""
    try:
        sock = _bound(address.host, address.port)
    except OSError as error:
        if not (address.may_move and error.errno == errno.EADDRINUSE):
            raise BindError(_why(address, error)) from None
        try:
            sock = _bound(address.host, 0)
        except OSError as again:
            raise BindError(_why(address, again)) from None
    port = sock.getsockname()[1]
    token = secrets.token_urlsafe(32)
    return Door(sock=sock, host=address.host, port=port, token=token, name=name)


async def serve_board(
    board: Board,
    door: Door,
    stop: Callable[[], Awaitable[None]],
    *,
    task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until `stop` returns; what is still open then has a second."""
    config = Http1Config()
    config.include_server_header = False
    config.graceful_timeout = _END_S
    config.keep_alive_timeout = _KEEP_ALIVE_S
    config.h11_max_incomplete_size = _MAX_HEAD_BYTES
    config.accesslog = config.errorlog = None
    rules = Rules(
        host=door.host.lower(),
        token=door.token,
        cookie=f"shoal_page_{door.port}",
        name=door.name,
    )
    guard = cast("ASGIFramework", Guard(make_app(board), rules))
    listener = trio.SocketListener(trio.socket.from_stdlib_socket(door.sock))
    await serve_connections(guard, config, listener, stop, task_status=task_status)


def _bound(host: str, port: int) -> socket.socket:
    family, kind, number, _, where = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, number)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # connections that it accepts have it, too
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _STUCK_MS)
        sock.bind(where)
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


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
