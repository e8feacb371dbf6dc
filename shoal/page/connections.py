"""Connections of the page: few at a time, fewer of one address, HTTP/1 alone, each for itself.

    accept ─▶ room? of this address, too? ─▶ hypercorn on the one connection ─▶ closed
                        no ─▶ the oldest that was not let in yet gives way

A flood of connections would else take every descriptor of the process, with which it asks its
peers. Whoever reaches the port can open connections, but only a reader with the token is let in: so
whatever others hold open, a browser always gets a connection. A reader that does not take what it
asked for is closed. What a connection breaks is that connection.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NoReturn, cast

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState

from shoal.page.guard import LET_IN

if TYPE_CHECKING:
    from hypercorn.typing import ASGIFramework
    from trio_typing import TaskStatus

log = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 256  # descriptors that a page may take; a guess
MAX_OF_ONE: Final = 96
"""Of one address: eight browsers' worth of six each, twice."""
TAKE_S: Final = 30.0
"""Within so long a reader takes what one answer, or one event, has."""


class OtherHttpError(Exception):
    """Somebody speaks HTTP/2, which no browser does without TLS."""


class Http1Config(Config):
    """Hypercorn's settings, by which a connection that turns to HTTP/2 ends.

    Hypercorn lets one do so by its first bytes or by an upgrade, and keeps it for as long as its
    other end likes, with nothing asked.
    """

    @property
    def h2_max_inbound_frame_size(self) -> NoReturn:  # type: ignore[override]  # a setting there
        """The first setting that such a connection would need."""
        raise OtherHttpError


class _OpenConnection(TCPServer):
    async def protocol_send(self, event: Event) -> None:
        """Send within bounds; hypercorn's waits for its reader, and lets nothing end that."""
        if not isinstance(event, RawData):
            await super().protocol_send(event)
            return
        async with self.send_lock:
            try:
                with trio.fail_after(TAKE_S):
                    await self.stream.send_all(event.data)
            except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
                await self.stream.aclose()
                await self.protocol.handle(Closed())

    async def _read_data(self) -> None:
        """End with its other end; hypercorn's waits for `keep_alive_timeout` with it open."""
        await super()._read_data()
        await self.idle_task.stop()


@dataclass(eq=False, slots=True, kw_only=True)
class Visit:
    """A connection that is open."""

    address: str
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    is_let_in: bool = False

    def let_in(self) -> None:
        """Stay, whoever else comes."""
        self.is_let_in = True


class ConnectionRoom:
    """Which connections there are. Pure, but for the scopes that it cancels."""

    def __init__(self) -> None:
        self.visits: list[Visit] = []
        """Those that are open, the oldest first."""

    def enter(self, address: str) -> Visit | None:
        """Take a place for one more connection; None where all who are there were let in."""
        of_one = [visit for visit in self.visits if visit.address == address]
        if not (self._fits(of_one, MAX_OF_ONE) and self._fits(self.visits, MAX_CONNECTIONS)):
            return None
        visit = Visit(address=address)
        self.visits.append(visit)
        return visit

    def leave(self, visit: Visit) -> None:
        """Give the place of a connection back; once more does nothing."""
        if visit in self.visits:
            self.visits.remove(visit)

    def _fits(self, among: list[Visit], most: int) -> bool:
        """Whether these have a place for one more; the oldest that was not let in makes it."""
        if len(among) < most:
            return True
        oldest = next((visit for visit in among if not visit.is_let_in), None)
        if oldest is None:
            return False
        self.leave(oldest)
        oldest.scope.cancel()
        return True


async def serve_connections(
    app: ASGIFramework,
    config: Config,
    listener: trio.SocketListener,
    stop: Callable[[], Awaitable[None]],
    *,
    task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until `stop` returns; what is still open then has `config.graceful_timeout`.

    `app` calls `scope["state"][LET_IN]()` for a reader that may stay.
    """
    context = WorkerContext(None)
    wrapped = ASGIWrapper(app)
    room = ConnectionRoom()

    async def handle(stream: trio.SocketStream) -> None:
        visit = room.enter(_address(stream))
        if visit is None:
            return
        state = ConnectionState({LET_IN: visit.let_in})
        plain = cast("trio.SSLStream", stream)  # it takes both
        try:
            with visit.scope:
                await _OpenConnection(wrapped, config, context, state, plain)
        except* (OtherHttpError, trio.BusyResourceError):  # the latter hypercorn's, as it closes
            pass
        except* Exception as group:  # noqa: BLE001 - hypercorn's, on what it did not expect
            log.warning("a connection broke: %r", group.exceptions[0])
        finally:
            room.leave(visit)

    async with trio.open_nursery() as connections:
        async with trio.open_nursery() as accepting:
            accepting.start_soon(_accept, handle, listener, connections)
            task_status.started()
            await stop()
            accepting.cancel_scope.cancel()
        await context.terminated.set()
        connections.cancel_scope.deadline = trio.current_time() + config.graceful_timeout


async def _accept(
    handle: Callable[[trio.SocketStream], Awaitable[None]],
    listener: trio.SocketListener,
    connections: trio.Nursery,
) -> None:
    await trio.serve_listeners(handle, [listener], handler_nursery=connections)


def _address(stream: trio.SocketStream) -> str:
    try:
        return str(stream.socket.getpeername()[0])
    except OSError:  # gone already
        return ""
