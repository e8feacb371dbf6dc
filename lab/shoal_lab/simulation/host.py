"""One peer's end of the simulated network: `shoal_p2p.net.interface.Host` without sockets.

What a connection costs is latency: a dial three trips, a request three, a ping two.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import trio

from shoal_lab.simulation.requests import Call, SimulatedServer
from shoal_p2p.net.address import PeerAddress, parse_peer_address, parse_transport
from shoal_p2p.net.admission import Admission
from shoal_p2p.net.connections import ConnectionInfo, Direction
from shoal_p2p.net.host import DialError, ListenError
from shoal_p2p.net.identity import Identity
from shoal_p2p.net.request import RequestError, RequestFailure, RequestHandler, RequestLimits
from shoal_p2p.net.traffic import Traffic
from shoal_wire.types import PeerId

if TYPE_CHECKING:
    from trio_typing import TaskStatus

    from shoal_lab.simulation.network import SimulatedNetwork

logger = logging.getLogger(__name__)

AGENT = "shoal/simulated"


class SimulatedService(Protocol):
    """What lives as long as its host runs."""

    def start(self) -> None:
        """The host is on the network."""

    def stop(self) -> None:
        """The host is gone."""


class OrderedPeers(frozenset[PeerId]):
    """A set that is walked in sorted order, whatever Python's hash seed."""

    @cached_property
    def _in_order(self) -> tuple[PeerId, ...]:
        return tuple(sorted(super().__iter__()))

    def __iter__(self) -> Iterator[PeerId]:
        return iter(self._in_order)


@dataclass(frozen=True, slots=True)
class _SimulatedConnection:
    direction: Direction
    since: float
    waiting: dict[trio.CancelScope, None] = field(default_factory=dict)
    """Who waits for an answer over it."""


class SimulatedHost:
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
        self._num_refused = 0
        self._on_full: Callable[[str], None] = lambda _network: None
        self._network = network
        self._identity = identity
        self.address = address
        self._peers: dict[PeerId, _SimulatedConnection] = {}
        self._sorted: OrderedPeers | None = None
        self._admission = Admission()
        self._connected: list[Callable[[PeerId], None]] = []
        self._disconnected: list[Callable[[PeerId], None]] = []
        self._servers: dict[str, SimulatedServer] = {}
        self._nursery: trio.Nursery | None = None
        self._services: list[SimulatedService] = []
        self._stop = trio.Event()
        self._stopped = trio.Event()
        self.gossip: Any = None
        """The `SimulatedGossip` on this host, where it has one."""

    @property
    def peer_id(self) -> PeerId:
        """This host's id."""
        return self._identity.peer_id

    @property
    def identity(self) -> Identity:
        """This host's identity."""
        return self._identity

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
        """Be on the network until closed, or cancelled, which is as sudden as a kill.

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
        self._network.add(self)

    def listen_addrs(self) -> tuple[str, ...]:
        """Its full address, while it is on the network."""
        is_on = self._network.host(self.peer_id) is self
        return (f"{self.address}/p2p/{self.peer_id}",) if is_on else ()

    def interface_addrs(self) -> tuple[str, ...]:
        """The same."""
        return self.listen_addrs()

    def add_peer_callbacks(
        self,
        *,
        connected: Callable[[PeerId], None] | None = None,
        disconnected: Callable[[PeerId], None] | None = None,
    ) -> None:
        """Call back at a peer's first connection, and at the end of its last."""
        if connected:
            self._connected.append(connected)
        if disconnected:
            self._disconnected.append(disconnected)

    # Who is connected

    def connections(self) -> tuple[ConnectionInfo, ...]:
        """Every connection."""
        now = trio.current_time()
        return tuple(
            ConnectionInfo(
                peer_id=peer_id,
                address=next(iter(self.peer_addresses(peer_id)), ""),
                direction=connection.direction,
                opened_s=now - connection.since,
                agent=AGENT,
                latency_ms=2000 * self._network.latency(self.peer_id, peer_id),
            )
            for peer_id, connection in self._peers.items()
        )

    def connected_peers(self) -> frozenset[PeerId]:
        """The peers with a connection."""
        if self._sorted is None:
            self._sorted = OrderedPeers(self._peers)
        return self._sorted

    def is_connected(self, peer_id: PeerId) -> bool:
        """True while `peer_id` has a connection."""
        return peer_id in self._peers

    def peer_addresses(self, peer_id: PeerId) -> tuple[str, ...]:
        """Where a connected peer listens."""
        host = self._network.host(peer_id) if peer_id in self._peers else None
        return (host.address,) if host is not None else ()

    def note_reached(self, peer_id: PeerId, addresses: Sequence[str]) -> None:
        """Do nothing: where a peer listens is known."""

    def remote_address(self, peer_id: PeerId) -> str:
        """Where a connected peer is."""
        return next(iter(self.peer_addresses(peer_id)), "")

    def observed_address(self, peer_id: PeerId) -> str:
        """Where `peer_id` sees this host: there is no translation here."""
        return self.address if peer_id in self._peers else ""

    def source_of(self, peer_id: PeerId) -> str:
        """What `peer_id` shares with others: each has a network of its own here."""
        return str(peer_id) if peer_id in self._peers else ""

    async def dial(self, address: str, *, timeout: float = 10.0) -> PeerId:  # noqa: ASYNC109
        """Connect, after three trips. Raises ValueError, DialError."""
        target = parse_peer_address(address)
        peer_id = target.peer_id
        if peer_id == self.peer_id:
            raise DialError(f"{address} is this node itself")
        if not self.is_admitted(peer_id):
            raise DialError(f"{peer_id} is not on the swarm's list of peers")
        if self.is_banned(peer_id):
            raise DialError(f"{peer_id} is banned for now")
        if peer_id in self._peers:
            await trio.lowlevel.checkpoint()
            return peer_id
        with trio.move_on_after(timeout):
            if not await self._reach(target):
                raise DialError(f"cannot connect to {address}: refused")
            return peer_id
        raise DialError(f"{address} did not answer within {timeout:g} s")

    async def _reach(self, target: PeerAddress) -> bool:
        """Connect if `target` and this host will have it; False if not."""
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
            return False
        if peer_id not in self._peers and not (self.has_room and host.offers_room()):
            raise DialError(f"cannot connect to {target}: no room", is_cut_off=self.has_room)
        self._network.connect(self.peer_id, peer_id)
        return True

    async def disconnect(self, peer_id: PeerId) -> None:
        """End the connection to `peer_id`."""
        await trio.lowlevel.checkpoint()
        self.abort(peer_id)

    def abort(self, peer_id: PeerId) -> None:
        """End the connection to `peer_id` at once."""
        self._network.disconnect(self.peer_id, peer_id)

    # Who may be

    def welcomes(self, peer_id: PeerId) -> bool:
        """True if `peer_id` may connect."""
        return self.is_admitted(peer_id) and not self.is_banned(peer_id)

    @property
    def has_room(self) -> bool:
        """True while not every slot is taken."""
        return len(self._peers) < self._max_connections

    def offers_room(self) -> bool:
        """Return whether somebody who dials gets in; who does not is counted and told of."""
        if self.has_room:
            return True
        self._num_refused += 1
        self._on_full("")
        return False

    def set_full_callback(self, callback: Callable[[str], None]) -> None:
        """Call back when somebody found no slot."""
        self._on_full = callback

    def ban(self, peer_id: PeerId, *, seconds: float) -> None:
        """Cut `peer_id` off and refuse it for `seconds`."""
        self._admission.ban(peer_id, seconds=seconds, now=trio.current_time())
        self.abort(peer_id)

    def unban(self, peer_id: PeerId) -> None:
        """Let `peer_id` connect again."""
        self._admission.unban(peer_id)

    def is_banned(self, peer_id: PeerId) -> bool:
        """True while a ban lasts."""
        return self._admission.is_banned(peer_id, trio.current_time())

    def admit_only(self, peers: Iterable[PeerId] | None) -> None:
        """Refuse all but `peers`, and cut off who is connected; None admits all."""
        self._admission.admit_only(peers)
        for peer_id in self.connected_peers():
            if not self.is_admitted(peer_id):
                self.abort(peer_id)

    def is_admitted(self, peer_id: PeerId) -> bool:
        """True unless there is a list of peers without `peer_id`."""
        return self._admission.is_admitted(peer_id)

    @property
    def traffic(self) -> Traffic:
        """None: what is said here has no size."""
        return Traffic()

    def refused_connections(self) -> dict[str, int]:
        """Who found no slot; nobody else is refused before it has said who it is."""
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
        """Answer requests of `protocol_id`."""
        self._servers[protocol_id] = SimulatedServer(
            handler=handler,
            max_request_bytes=max_request_bytes,
            limits=limits or RequestLimits(),
            bring=self._bring,
            on_sent=on_sent,
        )

    async def request(
        self,
        peer_id: PeerId,
        protocol_id: str,
        payload: bytes,
        *,
        max_response_bytes: int,
        timeout: float = 10.0,  # noqa: ASYNC109
    ) -> bytes:
        """Ask a connected peer; its handler runs in a task of its own, after two trips."""
        with self._waiting_for(peer_id, timeout):
            return await self._ask(peer_id, protocol_id, payload, max_response_bytes)
        raise RequestError(RequestFailure.TIMEOUT, peer_id)

    async def ping(self, peer_id: PeerId, *, timeout: float = 5.0) -> float:  # noqa: ASYNC109
        """Return one round trip in milliseconds."""
        with self._waiting_for(peer_id, timeout):
            trip = await self._travel(peer_id, 2)
            return 2000 * trip
        raise RequestError(RequestFailure.TIMEOUT, peer_id)

    @contextmanager
    def _waiting_for(self, peer_id: PeerId, timeout: float) -> Iterator[None]:
        """Wait for what `peer_id` answers, at most for `timeout`, and not beyond the connection.

        Raises:
            RequestError: there is no connection, or no longer.
        """
        connection = self._peers.get(peer_id)
        if connection is None:
            raise RequestError(RequestFailure.NOT_CONNECTED, peer_id)
        with trio.move_on_after(timeout) as scope:
            connection.waiting[scope] = None
            try:
                yield
            finally:
                del connection.waiting[scope]
        if scope.cancelled_caught and self._peers.get(peer_id) is not connection:
            raise RequestError(RequestFailure.RESET, peer_id)

    async def _travel(self, peer_id: PeerId, trips: int) -> float:
        """Wait for so many trips over a link, for ever if it is parted; return one, in seconds."""
        trip = self._network.latency(self.peer_id, peer_id)
        await trio.sleep(trips * trip)
        if not self._network.reaches(self.peer_id, peer_id):
            await trio.sleep_forever()
        return trip

    async def _ask(
        self, peer_id: PeerId, protocol_id: str, payload: bytes, max_response_bytes: int
    ) -> bytes:
        """Ask; the network calls when the question is there and when the answer is back, so that
        the asker wakes once."""
        call = Call(asker=self.peer_id, request=payload)
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
        """Call `action` after so many trips over a link, never if it is parted by then."""
        network, me = self._network, self.peer_id
        due = trio.current_time() + trips * network.latency(me, peer_id)
        network.call_at(due, lambda: action() if network.reaches(me, peer_id) else None)

    def _put(self, call: Call, peer_id: PeerId, protocol_id: str) -> None:
        """A question has arrived at `peer_id`, if anybody still waits for the answer."""
        if not call.is_awaited:
            return
        host = self._network.host(peer_id)
        server = None if host is None else host._servers.get(protocol_id)
        if host is None or server is None:
            call.failure = RequestFailure.UNSUPPORTED
            call.ended.set()
            return
        self._network.bytes_of[self.peer_id] += len(call.request)
        host.start_soon(server.serve, call)

    def _bring(self, call: Call) -> None:
        """`call` has been answered here, or reset."""
        if call.answer is None:
            call.ended.set()
            return
        self._network.bytes_of[self.peer_id] += len(call.answer)
        self._after(call.asker, 1, call.ended.set)

    # Called by the network.

    def on_connected(self, peer_id: PeerId, direction: Direction) -> None:
        """Take a connection."""
        if peer_id not in self._peers:
            self._peers[peer_id] = _SimulatedConnection(direction, trio.current_time())
            self._sorted = None
            _call_all(self._connected, peer_id)

    def on_disconnected(self, peer_id: PeerId) -> None:
        """Lose a connection."""
        connection = self._peers.pop(peer_id, None)
        if connection is not None:
            for scope in connection.waiting:
                scope.cancel()
            self._sorted = None
            _call_all(self._disconnected, peer_id)


def _call_all(callbacks: list[Callable[[PeerId], None]], peer_id: PeerId) -> None:
    for callback in callbacks:
        try:
            callback(peer_id)
        except Exception:  # a listener's fault must not cost the connection
            logger.exception("peer callback failed")
