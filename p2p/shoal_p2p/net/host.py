"""The node's libp2p host: listens, dials, identifies, pings, answers requests, closes cleanly.

    run ──► swarm ──► attached services (pubsub first) ──► listen ──► started
     ▲                                                                  │
     └── close(): connections under a deadline, then the sockets ◄──────┘

Services start before listening: a pubsub stream that arrives earlier ends py-libp2p.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import trio
from libp2p.abc import INetConn, INetStream
from libp2p.custom_types import TProtocol
from libp2p.host.basic_host import BasicHost
from libp2p.host.exceptions import HostException
from libp2p.io.exceptions import IOException
from libp2p.network.exceptions import SwarmException
from libp2p.tools.anyio_service import Service, background_trio_service
from multiaddr import Multiaddr  # type: ignore[import-untyped]

from shoal_p2p.net.address import (
    from_libp2p_id,
    is_circuit,
    parse_peer_address,
    parse_transport,
    to_libp2p_id,
)
from shoal_p2p.net.admission import Admission
from shoal_p2p.net.announced import AnnouncedAddresses, interfaces_of
from shoal_p2p.net.circuit import HOP, CircuitStream
from shoal_p2p.net.connections import ConnectionInfo, ConnectionTable, Direction, Watcher
from shoal_p2p.net.dial_error import DialError, KnockFailedError, dial_error
from shoal_p2p.net.identify import identify
from shoal_p2p.net.identity import Identity
from shoal_p2p.net.layers import lowest_layer
from shoal_p2p.net.own_port import ListenError, refuse_taken_port
from shoal_p2p.net.peerstore import forget_peer
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
from shoal_p2p.net.traffic import Traffic
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

logger = logging.getLogger(__name__)

_SHUTDOWN_DEADLINE_S = 5.0
_IDENTIFY_DEADLINE_S = 10.0
_CIRCUIT_GRACE_S = 2.0  # a guess: by then what is on its way has arrived


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """How the host listens and what it bounds."""

    listen: tuple[str, ...] = ("/ip4/0.0.0.0/tcp/0",)
    announce: tuple[str, ...] = ()
    """Transport addresses told to others in place of the interfaces'; none are those."""
    agent: str = ""
    """Identify's agent string; ``shoal/VERSION`` if empty."""
    swarm: SwarmSettings = field(default_factory=SwarmSettings)
    requests: RequestLimits = field(default_factory=RequestLimits)


class Libp2pHost:
    """One peer on the network. Start with ``await nursery.start(host.run)``."""

    def __init__(self, *, identity: Identity, settings: HostSettings | None = None) -> None:
        self._settings = settings or HostSettings()
        self._admission = Admission()
        self.announced = AnnouncedAddresses(self._settings.announce)
        """Where this host tells others that it can be dialled."""
        self._host = build_host(
            identity,
            self._settings.swarm,
            agent=self._settings.agent or f"shoal/{version('shoal')}",
            admission=self._admission,
            relays=self,
            announced=self.announced,
        )
        self._identity = identity
        self._services: list[Service] = []
        self._connected_callbacks: list[Callable[[PeerId], None]] = []
        self._disconnected_callbacks: list[Callable[[PeerId], None]] = []
        self._servers: dict[str, RequestServer] = {}
        self._nursery: trio.Nursery | None = None
        self._stop = trio.Event()
        self._stopped = trio.Event()
        self._table = ConnectionTable(self.peer_id)
        self._dialling: WeakValueDictionary[str, trio.Lock] = WeakValueDictionary()
        self._host.get_network().register_notifee(
            Watcher(self.on_connection, self.on_disconnection)
        )

    @property
    def peer_id(self) -> PeerId:
        """This node's peer id."""
        return self._identity.peer_id

    @property
    def identity(self) -> Identity:
        """This node's identity, for signing."""
        return self._identity

    @property
    def libp2p_host(self) -> BasicHost:
        """py-libp2p's host, for gossip and the relay server."""
        return self._host

    def attach_service(self, service: Service) -> None:
        """Run `service` between the swarm's start and the first listening socket."""
        self._services.append(service)

    def add_peer_callbacks(
        self,
        *,
        connected: Callable[[PeerId], None] | None = None,
        disconnected: Callable[[PeerId], None] | None = None,
    ) -> None:
        """Call `connected` at a peer's first connection, `disconnected` at the end of its last.

        Both run inside the loop and must return at once.
        """
        if connected:
            self._connected_callbacks.append(connected)
        if disconnected:
            self._disconnected_callbacks.append(disconnected)

    def set_full_callback(self, callback: Callable[[str], None]) -> None:
        """Call ``callback(network)`` when a connection is refused for want of a slot."""
        self._host.get_network().on_full = callback

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until `close` or cancellation; started means listening.

        Raises:
            ListenError: an address is malformed or taken.
        """
        try:
            async with self._host.run(listen_addrs=[]), AsyncExitStack() as stack:
                for service in self._services:
                    await stack.enter_async_context(background_trio_service(service))
                    if ready := getattr(service, "wait_until_ready", None):
                        await ready()
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
        finally:
            # Cancelled, the library forgets connections without closing their sockets.
            for connection in self._table.all_connections():
                abort(connection)
                self.on_disconnection(connection)
            self._stopped.set()

    async def close(self) -> None:
        """Close connections and sockets and wait until `run` has ended."""
        self._stop.set()
        await self._stopped.wait()

    async def _listen(self) -> None:
        for text in self._settings.listen:
            try:
                address = parse_transport(text)
            except ValueError as error:
                raise ListenError(f"cannot listen on {text}: {error}") from None
            await refuse_taken_port(address)
            if not await self._host.get_network().listen(Multiaddr(address)):
                raise ListenError(f"cannot listen on {address}: the system refused it")

    async def _shut_down(self) -> None:
        with trio.move_on_after(_SHUTDOWN_DEADLINE_S) as scope:
            scope.shield = True
            async with trio.open_nursery() as nursery:
                for connection in self._host.get_network().get_connections():
                    if isinstance(lowest_layer(connection), CircuitStream):
                        abort(connection)  # goodbyes would race with that of the relay
                        continue
                    nursery.start_soon(close_connection, connection, nursery)
            await self._host.close()

    def listen_addrs(self) -> tuple[str, ...]:
        """Full multiaddresses that others can dial."""
        told = self.announced.beside(map(str, self._host.get_transport_addrs()))
        return tuple(f"{address}/p2p/{self.peer_id}" for address in told)

    def interface_addrs(self) -> tuple[str, ...]:
        """Full multiaddresses on this machine's own interfaces."""
        own = interfaces_of(map(str, self._host.get_transport_addrs()))
        return tuple(f"{address}/p2p/{self.peer_id}" for address in own)

    async def serve_circuit(self, stream: INetStream, address: str) -> None:
        """Serve a connection that a relay has opened on `stream`, until it ends."""
        circuit = CircuitStream(stream, address)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(circuit.watch)
            await self._host.get_network().serve_circuit(circuit)

    async def open_hop(self, relay: str) -> INetStream:
        """Connect to a relay by its full address and open a stream to it.

        Raises:
            IOException, ValueError: there is no such stream.
        """
        try:
            peer_id = await self.dial(relay)
            return await self._host.new_stream(to_libp2p_id(peer_id), [HOP])
        except (DialError, HostException, SwarmException) as error:
            raise IOException(f"no circuit by {relay}: {root_cause(error)}") from error

    def serve_streams(
        self, protocol_id: str, handler: Callable[[PeerId, Stream], Awaitable[None]]
    ) -> None:
        """Serve streams of a protocol; what `handler` raises resets the stream and is logged."""

        async def serve(stream: INetStream) -> None:
            await handler(from_libp2p_id(stream.muxed_conn.peer_id), stream)

        self._host.set_stream_handler(TProtocol(protocol_id), serve)

    async def open_stream(self, peer_id: PeerId, protocol_id: str) -> Stream:
        """Open a stream to a connected peer. May raise anything of the library's."""
        return await self._host.new_stream(to_libp2p_id(peer_id), [TProtocol(protocol_id)])

    async def knock(self, address: str, peer_id: PeerId, *, as_client: bool) -> None:
        """Dial from the port listened on; the connection appears among the others.

        Raises:
            KnockFailedError: nobody is there, or another peer.
        """
        swarm = self._host.get_network()
        try:
            stream = await swarm.knock(address)
            if as_client:
                await swarm.greet_punched(stream, to_libp2p_id(peer_id))
                return
        except Exception as error:  # whoever is there is a stranger
            raise KnockFailedError(repr(error)) from error
        self.start_soon(partial(swarm.serve_punched, stream, address))

    def start_soon(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run `task` for as long as the host runs; not at all when it does not."""
        if self._nursery is not None:
            self._nursery.start_soon(task)

    def connections(self) -> tuple[ConnectionInfo, ...]:
        """Every live connection."""
        return self._table.snapshot()

    def connected_peers(self) -> frozenset[PeerId]:
        """The peers with at least one live connection."""
        return self._table.peers()

    def is_connected(self, peer_id: PeerId) -> bool:
        """True while `peer_id` has a live connection."""
        return self._table.has(peer_id)

    def peer_addresses(self, peer_id: PeerId) -> tuple[str, ...]:
        """Transport addresses at which `peer_id` says it listens (identify); perhaps none yet."""
        return self._table.listen_addresses(peer_id)

    def note_reached(self, peer_id: PeerId, addresses: Sequence[str]) -> None:
        """This host got in at these transport addresses of a connected peer's, when asked to."""
        self._table.add_reached(peer_id, addresses)

    def remote_address(self, peer_id: PeerId) -> str:
        """The other end of the connection to `peer_id`; empty without one."""
        return self._table.remote_address(peer_id)

    def observed_address(self, peer_id: PeerId) -> str:
        """Where `peer_id` says it sees this node come from (identify); empty if it has not said."""
        return self._table.observed_address(peer_id)

    def source_of(self, peer_id: PeerId) -> str:
        """The network, relay or connection of `peer_id`; empty if it is not connected."""
        return self._table.source_of(peer_id)

    async def dial(self, address: str, *, timeout: float = 10.0) -> PeerId:  # noqa: ASYNC109
        """Connect to one full multiaddress; an existing connection to that peer is enough.

        Raises:
            ValueError: `address` is malformed.
            DialError: no connection within `timeout` seconds, or another peer answered.
        """
        target = parse_peer_address(address)
        if target.peer_id == self.peer_id:
            raise DialError(f"{address} is this node itself")
        if not self.is_admitted(target.peer_id):
            raise DialError(f"{target.peer_id} is not on the swarm's list of peers")
        if self.is_banned(target.peer_id):
            raise DialError(f"{target.peer_id} is banned for now")
        if self.is_connected(target.peer_id):
            return target.peer_id
        at = str(target) if is_circuit(target.transport) else target.transport
        swarm, peer = self._host.get_network(), to_libp2p_id(target.peer_id)
        # Of two connections by one side each end may keep the other one, and then none is left.
        one_at_a_time = self._dialling.setdefault(str(target), trio.Lock())
        try:
            with trio.fail_after(timeout):
                async with one_at_a_time:
                    if not self.is_connected(target.peer_id):
                        await swarm.dial_addr(Multiaddr(at), peer)
        except trio.TooSlowError:
            raise DialError(f"{address} did not answer within {timeout:g} s") from None
        except SwarmException as error:
            if self.is_connected(target.peer_id):  # it has dialled this node, and that one stays
                return target.peer_id
            raise dial_error(address, error) from error
        return target.peer_id

    async def disconnect(self, peer_id: PeerId) -> None:
        """Close every connection to `peer_id`: politely for two seconds, then the socket."""
        async with trio.open_nursery() as nursery:
            for connection in self._host.get_network().get_connections(to_libp2p_id(peer_id)):
                nursery.start_soon(close_connection, connection, self._nursery or nursery)
        for connection in self._table.connections_of(peer_id):
            self.on_disconnection(connection)

    def abort(self, peer_id: PeerId) -> None:
        """Cut every connection to `peer_id` at once."""
        for connection in self._host.get_network().get_connections(to_libp2p_id(peer_id)):
            abort(connection)

    def ban(self, peer_id: PeerId, *, seconds: float) -> None:
        """Cut `peer_id` off and refuse it for `seconds`; a longer ban it has stays."""
        self._admission.ban(peer_id, seconds=seconds, now=trio.current_time())
        self.abort(peer_id)

    @property
    def traffic(self) -> Traffic:
        """Bytes over all sockets since the start."""
        return self._host.get_network().traffic

    def refused_connections(self) -> dict[str, int]:
        """Inbound connections refused before any protocol of ours, by reason, since the start."""
        return self._host.get_network().refused

    def unban(self, peer_id: PeerId) -> None:
        """Let `peer_id` connect again."""
        self._admission.unban(peer_id)

    def admit_only(self, peers: Iterable[PeerId] | None) -> None:
        """Refuse all but `peers` from now on, and cut off who is connected; None admits all."""
        self._admission.admit_only(peers)
        for peer_id in self.connected_peers():
            if not self.is_admitted(peer_id):
                logger.warning("cut off %s: it is not on the swarm's list of peers", peer_id)
                self.abort(peer_id)

    def is_admitted(self, peer_id: PeerId) -> bool:
        """True unless the swarm has a list of peers without `peer_id`."""
        return self._admission.is_admitted(peer_id)

    def is_banned(self, peer_id: PeerId) -> bool:
        """True while a ban of `peer_id` lasts."""
        return self._admission.is_banned(peer_id, trio.current_time())

    def set_request_handler(
        self,
        protocol_id: str,
        handler: RequestHandler,
        *,
        max_request_bytes: int,
        limits: RequestLimits | None = None,
        on_sent: Callable[[PeerId, bytes], None] = lambda _peer_id, _request: None,
    ) -> None:
        """Answer requests of `protocol_id` by ``await handler(peer_id, request)``.

        An exception of the handler, an oversize request or a missed deadline resets the stream.
        """
        limits = limits or self._settings.requests
        server = RequestServer(
            handler, max_request_bytes=max_request_bytes, limits=limits, on_sent=on_sent
        )
        self._servers[protocol_id] = server
        self._host.set_stream_handler(TProtocol(protocol_id), server.serve)

    async def request(
        self,
        peer_id: PeerId,
        protocol_id: str,
        payload: bytes,
        *,
        max_response_bytes: int,
        timeout: float = 10.0,  # noqa: ASYNC109 - one deadline over the whole exchange
    ) -> bytes:
        """Send `payload` to a connected peer and return its answer.

        Raises:
            RequestError: the reason is in `.failure`.
        """
        with self._answers_within(timeout, peer_id, protocol_id):
            return await exchange(self._host, peer_id, protocol_id, payload, max_response_bytes)

    async def ping(self, peer_id: PeerId, *, timeout: float = 5.0) -> float:  # noqa: ASYNC109
        """Return one round trip to a connected peer in milliseconds (libp2p ping).

        Raises:
            RequestError: the reason is in `.failure`.
        """
        with self._answers_within(timeout, peer_id, "a ping"):
            return await ping(self._host, peer_id)

    @contextmanager
    def _answers_within(self, timeout: float, peer_id: PeerId, what: str) -> Iterator[None]:
        if not self.is_connected(peer_id):
            raise RequestError(RequestFailure.NOT_CONNECTED, peer_id)
        with trio.move_on_after(timeout):
            yield
            return
        detail = f"{peer_id} did not answer {what} within {timeout:g} s"
        raise RequestError(RequestFailure.TIMEOUT, detail)

    # Called in the connection's own task.

    def on_connection(self, connection: INetConn) -> None:
        """Take a new connection into the table, or cut it."""
        peer_id = from_libp2p_id(connection.muxed_conn.peer_id)
        if self._nursery is None or self.is_banned(peer_id):
            abort(connection)
            return
        first = not self._table.has(peer_id)
        for surplus in self._table.add(peer_id, connection):
            # Out of the swarm's list at once: it opens streams on connections that are dying.
            self._host.get_network().remove_conn(surplus)
            if surplus is not connection and isinstance(lowest_layer(surplus), CircuitStream):
                self._nursery.start_soon(_let_go, surplus)  # both are direct now
                continue
            abort(surplus)
        if not self._table.holds(connection):
            return
        self._nursery.start_soon(self._identify, peer_id, connection)
        if first:
            _call_all(self._connected_callbacks, peer_id)

    def on_disconnection(self, connection: INetConn) -> None:
        """Forget a connection."""
        peer_id = from_libp2p_id(connection.muxed_conn.peer_id)
        if self._table.remove(peer_id, connection) and not self._table.has(peer_id):
            forget_peer(self._host.get_peerstore(), connection.muxed_conn.peer_id)
            _call_all(self._disconnected_callbacks, peer_id)

    async def _identify(self, peer_id: PeerId, connection: INetConn) -> None:
        with trio.move_on_after(_IDENTIFY_DEADLINE_S):
            about = await identify(self._host, connection)
            if about is not None:
                self._table.set_identity(peer_id, about)


async def _let_go(circuit: INetConn) -> None:
    """End a circuit that its peers need no longer, once what is on its way has had its time."""
    await trio.sleep(_CIRCUIT_GRACE_S)
    abort(circuit)


def _call_all(callbacks: list[Callable[[PeerId], None]], peer_id: PeerId) -> None:
    for callback in callbacks:
        try:
            callback(peer_id)
        except Exception:  # a listener's fault must not cost the connection
            logger.exception("peer callback failed")
