"""A simulated host whose protocols use bytes: the real request server and the real gossip.

`SimulatedHost` passes whole requests, and `SimulatedGossip` has no bytes. Here every frame is
written, negotiated, split and read by the real code (`net.request`, `gossip`), over streams of
`simulated_streams`. Nothing below that is real: muxer, encryption and identify have their own
tests.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import trio
from libp2p.host.exceptions import HostException

from shoal_lab.simulation.host import SimulatedHost
from shoal_p2p.gossip.sequence_numbers import SequenceNumbers
from shoal_p2p.net.address import from_libp2p_id
from shoal_p2p.net.connections import Direction
from shoal_p2p.net.request import RequestHandler, RequestLimits, RequestServer, exchange
from shoal_wire.types import PeerId
from tests.support.simulated_streams import Line, Pipe, Stream

if TYPE_CHECKING:
    from trio_typing import TaskStatus

logger = logging.getLogger(__name__)

Serve = Callable[[Any], Awaitable[None]]
EPOCH_S = 1_700_000_000


class StreamedHost(SimulatedHost):
    """The parts of `Libp2pHost` that `Libp2pGossip` and `RequestServer` use."""

    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        self.libp2p_host: Any = _Face(self)
        self.lines: dict[PeerId, Line] = {}
        self.handlers: dict[str, Serve] = {}
        self.servers: dict[str, RequestServer] = {}
        self._libp2p_services: list[Callable[..., Awaitable[None]]] = []

    def attach_service(self, run: Callable[..., Awaitable[None]]) -> None:
        """Run `run` for as long as the host runs."""
        self._libp2p_services.append(run)

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run, with its services."""
        async with trio.open_nursery() as services:
            for service in self._libp2p_services:
                await services.start(service)
            await super().run(task_status=task_status)
            services.cancel_scope.cancel()

    # Connections

    def silent_s(self, peer_id: PeerId) -> float:
        """Return 0: a connection in memory is never idle."""
        return 0.0

    def on_connected(self, peer_id: PeerId, direction: Direction) -> None:
        """Accept a connection."""
        if peer_id not in self.lines:
            other = self.network.host(peer_id)
            remote = other.address if other is not None else "/ip4/0.0.0.0/tcp/0"
            line = Line(peer_id, remote, lambda: self.abort(peer_id))
            self.lines[peer_id] = line
        super().on_connected(peer_id, direction)

    def on_disconnected(self, peer_id: PeerId) -> None:
        """Lose it."""
        if (line := self.lines.pop(peer_id, None)) is not None:
            line.end()
        super().on_disconnected(peer_id)

    # Streams

    async def open(self, peer_id: PeerId, protocols: Sequence[str]) -> Stream:
        """Open a stream after a round trip. Raises HostException."""
        line = self.lines.get(peer_id)
        if line is None:
            raise HostException(f"no connection to {peer_id}")
        await self._travel(peer_id, 2)
        other = self.network.host(peer_id)
        theirs = other.lines.get(self.peer_id) if isinstance(other, StreamedHost) else None
        if theirs is None or not isinstance(other, StreamedHost) or line.is_closed:
            raise HostException(f"the connection to {peer_id} is gone")
        protocol = next((str(p) for p in protocols if str(p) in other.handlers), None)
        if protocol is None:
            raise HostException("protocols not supported")
        there = Pipe(self.network, self.peer_id, peer_id)
        back = Pipe(self.network, peer_id, self.peer_id)
        other.start_soon(_serve, other.handlers[protocol], Stream(theirs, protocol, there, back))
        return Stream(line, protocol, back, there)

    def serve_streams(
        self, protocol_id: str, handler: Callable[[PeerId, Any], Awaitable[None]]
    ) -> None:
        """Serve the protocol as `Libp2pHost` does."""

        async def serve(stream: Any) -> None:
            await handler(from_libp2p_id(stream.muxed_conn.peer_id), stream)

        self.handlers[protocol_id] = serve

    async def open_stream(self, peer_id: PeerId, *protocol_ids: str) -> Stream:
        """Open a stream as `Libp2pHost` does."""
        return await self.open(peer_id, protocol_ids)

    def set_request_handler(
        self,
        protocol_id: str,
        handler: RequestHandler,
        *,
        max_request_bytes: int,
        limits: RequestLimits | None = None,
        on_sent: Callable[[PeerId, bytes], None] = lambda _peer_id, _request: None,
    ) -> None:
        """Serve the protocol as `Libp2pHost` does."""
        server = RequestServer(
            handler,
            max_request_bytes=max_request_bytes,
            limits=limits or RequestLimits(),
            on_sent=on_sent,
        )
        self.servers[protocol_id] = server
        self.handlers[protocol_id] = server.serve

    async def _request(
        self, peer_id: PeerId, protocol_id: str, payload: bytes, max_response_bytes: int
    ) -> bytes:
        return await exchange(self.libp2p_host, peer_id, protocol_id, payload, max_response_bytes)


async def _serve(handler: Serve, stream: Stream) -> None:
    """Reset the stream if its handler raises, as the swarm does."""
    try:
        await handler(stream)
    except Exception as error:  # noqa: BLE001 - a peer's bytes reach any code
        logger.debug("a stream's handler failed: %r", error)
        stream.cut()


class _Face:
    """py-libp2p's host, as gossip uses it."""

    def __init__(self, host: StreamedHost) -> None:
        self._host = host
        self.network = _Network(host)

    def get_network(self) -> Any:
        return self.network

    def set_stream_handler(self, protocol: str, handler: Serve) -> None:
        self._host.handlers[str(protocol)] = handler

    async def new_stream(self, peer_id: Any, protocols: Sequence[str]) -> Stream:
        return await self._host.open(from_libp2p_id(peer_id), protocols)


class _Network:
    def __init__(self, host: StreamedHost) -> None:
        self._host = host

    def get_connections(self, peer_id: Any) -> list[Line]:
        line = self._host.lines.get(from_libp2p_id(peer_id))
        return [line] if line is not None else []


@contextmanager
def virtual_gossip() -> Iterator[None]:
    """Make the real gossip number its messages by Trio's clock."""
    defaults = SequenceNumbers.__init__.__kwdefaults__
    assert defaults is not None
    real = dict(defaults)
    defaults["wall_ns"] = lambda: int((EPOCH_S + trio.current_time()) * 1e9)
    defaults["monotonic_ns"] = lambda: int(trio.current_time() * 1e9)
    try:
        yield
    finally:
        defaults.update(real)
