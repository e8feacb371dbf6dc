"""The node's libp2p host: listens, dials, identifies, pings, answers requests, closes cleanly.

    run ──► swarm ──► attached services (pubsub first) ──► listen ──► started
     ▲                                                                  │
     └── close(): connections under a deadline, then the sockets ◄──────┘

Services start before listening: a pubsub stream that arrives earlier ends py-libp2p.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated
from weakref import WeakValueDictionary

import trio
from libp2p.abc import INetConn, INetStream
from libp2p.custom_types import TProtocol
from libp2p.host.basic_host import BasicHost
from libp2p.host.exceptions import HostException
from libp2p.io.exceptions import IOException
from libp2p.network.exceptions import SwarmException
from multiaddr import Multiaddr  # type: ignore[import-untyped]

from shoal_base.ranges import Range, Ranged
from shoal_base.waits import REPLY_S, SHORT_DEADLINE_S
from shoal_p2p.net.address import (
    PeerAddress,
    from_libp2p_id,
    is_circuit,
    parse_transport,
    to_libp2p_id,
)
from shoal_p2p.net.announced import AnnouncedAddresses, interface_addresses
from shoal_p2p.net.circuit import HOP, CircuitStream
from shoal_p2p.net.connections import ConnectionInfo, ConnectionNotifiee, ConnectionTable, Direction
from shoal_p2p.net.identify import identify
from shoal_p2p.net.identity import Identity
from shoal_p2p.net.interface import Host
from shoal_p2p.net.layers import lowest_layer
from shoal_p2p.net.listen_port import ListenError, check_port_free
from shoal_p2p.net.refusals import DialError, PunchFailedError, dial_error
from shoal_p2p.net.request import (
    RequestError,
    RequestFailure,
    RequestHandler,
    RequestLimits,
    RequestServer,
    exchange,
    ping,
    root_cause,
)
from shoal_p2p.net.streams import Stream
from shoal_p2p.net.swarm import SwarmSettings, build_host
from shoal_p2p.net.yamux import abort, close_connection
from shoal_wire.types import PeerId

__all__ = [
    "ConnectionInfo",
    "DialError",
    "Direction",
    "HostSettings",
    "Libp2pHost",
    "ListenError",
    "RequestError",
    "RequestFailure",
]

if TYPE_CHECKING:
    from trio_typing import TaskStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings(Ranged):
    """Settings of a host: addresses and limits."""

    listen: Annotated[tuple[str, ...], Range("addresses", 0, 64)] = ("/ip4/0.0.0.0/tcp/0",)
    announce: Annotated[tuple[str, ...], Range("addresses", 0, 64)] = ()
    """Transport addresses to announce instead of the interfaces'; empty announces those."""
    agent: Annotated[str, Range("characters", 0, 256)] = ""
    """Agent string for identify; ``shoal/VERSION`` if empty."""
    swarm: SwarmSettings = field(default_factory=SwarmSettings)
    requests: RequestLimits = field(default_factory=RequestLimits)


class Libp2pHost(Host):
    """`Host` over py-libp2p."""

    def __init__(self, *, identity: Identity, settings: HostSettings | None = None) -> None:
        super().__init__(identity)
        self._settings = settings or HostSettings()
        self.announced = AnnouncedAddresses(self._settings.announce)
        """The addresses that this host announces."""
        self._host = build_host(
            identity,
            self._settings.swarm,
            agent=self._settings.agent or f"shoal/{version('shoal')}",
            admission=self._admission,
            relays=self,
            announced=self.announced,
        )
        self.traffic = self._host.get_network().traffic
        self._services: list[Callable[..., Awaitable[None]]] = []
        self._servers: dict[str, RequestServer] = {}
        self._nursery: trio.Nursery | None = None
        self._stop = trio.Event()
        self._stopped = trio.Event()
        self._table = ConnectionTable(self.peer_id)
        self._dialling: WeakValueDictionary[str, trio.Lock] = WeakValueDictionary()
        self._host.get_network().register_notifee(
            ConnectionNotifiee(self.on_connection, self.on_disconnection)
        )

    @property
    def libp2p_host(self) -> BasicHost:
        """py-libp2p's host, for the relay server."""
        return self._host

    def attach_service(self, run: Callable[..., Awaitable[None]]) -> None:
        """Start `run` before the first socket listens, and cancel it when the host stops. `run`
        must call `task_status.started()` once it is ready for peers."""
        self._services.append(run)

    def set_full_callback(self, callback: Callable[[str], None]) -> None:
        self._host.get_network().on_full = callback

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        try:
            async with self._host.run(listen_addrs=[]), trio.open_nursery() as services:
                for service in self._services:
                    await services.start(service)
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    try:
                        await self._listen()
                        task_status.started()
                        await self._stop.wait()
                    finally:
                        self._nursery = None
                        nursery.cancel_scope.cancel()
                        await self._shut_down()
                services.cancel_scope.cancel()
        finally:
            # When cancelled, the library drops connections without closing their sockets.
            for connection in self._table.all_connections():
                abort(connection)
                self.on_disconnection(connection)
            self._stopped.set()

    async def close(self) -> None:
        self._stop.set()
        await self._stopped.wait()

    async def _listen(self) -> None:
        for text in self._settings.listen:
            try:
                address = parse_transport(text)
            except ValueError as error:
                raise ListenError(f"cannot listen on {text}: {error}") from None
            await check_port_free(address)
            if not await self._host.get_network().listen(Multiaddr(address)):
                raise ListenError(f"cannot listen on {address}: the system refused it")

    async def _shut_down(self) -> None:
        with trio.move_on_after(SHORT_DEADLINE_S) as scope:
            scope.shield = True
            async with trio.open_nursery() as nursery:
                for connection in self._host.get_network().get_connections():
                    if isinstance(lowest_layer(connection), CircuitStream):
                        abort(connection)  # its GO_AWAY would race with that of the relay
                        continue
                    nursery.start_soon(close_connection, connection, nursery)
            await self._host.close()

    def listen_addrs(self) -> tuple[str, ...]:
        announced = self.announced.to_announce(map(str, self._host.get_transport_addrs()))
        return tuple(f"{address}/p2p/{self.peer_id}" for address in announced)

    def interface_addrs(self) -> tuple[str, ...]:
        own = interface_addresses(map(str, self._host.get_transport_addrs()))
        return tuple(f"{address}/p2p/{self.peer_id}" for address in own)

    async def serve_circuit(self, stream: INetStream, address: str) -> None:
        """Serve a relayed connection on `stream` until it ends."""
        circuit = CircuitStream(stream, address)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(circuit.watch)
            await self._host.get_network().serve_circuit(circuit)

    async def open_hop(self, relay: str) -> INetStream:
        """Connect to a relay by its full address and open a HOP stream.

        Raises:
            IOException, ValueError: the stream could not be opened.
        """
        try:
            peer_id = await self.dial(relay)
            return await self._host.new_stream(to_libp2p_id(peer_id), [HOP])
        except (DialError, HostException, SwarmException) as error:
            raise IOException(f"no circuit through {relay}: {root_cause(error)}") from error

    def serve_streams(
        self, protocol_id: str, handler: Callable[[PeerId, Stream], Awaitable[None]]
    ) -> None:
        """Serve streams of a protocol. An exception in `handler` resets the stream and is
        logged."""

        async def serve(stream: INetStream) -> None:
            await handler(from_libp2p_id(stream.muxed_conn.peer_id), stream)

        self._host.set_stream_handler(TProtocol(protocol_id), serve)

    async def open_stream(self, peer_id: PeerId, *protocol_ids: str) -> Stream:
        """Open a stream to a connected peer, with the first protocol that it supports. May raise
        any of the library's errors."""
        protocols = [TProtocol(protocol_id) for protocol_id in protocol_ids]
        return await self._host.new_stream(to_libp2p_id(peer_id), protocols)

    async def punch_dial(self, address: str, peer_id: PeerId, *, as_client: bool) -> None:
        """Dial from the listen port. A successful connection appears in the connection table.

        Raises:
            PunchFailedError: no connection, or to another peer.
        """
        swarm = self._host.get_network()
        try:
            stream = await swarm.punch_dial(address)
            if as_client:
                await swarm.as_initiator(stream, to_libp2p_id(peer_id))
                return
        except Exception as error:  # the other end is untrusted
            raise PunchFailedError(repr(error)) from error
        self.start_soon(partial(swarm.as_responder, stream, address))

    def start_soon(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run `task` while the host runs; ignored if it does not."""
        if self._nursery is not None:
            self._nursery.start_soon(task)

    def connections(self) -> tuple[ConnectionInfo, ...]:
        return self._table.snapshot()

    def connected_peers(self) -> frozenset[PeerId]:
        return self._table.peers()

    def is_connected(self, peer_id: PeerId) -> bool:
        return self._table.has(peer_id)

    def peer_addresses(self, peer_id: PeerId) -> tuple[str, ...]:
        return self._table.listen_addresses(peer_id)

    def add_verified_addresses(self, peer_id: PeerId, addresses: Sequence[str]) -> None:
        self._table.add_verified_addresses(peer_id, addresses)

    def observed_address(self, peer_id: PeerId) -> str:
        return self._table.observed_address(peer_id)

    def silent_s(self, peer_id: PeerId) -> float:
        """Return the seconds since a connected peer last sent anything."""
        return self._table.silent_s(peer_id)

    def source_of(self, peer_id: PeerId) -> str:
        return self._table.source_of(peer_id)

    async def _dial(self, target: PeerAddress) -> None:
        at = str(target) if is_circuit(target.transport) else target.transport
        swarm, peer = self._host.get_network(), to_libp2p_id(target.peer_id)
        # Two dials of one side: each end might keep a different connection, and none would be left.
        one_at_a_time = self._dialling.setdefault(str(target), trio.Lock())
        try:
            async with one_at_a_time:
                if not self.is_connected(target.peer_id):
                    await swarm.dial_addr(Multiaddr(at), peer)
        except SwarmException as error:
            if not self.is_connected(target.peer_id):  # otherwise it has dialled this node
                is_open = self._admission.is_open
                raise dial_error(str(target), error, is_open=is_open) from error

    async def disconnect(self, peer_id: PeerId) -> None:
        """Close all connections to `peer_id`: gracefully for two seconds, then by the socket."""
        async with trio.open_nursery() as nursery:
            for connection in self._host.get_network().get_connections(to_libp2p_id(peer_id)):
                nursery.start_soon(close_connection, connection, self._nursery or nursery)
        if (connection := self._table.connection_of(peer_id)) is not None:
            self.on_disconnection(connection)

    def abort(self, peer_id: PeerId) -> None:
        for connection in self._host.get_network().get_connections(to_libp2p_id(peer_id)):
            abort(connection)

    def refused_connections(self) -> dict[str, int]:
        return self._host.get_network().refused

    def set_request_handler(
        self,
        protocol_id: str,
        handler: RequestHandler,
        *,
        max_request_bytes: int,
        limits: RequestLimits | None = None,
        on_sent: Callable[[PeerId, bytes], None] = lambda _peer_id, _request: None,
    ) -> None:
        limits = limits or self._settings.requests
        server = RequestServer(
            handler, max_request_bytes=max_request_bytes, limits=limits, on_sent=on_sent
        )
        self._servers[protocol_id] = server
        self._host.set_stream_handler(TProtocol(protocol_id), server.serve)

    async def _request(
        self, peer_id: PeerId, protocol_id: str, payload: bytes, max_response_bytes: int
    ) -> bytes:
        return await exchange(self._host, peer_id, protocol_id, payload, max_response_bytes)

    async def _ping(self, peer_id: PeerId) -> float:
        return await ping(self._host, peer_id)

    # Both are called in the connection's own task.

    def on_connection(self, connection: INetConn) -> None:
        """Add a new connection to the table, or abort it."""
        peer_id = from_libp2p_id(connection.muxed_conn.peer_id)
        if self._nursery is None or self.is_banned(peer_id):
            abort(connection)
            return
        first = not self._table.has(peer_id)
        surplus = self._table.add(peer_id, connection)
        if surplus is not None:
            # Removed from the swarm's list at once, since it opens streams on dying connections.
            self._host.get_network().remove_conn(surplus)
            if surplus is not connection and isinstance(lowest_layer(surplus), CircuitStream):
                self._nursery.start_soon(_close_later, surplus)  # a direct connection replaces it
            else:
                abort(surplus)
        if surplus is connection:
            return
        self._nursery.start_soon(self._identify, peer_id, connection)
        if first:
            self._notify(self._connected, peer_id)

    def on_disconnection(self, connection: INetConn) -> None:
        """Remove a connection from the table."""
        peer_id = from_libp2p_id(connection.muxed_conn.peer_id)
        if self._table.remove(peer_id, connection):
            self._notify(self._disconnected, peer_id)

    async def _identify(self, peer_id: PeerId, connection: INetConn) -> None:
        with trio.move_on_after(REPLY_S):
            info = await identify(self._host, connection)
            if info is not None:
                self._table.set_identified(peer_id, info)


async def _close_later(circuit: INetConn) -> None:
    """Close a circuit that a direct connection replaces, after data in transit has had time to
    arrive."""
    await trio.sleep(SHORT_DEADLINE_S)
    abort(circuit)
