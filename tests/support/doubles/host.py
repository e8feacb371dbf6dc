"""A host without a network: the test defines connections, reachable addresses and replies.

    host = FakeHost(up={address}, answers={PROTOCOL: answer})
    host.connect(peer_id, address="/ip4/198.51.100.7/tcp/4001")
    await host.request(peer_id, PROTOCOL, b"?", max_response_bytes=100)
    assert host.requests == [Request(peer_id=peer_id, protocol_id=PROTOCOL, payload=b"?", …)]

Time is Trio's: with its `MockClock`, bans expire and connections age in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from shoal_p2p.net.address import PeerAddress, parse_peer_address
from shoal_p2p.net.connections import ConnectionInfo, Direction
from shoal_p2p.net.host import DialError
from shoal_p2p.net.identity import Identity
from shoal_p2p.net.interface import Host
from shoal_p2p.net.request import RequestError, RequestFailure, RequestHandler, RequestLimits
from shoal_wire.types import PeerId
from tests.support.doubles.identities import fresh_identity

if TYPE_CHECKING:
    from trio_typing import TaskStatus

_ADDRESS = "/ip4/127.0.0.1/tcp/4001"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dial:
    """One dial, successful or not."""

    at_s: float
    """Trio's time."""
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request that was sent."""

    at_s: float
    peer_id: PeerId
    protocol_id: str
    payload: bytes


@dataclass(slots=True, kw_only=True)
class ConnectedPeer:
    """What a `FakeHost` knows of a peer; a test may change it at any time."""

    address: str
    """The other end of the connection, as a transport address."""
    direction: Direction
    since_s: float
    announced: tuple[str, ...] = ()
    """Addresses at which the peer says it listens."""
    observed: str = ""
    """Address at which the peer says it sees this host."""
    agent: str = "shoal/test"
    """The agent version that the peer reports."""
    source: str = ""
    """Its network, which counts instead of its name: see `Host.source_of`."""


@dataclass(eq=False, kw_only=True)
class FakeHost(Host):
    """A complete `net.interface.Host`; a test controls it by its fields, `connect` and `lose`."""

    identity: Identity = field(default_factory=fresh_identity)
    listening: tuple[str, ...] = (_ADDRESS,)
    """Transport addresses that this host announces."""
    interfaces: tuple[str, ...] = ()
    """Transport addresses of this machine's interfaces; by default `listening`."""
    up: set[str] = field(default_factory=set)
    """Full multiaddresses that can be dialled; a dial of any other fails."""
    dial_s: float = 0.0
    """Duration of a dial, in seconds."""
    dial_error: DialError | None = None
    """The exception of a failing dial, instead of the usual one."""
    answers: dict[str, RequestHandler] = field(default_factory=dict)
    """Functions that answer this host's requests, by protocol."""
    peers: dict[PeerId, ConnectedPeer] = field(default_factory=dict)
    dials: list[Dial] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Resolved addresses by transport address; other addresses resolve to themselves."""
    reached: list[tuple[PeerId, tuple[str, ...]]] = field(default_factory=list)
    """Arguments of `add_verified_addresses`."""
    handlers: dict[str, RequestHandler] = field(default_factory=dict)
    """This host's request handlers, by protocol."""
    refused: dict[str, int] = field(default_factory=dict)
    latency_ms: float = 1.0
    dialling: int = 0
    """Dials in progress."""
    most_dialling: int = 0
    _closed: trio.Event = field(default_factory=trio.Event)

    def __post_init__(self) -> None:
        super().__init__(self.identity)

    # Operations of a test

    def connect(
        self,
        peer_id: PeerId,
        *,
        address: str = _ADDRESS,
        announced: tuple[str, ...] = (),
        direction: Direction = Direction.IN,
        observed: str = "",
        source: str = "",
        agent: str = "shoal/test",
    ) -> None:
        """Connect a peer; an existing connection is replaced, and reported again."""
        self.peers[peer_id] = ConnectedPeer(
            address=address,
            direction=direction,
            since_s=_now_s(),
            announced=announced,
            observed=observed,
            source=source or str(peer_id),
            agent=agent,
        )
        self._notify(self._connected, peer_id)

    def lose(self, peer_id: PeerId) -> None:
        """End a connection, if there is one."""
        if self.peers.pop(peer_id, None) is not None:
            self._notify(self._disconnected, peer_id)

    async def ask(self, peer_id: PeerId, protocol_id: str, payload: bytes) -> bytes:
        """Send a request to this host as a connected peer; the handler's exceptions propagate."""
        return await self.handlers[protocol_id](peer_id, payload)

    def dial_times(self, address: str) -> list[float]:
        """Return the times at which an address was dialled."""
        return [dial.at_s for dial in self.dials if dial.address == address]

    # Operations of a component: `shoal_p2p.net.interface.Host`

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await self._closed.wait()

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()
        self._closed.set()

    def listen_addrs(self) -> tuple[str, ...]:
        """Return `listening`, in full."""
        return tuple(f"{address}/p2p/{self.peer_id}" for address in self.listening)

    def interface_addrs(self) -> tuple[str, ...]:
        """Return `interfaces`, in full."""
        own = self.interfaces or self.listening
        return tuple(f"{address}/p2p/{self.peer_id}" for address in own)

    def connections(self) -> tuple[ConnectionInfo, ...]:
        return tuple(
            connection_of(
                peer_id,
                peer.address,
                direction=peer.direction,
                opened_s=_now_s() - peer.since_s,
                agent=peer.agent,
            )
            for peer_id, peer in self.peers.items()
        )

    def connected_peers(self) -> frozenset[PeerId]:
        return frozenset(self.peers)

    def is_connected(self, peer_id: PeerId) -> bool:
        return peer_id in self.peers

    def peer_addresses(self, peer_id: PeerId) -> tuple[str, ...]:
        return self.peers[peer_id].announced if peer_id in self.peers else ()

    def add_verified_addresses(self, peer_id: PeerId, addresses: Sequence[str]) -> None:
        """Record it in `reached`."""
        self.reached.append((peer_id, tuple(addresses)))

    def observed_address(self, peer_id: PeerId) -> str:
        """Return the address at which the peer sees this host."""
        return self.peers[peer_id].observed if peer_id in self.peers else ""

    def source_of(self, peer_id: PeerId) -> str:
        """Return the peer's `source`, by default its id."""
        return self.peers[peer_id].source if peer_id in self.peers else ""

    async def resolve(self, transport: str, peer_id: PeerId) -> tuple[str, ...]:
        """Return the entry in `names`."""
        await trio.lowlevel.checkpoint()
        return self.names.get(transport, (transport,))

    async def dial(self, address: str, *, timeout: float = 10.0) -> PeerId:  # noqa: ASYNC109
        """Connect to an address in `up`. Raises DialError for any other."""
        target = parse_peer_address(address)
        self.dials.append(Dial(at_s=_now_s(), address=address))
        self.dialling += 1
        self.most_dialling = max(self.most_dialling, self.dialling)
        try:
            await trio.sleep(self.dial_s)
        finally:
            self.dialling -= 1
        await self._dial(target)
        return target.peer_id

    async def _dial(self, target: PeerAddress) -> None:
        if str(target) not in self.up:
            raise self.dial_error or DialError(f"no peer at {target}")
        if target.peer_id not in self.peers:
            self.connect(target.peer_id, address=target.transport, direction=Direction.OUT)

    async def disconnect(self, peer_id: PeerId) -> None:
        await trio.lowlevel.checkpoint()
        self.lose(peer_id)

    def abort(self, peer_id: PeerId) -> None:
        self.lose(peer_id)

    def refused_connections(self) -> dict[str, int]:
        return dict(self.refused)

    def set_request_handler(
        self,
        protocol_id: str,
        handler: RequestHandler,
        *,
        max_request_bytes: int,
        limits: RequestLimits | None = None,
        on_sent: Callable[[PeerId, bytes], None] = lambda _peer_id, _request: None,
    ) -> None:
        """Store it in `handlers`, for `ask`."""
        self.handlers[protocol_id] = handler

    async def _request(
        self, peer_id: PeerId, protocol_id: str, payload: bytes, max_response_bytes: int
    ) -> bytes:
        await trio.lowlevel.checkpoint()
        self.requests.append(
            Request(at_s=_now_s(), peer_id=peer_id, protocol_id=protocol_id, payload=payload)
        )
        if protocol_id not in self.answers:
            raise RequestError(RequestFailure.UNSUPPORTED, protocol_id)
        answer = await self.answers[protocol_id](peer_id, payload)
        if len(answer) > max_response_bytes:
            raise RequestError(RequestFailure.OVERSIZE, f"{len(answer)} bytes")
        return answer

    async def _ping(self, _peer_id: PeerId) -> float:
        await trio.lowlevel.checkpoint()
        return self.latency_ms


def connection_of(
    peer_id: str,
    address: str,
    *,
    direction: Direction = Direction.IN,
    opened_s: float = 1.0,
    local_port: int = 0,
    agent: str = "",
) -> ConnectionInfo:
    """Return a connection as it appears in a host's `connections`."""
    return ConnectionInfo(
        peer_id=PeerId(peer_id),
        address=address,
        direction=direction,
        opened_s=opened_s,
        agent=agent,
        latency_ms=None,
        local_port=local_port,
    )


def _now_s() -> float:
    """Return Trio's time; 0 outside a loop, where a test prepares its doubles."""
    try:
        return trio.current_time()
    except RuntimeError:
        return 0.0
