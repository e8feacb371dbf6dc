"""A host without a network: the test says who is connected, who can be dialled and who answers.

    host = FakeHost(up={address}, answers={PROTOCOL: answer})
    host.connect(peer_id, address="/ip4/198.51.100.7/tcp/4001")
    await host.request(peer_id, PROTOCOL, b"?", max_response_bytes=100)
    assert host.requests == [Request(peer_id=peer_id, protocol_id=PROTOCOL, payload=b"?", …)]

Time is Trio's: with its `MockClock`, bans end and connections age as fast as the test waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from shoal_p2p.net.address import parse_peer_address
from shoal_p2p.net.admission import Admission
from shoal_p2p.net.connections import ConnectionInfo, Direction
from shoal_p2p.net.host import DialError
from shoal_p2p.net.identity import Identity
from shoal_p2p.net.request import RequestError, RequestFailure, RequestHandler, RequestLimits
from shoal_p2p.net.traffic import Traffic
from shoal_wire.types import PeerId
from tests.support.doubles.identities import fresh_identity

if TYPE_CHECKING:
    from trio_typing import TaskStatus

    from shoal_p2p.net.interface import Host

_ADDRESS = "/ip4/127.0.0.1/tcp/4001"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dial:
    """One attempt to connect, whatever came of it."""

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
    """Where the peer says that it listens."""
    observed: str = ""
    """Where the peer says that it sees this host."""
    source: str = ""
    """What it shares with others where names must not count: see `Host.source_of`."""


@dataclass(eq=False, kw_only=True)
class FakeHost:
    """A whole `net.interface.Host`; a test steers it by its fields, `connect` and `lose`."""

    identity: Identity = field(default_factory=fresh_identity)
    listening: tuple[str, ...] = (_ADDRESS,)
    """Transport addresses at which others are told to dial this host."""
    interfaces: tuple[str, ...] = ()
    """Transport addresses of this machine's interfaces; as `listening` if there are none."""
    up: set[str] = field(default_factory=set)
    """Full multiaddresses at which somebody answers; a dial of any other fails."""
    dial_s: float = 0.0
    """How long a dial takes, in seconds."""
    dial_error: DialError | None = None
    """What a dial fails with, in place of the usual."""
    answers: dict[str, RequestHandler] = field(default_factory=dict)
    """Who answers this host's requests, by protocol."""
    peers: dict[PeerId, ConnectedPeer] = field(default_factory=dict)
    dials: list[Dial] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    reached: list[tuple[PeerId, tuple[str, ...]]] = field(default_factory=list)
    """What `note_reached` was told."""
    handlers: dict[str, RequestHandler] = field(default_factory=dict)
    """Who answers what peers ask of this host, by protocol."""
    refused: dict[str, int] = field(default_factory=dict)
    latency_ms: float = 1.0
    dialling: int = 0
    """Dials under way."""
    most_dialling: int = 0
    traffic: Traffic = field(default_factory=Traffic)
    _admission: Admission = field(default_factory=Admission)
    _connected: list[Callable[[PeerId], None]] = field(default_factory=list)
    _disconnected: list[Callable[[PeerId], None]] = field(default_factory=list)
    _full: list[Callable[[str], None]] = field(default_factory=list)
    _closed: trio.Event = field(default_factory=trio.Event)

    # What a test does

    def connect(
        self,
        peer_id: PeerId,
        *,
        address: str = _ADDRESS,
        announced: tuple[str, ...] = (),
        direction: Direction = Direction.IN,
        observed: str = "",
        source: str = "",
    ) -> None:
        """A peer is connected from now on; one that is already is replaced, and told of again."""
        self.peers[peer_id] = ConnectedPeer(
            address=address,
            direction=direction,
            since_s=_now_s(),
            announced=announced,
            observed=observed,
            source=source or str(peer_id),
        )
        for tell in self._connected:
            tell(peer_id)

    def lose(self, peer_id: PeerId) -> None:
        """End a connection, if there is one."""
        if self.peers.pop(peer_id, None) is not None:
            for tell in self._disconnected:
                tell(peer_id)

    def refuse_newcomer(self, network: str = "") -> None:
        """Tell `set_full_callback` that a connection was refused for want of a slot."""
        for tell in self._full:
            tell(network)

    async def ask(self, peer_id: PeerId, protocol_id: str, payload: bytes) -> bytes:
        """Ask this host as a connected peer would; what its handler raises is the test's."""
        return await self.handlers[protocol_id](peer_id, payload)

    def dial_times(self, address: str) -> list[float]:
        """Return when an address was dialled."""
        return [dial.at_s for dial in self.dials if dial.address == address]

    # What a peer does: `shoal_p2p.net.interface.Host`

    @property
    def peer_id(self) -> PeerId:
        """This host's id."""
        return self.identity.peer_id

    def add_peer_callbacks(
        self,
        *,
        connected: Callable[[PeerId], None] | None = None,
        disconnected: Callable[[PeerId], None] | None = None,
    ) -> None:
        """Call back when a test connects and loses peers."""
        if connected is not None:
            self._connected.append(connected)
        if disconnected is not None:
            self._disconnected.append(disconnected)

    def set_full_callback(self, callback: Callable[[str], None]) -> None:
        """Call back at `refuse_newcomer`."""
        self._full = [callback]

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Be there until closed or cancelled."""
        task_status.started()
        await self._closed.wait()

    async def close(self) -> None:
        """End `run`."""
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
        """Return one connection a peer."""
        return tuple(
            ConnectionInfo(
                peer_id=peer_id,
                address=peer.address,
                direction=peer.direction,
                opened_s=_now_s() - peer.since_s,
                agent="",
                latency_ms=None,
            )
            for peer_id, peer in self.peers.items()
        )

    def connected_peers(self) -> frozenset[PeerId]:
        """Return whom the test has connected."""
        return frozenset(self.peers)

    def is_connected(self, peer_id: PeerId) -> bool:
        """Return whether the test has connected `peer_id`."""
        return peer_id in self.peers

    def peer_addresses(self, peer_id: PeerId) -> tuple[str, ...]:
        """Return what the test let the peer announce."""
        return self.peers[peer_id].announced if peer_id in self.peers else ()

    def note_reached(self, peer_id: PeerId, addresses: Sequence[str]) -> None:
        """Keep it in `reached`."""
        self.reached.append((peer_id, tuple(addresses)))

    def remote_address(self, peer_id: PeerId) -> str:
        """Return the other end of a connection."""
        return self.peers[peer_id].address if peer_id in self.peers else ""

    def observed_address(self, peer_id: PeerId) -> str:
        """Return where the test lets the peer see this host."""
        return self.peers[peer_id].observed if peer_id in self.peers else ""

    def source_of(self, peer_id: PeerId) -> str:
        """Return the peer's `source`: its id unless the test says another."""
        return self.peers[peer_id].source if peer_id in self.peers else ""

    async def dial(self, address: str, *, timeout: float = 10.0) -> PeerId:  # noqa: ASYNC109
        """Connect to who is `up`. Raises DialError for anybody else."""
        target = parse_peer_address(address)
        self.dials.append(Dial(at_s=_now_s(), address=address))
        self.dialling += 1
        self.most_dialling = max(self.most_dialling, self.dialling)
        try:
            await trio.sleep(self.dial_s)
        finally:
            self.dialling -= 1
        if address not in self.up:
            raise self.dial_error or DialError(f"nobody at {address}")
        if target.peer_id not in self.peers:
            self.connect(target.peer_id, address=target.transport, direction=Direction.OUT)
        return target.peer_id

    async def disconnect(self, peer_id: PeerId) -> None:
        """Lose a peer."""
        await trio.lowlevel.checkpoint()
        self.lose(peer_id)

    def abort(self, peer_id: PeerId) -> None:
        """Lose a peer."""
        self.lose(peer_id)

    def ban(self, peer_id: PeerId, *, seconds: float) -> None:
        """Lose a peer, and refuse it."""
        self._admission.ban(peer_id, seconds=seconds, now=_now_s())
        self.lose(peer_id)

    def unban(self, peer_id: PeerId) -> None:
        """Refuse it no longer."""
        self._admission.unban(peer_id)

    def is_banned(self, peer_id: PeerId) -> bool:
        """Return whether a ban lasts."""
        return self._admission.is_banned(peer_id, _now_s())

    def admit_only(self, peers: Iterable[PeerId] | None) -> None:
        """Lose all others."""
        self._admission.admit_only(peers)
        for peer_id in [one for one in self.peers if not self.is_admitted(one)]:
            self.lose(peer_id)

    def is_admitted(self, peer_id: PeerId) -> bool:
        """Return whether `admit_only` names the peer, or was never called."""
        return self._admission.is_admitted(peer_id)

    def refused_connections(self) -> dict[str, int]:
        """Return `refused`."""
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
        """Keep it in `handlers`, for `ask`."""
        self.handlers[protocol_id] = handler

    async def request(
        self,
        peer_id: PeerId,
        protocol_id: str,
        payload: bytes,
        *,
        max_response_bytes: int,
        timeout: float = 10.0,  # noqa: ASYNC109 - the interface's
    ) -> bytes:
        """Return what `answers` says. Raises RequestError as the real one does."""
        await trio.lowlevel.checkpoint()
        if peer_id not in self.peers:
            raise RequestError(RequestFailure.NOT_CONNECTED, peer_id)
        self.requests.append(
            Request(at_s=_now_s(), peer_id=peer_id, protocol_id=protocol_id, payload=payload)
        )
        if protocol_id not in self.answers:
            raise RequestError(RequestFailure.UNSUPPORTED, protocol_id)
        try:
            with trio.fail_after(timeout):
                answer = await self.answers[protocol_id](peer_id, payload)
        except trio.TooSlowError:
            raise RequestError(RequestFailure.TIMEOUT, f"{timeout} s") from None
        if len(answer) > max_response_bytes:
            raise RequestError(RequestFailure.OVERSIZE, f"{len(answer)} bytes")
        return answer

    async def ping(self, peer_id: PeerId, *, timeout: float = 5.0) -> float:  # noqa: ASYNC109
        """Return `latency_ms`."""
        await trio.lowlevel.checkpoint()
        if peer_id not in self.peers:
            raise RequestError(RequestFailure.NOT_CONNECTED, peer_id)
        return self.latency_ms


def _now_s() -> float:
    """Return Trio's time; 0 outside a loop, where a test prepares its doubles."""
    try:
        return trio.current_time()
    except RuntimeError:
        return 0.0


if TYPE_CHECKING:
    _WHOLE: Host = FakeHost()
