"""One peer's end of the simulated network: `p2p.net.interface.Host` without sockets.

What a connection costs is latency: a dial three trips, a request three, a ping two.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import trio

from p2p.net.address import parse_peer_address, parse_transport
from p2p.net.admission import Admission
from p2p.net.connections import ConnectionInfo, Direction
from p2p.net.host import DialError, ListenError
from p2p.net.identity import Identity
from p2p.net.request import RequestError, RequestFailure, RequestHandler, RequestLimits
from shoal_wire.types import PeerId

if TYPE_CHECKING:
    from trio_typing import TaskStatus

    from shoal.simulation.network import SimulatedNetwork

logger = logging.getLogger(__name__)

AGENT = "shoal/simulated"


class Service(Protocol):
    """What lives as long as its host runs."""

    def start(self) -> None:
        """The host is on the network."""

    def stop(self) -> None:
        """The host is gone."""


class OrderedPeers(frozenset[PeerId]):
    """A set that is walked in sorted order, whatever Python's hash seed."""

    def __iter__(self) -> Iterator[PeerId]:
        return iter(sorted(super().__iter__()))


@dataclass(frozen=True, slots=True)
class _Connection:
    direction: Direction
    since: float


@dataclass(slots=True)
class _Protocol:
    handler: RequestHandler
    max_request_bytes: int
    limits: RequestLimits
    on_sent: Callable[[PeerId, bytes], None]
    active: Counter[PeerId]

    async def serve(self, peer_id: PeerId, request: bytes) -> bytes | None:
        """Answer as the real server does; None where that resets the stream."""
        if len(request) > self.max_request_bytes or self._is_busy(peer_id):
            return None
        self.active[peer_id] += 1
        try:
            with trio.move_on_after(self.limits.handle_deadline_s):
                return await self.handler(peer_id, request)
        except Exception:
            logger.debug("a handler failed", exc_info=True)
        finally:
            self.active[peer_id] -= 1
            if not self.active[peer_id]:
                del self.active[peer_id]
        return None

    def _is_busy(self, peer_id: PeerId) -> bool:
        limits = self.limits
        return (
            self.active[peer_id] >= limits.max_concurrent_per_peer
            or self.active.total() >= limits.max_concurrent
        )


class SimulatedHost:
    """Start with ``await nursery.start(host.run)``."""

    def __init__(self, network: SimulatedNetwork, identity: Identity, address: str) -> None:
        """`address` is a transport address like ``/ip4/10.0.0.1/tcp/4001``."""
        self._network = network
        self._identity = identity
        self.address = address
        self._peers: dict[PeerId, _Connection] = {}
        self._sorted: OrderedPeers | None = None
        self._admission = Admission()
        self._connected: list[Callable[[PeerId], None]] = []
        self._disconnected: list[Callable[[PeerId], None]] = []
        self._protocols: dict[str, _Protocol] = {}
        self._nursery: trio.Nursery | None = None
        self._services: list[Service] = []
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

    def attach(self, service: Service) -> None:
        """Start and stop `service` with the host."""
        self._services.append(service)

    def start_soon(self, task: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        """Run `task` for as long as the host runs; not at all when it does not."""
        if self._nursery is not None:
            self._nursery.start_soon(task, *arguments)

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Be on the network until closed, or cancelled, which is as sudden as a kill."""
        try:
            parse_transport(self.address)
        except ValueError as error:
            raise ListenError(f"cannot listen on {self.address}: {error}") from None
        try:
            async with trio.open_nursery() as self._nursery:
                self._network.add(self)
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

    def listen_addrs(self) -> tuple[str, ...]:
        """Its full address."""
        return (f"{self.address}/p2p/{self.peer_id}",)

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

    def observed_address(self, peer_id: PeerId) -> str:
        """Where `peer_id` sees this host: there is no translation here."""
        return self.address if peer_id in self._peers else ""

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
        await trio.sleep(3 * self._network.latency(self.peer_id, peer_id))
        host = self._network.host(peer_id)
        if not self._network.reaches(self.peer_id, peer_id):
            await trio.sleep(timeout)
            raise DialError(f"{address} did not answer within {timeout:g} s")
        if (
            host is None
            or host.address != target.transport
            or not host.welcomes(self.peer_id)
            or not self.welcomes(peer_id)
            or self._network.host(self.peer_id) is not self
        ):
            raise DialError(f"cannot connect to {address}: refused")
        self._network.connect(self.peer_id, peer_id)
        return peer_id

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

    def refused_connections(self) -> dict[str, int]:
        """None is refused before it has said who it is."""
        return {}

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
        self._protocols[protocol_id] = _Protocol(
            handler, max_request_bytes, limits or RequestLimits(), on_sent, Counter()
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
        """Ask a connected peer; its handler runs in the asker's task, after two trips."""
        if peer_id not in self._peers:
            raise RequestError(RequestFailure.NOT_CONNECTED, peer_id)
        with trio.move_on_after(timeout):
            return await self._ask(peer_id, protocol_id, payload, max_response_bytes)
        raise RequestError(RequestFailure.TIMEOUT, peer_id)

    async def _ask(
        self, peer_id: PeerId, protocol_id: str, payload: bytes, max_response_bytes: int
    ) -> bytes:
        trip = self._network.latency(self.peer_id, peer_id)
        await trio.sleep(2 * trip)
        host = self._network.host(peer_id)
        if host is None or peer_id not in self._peers:
            raise RequestError(RequestFailure.RESET, peer_id)
        if not self._network.reaches(self.peer_id, peer_id):
            await trio.sleep_forever()
        protocol = host._protocols.get(protocol_id)
        if protocol is None:
            raise RequestError(RequestFailure.UNSUPPORTED, peer_id)
        answer = await protocol.serve(self.peer_id, payload)
        if answer is None:
            raise RequestError(RequestFailure.RESET, peer_id)
        await trio.sleep(trip)
        if len(answer) > max_response_bytes:
            raise RequestError(RequestFailure.OVERSIZE, peer_id)
        protocol.on_sent(self.peer_id, payload)
        return answer

    async def ping(self, peer_id: PeerId, *, timeout: float = 5.0) -> float:  # noqa: ASYNC109
        """Return one round trip in milliseconds."""
        if peer_id not in self._peers:
            raise RequestError(RequestFailure.NOT_CONNECTED, peer_id)
        with trio.move_on_after(timeout):
            trip = self._network.latency(self.peer_id, peer_id)
            await trio.sleep(2 * trip)
            if not self._network.reaches(self.peer_id, peer_id):
                await trio.sleep_forever()
            if peer_id not in self._peers:
                raise RequestError(RequestFailure.RESET, peer_id)
            return 2000 * trip
        raise RequestError(RequestFailure.TIMEOUT, peer_id)

    # Called by the network.

    def on_connected(self, peer_id: PeerId, direction: Direction) -> None:
        """Take a connection."""
        if peer_id not in self._peers:
            self._peers[peer_id] = _Connection(direction, trio.current_time())
            self._sorted = None
            _call_all(self._connected, peer_id)

    def on_disconnected(self, peer_id: PeerId) -> None:
        """Lose a connection."""
        if peer_id in self._peers:
            del self._peers[peer_id]
            self._sorted = None
            _call_all(self._disconnected, peer_id)


def _call_all(callbacks: list[Callable[[PeerId], None]], peer_id: PeerId) -> None:
    for callback in callbacks:
        try:
            callback(peer_id)
        except Exception:  # a listener's fault must not cost the connection
            logger.exception("peer callback failed")
