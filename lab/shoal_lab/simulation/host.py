"""One peer's end of the simulated network: `shoal_p2p.net.interface.Host` without sockets.

The cost of a connection is latency: a dial takes three trips, a request three, a ping two.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import trio

from shoal_lab.simulation.network import NetworkEnd, SimulatedLink, SimulatedNetwork
from shoal_lab.simulation.ordered import OrderedPeers
from shoal_lab.simulation.requests import PendingRequest, SimulatedServer
from shoal_p2p.net.address import PeerAddress, parse_transport
from shoal_p2p.net.connections import ConnectionInfo, Direction
from shoal_p2p.net.host import DialError, ListenError
from shoal_p2p.net.identity import Identity
from shoal_p2p.net.request import RequestError, RequestFailure, RequestHandler, RequestLimits
from shoal_wire.types import PeerId

if TYPE_CHECKING:
    from trio_typing import TaskStatus

logger = logging.getLogger(__name__)

AGENT = "shoal/simulated"


class SimulatedService(Protocol):
    """A service that lives as long as its host runs."""

    def start(self) -> None:
        """The host is on the network."""

    def stop(self) -> None:
        """The host is gone."""


class SimulatedHost(NetworkEnd):
    """Start with ``await nursery.start(host.run)``."""

    def __init__(
        self,
        network: SimulatedNetwork,
        identity: Identity,
        address: str,
        *,
        max_connections: int = 256,
    ) -> None:
        """`address` is a transport address like ``/ip4/10.0.0.1/tcp/4001``; port 0 is any."""
        self._max_connections = max_connections
        super().__init__(identity)
        self._num_refused = 0
        self._network = network
        self.address = address
        self.own_addresses = (address,)
        """The address that connected peers receive, one tuple for all of them."""
        self._peers: dict[PeerId, SimulatedLink] = {}
        self._sorted: OrderedPeers | None = None
        self._servers: dict[str, SimulatedServer] = {}
        self._nursery: trio.Nursery | None = None
        self._services: list[SimulatedService] = []
        self._stop = trio.Event()
        self._stopped = trio.Event()

    @property
    def network(self) -> SimulatedNetwork:
        """The network it is on."""
        return self._network

    def attach(self, service: SimulatedService) -> None:
        """Start and stop `service` with the host."""
        self._services.append(service)

    def start_soon(self, task: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        """Run `task` for as long as the host runs; not at all when it does not."""
        if self._nursery is not None:
            self._nursery.start_soon(task, *arguments)

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Stay on the network until closed, or cancelled, which is as sudden as a kill.

        Raises:
            ListenError: the address is malformed or taken.
        """
        try:
            async with trio.open_nursery() as self._nursery:
                self._listen()
                for service in self._services:
                    service.start()
                task_status.started()
                await self._stop.wait()
                self._nursery.cancel_scope.cancel()
        finally:
            self._nursery = None
            for service in self._services:
                service.stop()
            self._network.remove(self)
            self._stopped.set()

    async def close(self) -> None:
        """Leave the network, and wait until `run` has ended."""
        self._stop.set()
        await self._stopped.wait()

    def _listen(self) -> None:
        try:
            self.address = self._network.free_address(parse_transport(self.address))
        except ValueError as error:
            raise ListenError(f"cannot listen on {self.address}: {error}") from None
        self.own_addresses = (self.address,)
        self._network.add(self)

    def listen_addrs(self) -> tuple[str, ...]:
        is_on = self._network.host(self.peer_id) is self
        return (f"{self.address}/p2p/{self.peer_id}",) if is_on else ()

    # Connections

    def connections(self) -> tuple[ConnectionInfo, ...]:
        now = trio.current_time()
        return tuple(
            ConnectionInfo(
                peer_id=peer_id,
                address=next(iter(self.peer_addresses(peer_id)), ""),
                direction=connection.direction,
                opened_s=now - connection.since,
                agent=AGENT,
                latency_ms=2000 * connection.latency_s,
            )
            for peer_id, connection in self._peers.items()
        )

    def connected_peers(self) -> frozenset[PeerId]:
        if self._sorted is None:
            self._sorted = OrderedPeers(self._peers)
        return self._sorted

    def is_connected(self, peer_id: PeerId) -> bool:
        return peer_id in self._peers

    def link(self, peer_id: PeerId) -> SimulatedLink | None:
        """Return this end of the connection to a peer."""
        return self._peers.get(peer_id)

    def peer_addresses(self, peer_id: PeerId) -> tuple[str, ...]:
        """Return the address at which a connected peer listens."""
        host = self._network.host(peer_id) if peer_id in self._peers else None
        return host.own_addresses if host is not None else ()

    def remote_address(self, peer_id: PeerId) -> str:
        """Return the address at which a connected peer listens: there is no router in between."""
        return next(iter(self.peer_addresses(peer_id)), "")

    def add_verified_addresses(self, peer_id: PeerId, addresses: Sequence[str]) -> None:
        """Do nothing: where a peer listens is known."""

    def observed_address(self, peer_id: PeerId) -> str:
        """Return the address at which `peer_id` sees this host: there is no translation here."""
        return self.address if peer_id in self._peers else ""

    def source_of(self, peer_id: PeerId) -> str:
        """Return the network that `peer_id` shares with others: each has its own here."""
        return str(peer_id) if peer_id in self._peers else ""

    async def _dial(self, target: PeerAddress) -> None:
        """Connect, after three trips, if `target` and this host accept it."""
        peer_id = target.peer_id
        await trio.sleep(3 * self._network.latency(self.peer_id, peer_id))
        if not self._network.reaches(self.peer_id, peer_id):
            await trio.sleep_forever()
        host = self._network.host(peer_id)
        if (
            host is None
            or host.address != target.transport
            or not host.welcomes(self.peer_id)
            or not self.welcomes(peer_id)
            or self._network.host(self.peer_id) is not self
        ):
            raise DialError(f"cannot connect to {target}: refused")
        if peer_id not in self._peers and not (self.has_room and host.offers_room()):
            raise DialError(f"cannot connect to {target}: no room", is_closed_early=self.has_room)
        self._network.connect(self.peer_id, peer_id)

    async def disconnect(self, peer_id: PeerId) -> None:
        await trio.lowlevel.checkpoint()
        self.abort(peer_id)

    def abort(self, peer_id: PeerId) -> None:
        self._network.disconnect(self.peer_id, peer_id)

    # Admission

    def welcomes(self, peer_id: PeerId) -> bool:
        """True if `peer_id` may connect."""
        return self.is_admitted(peer_id) and not self.is_banned(peer_id)

    @property
    def has_room(self) -> bool:
        """True while not every slot is taken."""
        return len(self._peers) < self._max_connections

    def offers_room(self) -> bool:
        """Return whether a dialer is admitted; a refusal is counted and reported."""
        if self.has_room:
            return True
        self._num_refused += 1
        self._on_full("")
        return False

    def refused_connections(self) -> dict[str, int]:
        return {"full": self._num_refused} if self._num_refused else {}

    # Requests

    def set_request_handler(
        self,
        protocol_id: str,
        handler: RequestHandler,
        *,
        max_request_bytes: int,
        limits: RequestLimits | None = None,
        on_sent: Callable[[PeerId, bytes], None] = lambda _peer_id, _request: None,
    ) -> None:
        self._servers[protocol_id] = SimulatedServer(
            handler=handler,
            max_request_bytes=max_request_bytes,
            limits=limits or RequestLimits(),
            bring=self._bring,
            on_sent=on_sent,
        )

    def server(self, protocol_id: str) -> SimulatedServer | None:
        """Return what answers the requests of a protocol."""
        return self._servers.get(protocol_id)

    @contextmanager
    def _deadline(self, timeout: float, peer_id: PeerId, what: str) -> Iterator[None]:
        with super()._deadline(timeout, peer_id, what):
            waiting = self._peers[peer_id].waiting
            with trio.CancelScope() as scope:
                waiting[scope] = None
                try:
                    yield
                    return
                finally:
                    del waiting[scope]
            raise RequestError(RequestFailure.RESET, peer_id)  # the connection has ended

    async def _ping(self, peer_id: PeerId) -> float:
        return 2000 * await self._travel(peer_id, 2)

    async def _travel(self, peer_id: PeerId, trips: int) -> float:
        """Wait for `trips` trips over a link, for ever if it is partitioned; return one, in
        seconds."""
        trip = self._network.latency(self.peer_id, peer_id)
        await trio.sleep(trips * trip)
        if not self._network.reaches(self.peer_id, peer_id):
            await trio.sleep_forever()
        return trip

    async def _request(
        self, peer_id: PeerId, protocol_id: str, payload: bytes, max_response_bytes: int
    ) -> bytes:
        """Send a request. The network has callbacks for its arrival and for the reply, so that the
        caller wakes once."""
        call = PendingRequest(asker=self.peer_id, request=payload)
        self._after(peer_id, 2, lambda: self._put(call, peer_id, protocol_id))
        try:
            await call.ended.wait()
        finally:
            call.is_awaited = False
        if call.answer is None:
            raise RequestError(call.failure, peer_id)
        if len(call.answer) > max_response_bytes:
            raise RequestError(RequestFailure.OVERSIZE, peer_id)
        return call.answer

    def _after(self, peer_id: PeerId, trips: int, action: Callable[[], None]) -> None:
        """Call `action` after `trips` trips over a link, never if it is partitioned by then."""
        network, me = self._network, self.peer_id
        due = trio.current_time() + trips * network.latency(me, peer_id)
        network.call_at(due, lambda: action() if network.reaches(me, peer_id) else None)

    def _put(self, call: PendingRequest, peer_id: PeerId, protocol_id: str) -> None:
        """Deliver a request to `peer_id`, if the caller still waits for the reply."""
        if not call.is_awaited:
            return
        host = self._network.host(peer_id)
        server = None if host is None else host.server(protocol_id)
        if host is None or server is None:
            call.failure = RequestFailure.UNSUPPORTED
            call.ended.set()
            return
        self._network.bytes_of[self.peer_id] += len(call.request)
        host.start_soon(server.serve, call)

    def _bring(self, call: PendingRequest) -> None:
        """Handle the reply to `call`, or its reset."""
        if call.answer is None:
            call.ended.set()
            return
        self._network.bytes_of[self.peer_id] += len(call.answer)
        self._after(call.asker, 1, call.ended.set)

    # Called by the network.

    def on_connected(self, peer_id: PeerId, direction: Direction) -> None:
        """Add a connection."""
        if peer_id not in self._peers:
            latency_s = self._network.latency(self.peer_id, peer_id)
            self._peers[peer_id] = SimulatedLink(direction, self._network.time(), latency_s)
            self._sorted = None
            self._notify(self._connected, peer_id)

    def on_disconnected(self, peer_id: PeerId) -> None:
        """Remove a connection."""
        connection = self._peers.pop(peer_id, None)
        if connection is not None:
            for scope in connection.waiting:
                scope.cancel()
            self._sorted = None
            self._notify(self._disconnected, peer_id)
