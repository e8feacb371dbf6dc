"""A peer's connections. `Libp2pHost` is the real host; a simulation and tests have others.

What does not depend on the network below stands here once: who may be, who is told, deadlines.
`tests/conformance` runs one suite against the real and the simulated one. Where they differ by
intent: a simulated host knows at once what a peer says of itself, gives for the other end of an
inbound connection the address where that peer listens, refuses nobody before the handshake, and
notices at once that a connection has ended, which takes the real one some tenths of a second.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio

from shoal_p2p.net.address import PeerAddress, parse_peer_address
from shoal_p2p.net.admission import Admission
from shoal_p2p.net.connections import ConnectionInfo, Direction
from shoal_p2p.net.identity import Identity
from shoal_p2p.net.names import look_up
from shoal_p2p.net.refusals import DialError
from shoal_p2p.net.request import RequestError, RequestFailure, RequestHandler, RequestLimits
from shoal_p2p.net.traffic import Traffic
from shoal_wire.types import PeerId

if TYPE_CHECKING:
    from trio_typing import TaskStatus

logger = logging.getLogger(__name__)

Told = Callable[[PeerId], None]

DIALS_AT_ONCE = 8
"""Peers that each part of a node dials at once, at most."""


class Host(ABC):
    """One peer on the network. Start with ``await nursery.start(host.run)``."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        """This peer's identity, for signing."""
        self.traffic = Traffic()
        """Bytes over all sockets since the start; in a simulation none are counted."""
        self._admission = Admission()
        self._connected: list[Told] = []
        self._disconnected: list[Told] = []
        self._on_full: Callable[[str], None] = lambda _network: None

    @property
    def peer_id(self) -> PeerId:
        """This peer's id."""
        return self.identity.peer_id

    def add_peer_callbacks(
        self, *, connected: Told | None = None, disconnected: Told | None = None
    ) -> None:
        """Call `connected` at a peer's first connection, `disconnected` at the end of its last.

        Both run inside the loop and must return at once; what one raises harms nobody else. One may
        cut the peer off.
        """
        if connected is not None:
            self._connected.append(connected)
        if disconnected is not None:
            self._disconnected.append(disconnected)

    def set_full_callback(self, callback: Callable[[str], None]) -> None:
        """Call ``callback(network)`` when a connection is refused for want of a slot.

        `network` is the network whose share of the slots is taken, empty where all are. Runs inside
        the loop and must return at once.
        """
        self._on_full = callback

    @abstractmethod
    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until `close` or cancellation, which end all connections; started means listening.

        Raises:
            ListenError: an address is malformed or taken.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close connections and sockets and wait until `run` has ended; again does nothing."""

    @abstractmethod
    def listen_addrs(self) -> tuple[str, ...]:
        """Full multiaddresses that others can dial; none while it does not listen."""

    def interface_addrs(self) -> tuple[str, ...]:
        """Full multiaddresses on this machine's own interfaces; none while it does not listen."""
        return self.listen_addrs()

    # Who is connected

    @abstractmethod
    def connections(self) -> tuple[ConnectionInfo, ...]:
        """Every live connection, one a peer."""

    @abstractmethod
    def connected_peers(self) -> frozenset[PeerId]:
        """The peers with a live connection."""

    @abstractmethod
    def is_connected(self, peer_id: PeerId) -> bool:
        """True while `peer_id` has a live connection."""

    @abstractmethod
    def peer_addresses(self, peer_id: PeerId) -> tuple[str, ...]:
        """Transport addresses at which `peer_id` says it listens; none yet before it has."""

    @abstractmethod
    def note_reached(self, peer_id: PeerId, addresses: Sequence[str]) -> None:
        """This peer got in at these transport addresses of a connected one's, when asked to."""

    def remote_address(self, peer_id: PeerId) -> str:
        """Return the other end of the connection to `peer_id`, as `connections` has it; else ""."""
        return next((one.address for one in self.connections() if one.peer_id == peer_id), "")

    @abstractmethod
    def observed_address(self, peer_id: PeerId) -> str:
        """Return the address at which `peer_id` says it sees us; empty if it has not said."""

    @abstractmethod
    def source_of(self, peer_id: PeerId) -> str:
        """Return what a connected peer shares limits by, since names are free: its network, its
        relay, or on one machine itself. Empty for a peer that is not connected.
        """

    async def look_up(self, transport: str, peer_id: PeerId) -> tuple[str, ...]:
        """Return the places that a transport address of a peer stands for; none for a name without
        an address. The caller sets a deadline.
        """
        return await look_up(transport, peer_id)

    def is_of_shoal(self, peer_id: PeerId) -> bool:
        """Return whether a connected peer has said that its program is shoal."""
        agents = (one.agent for one in self.connections() if one.peer_id == peer_id)
        return next(agents, "").startswith("shoal")

    def is_dialled(self, peer_id: PeerId) -> bool:
        """Return whether a connected peer was dialled by this one."""
        sides = (one.direction for one in self.connections() if one.peer_id == peer_id)
        return next(sides, Direction.IN) is Direction.OUT

    async def dial(self, address: str, *, timeout: float = 10.0) -> PeerId:  # noqa: ASYNC109
        """Connect to one full multiaddress; an existing connection to that peer is enough.

        However many dials there are at once, from both ends, one connection is left.

        Raises:
            ValueError: `address` is malformed.
            DialError: no connection within `timeout` seconds, another peer answered, or one of the
                two does not have the other. One line.
        """
        target = parse_peer_address(address)
        if target.peer_id == self.peer_id:
            raise DialError(f"{address} is this node itself")
        if not self.is_admitted(target.peer_id):
            raise DialError(f"{target.peer_id} is not on the swarm's list of peers")
        if self.is_banned(target.peer_id):
            raise DialError(f"{target.peer_id} is banned for now")
        if not self.is_connected(target.peer_id):
            try:
                with trio.fail_after(timeout):
                    await self._reach(target)
            except trio.TooSlowError:
                raise DialError(f"{address} did not answer within {timeout:g} s") from None
        return target.peer_id

    @abstractmethod
    async def _reach(self, target: PeerAddress) -> None:
        """Connect to a peer that is not connected. Raises DialError."""

    @abstractmethod
    async def disconnect(self, peer_id: PeerId) -> None:
        """Close every connection to `peer_id` politely; none is left here on return."""

    @abstractmethod
    def abort(self, peer_id: PeerId) -> None:
        """Cut every connection to `peer_id` at once."""

    def _tell(self, callbacks: list[Told], peer_id: PeerId) -> None:
        for callback in callbacks:
            try:
                callback(peer_id)
            except Exception:  # a listener's fault must not cost the connection
                logger.exception("peer callback failed")

    # Who may be

    def ban(self, peer_id: PeerId, *, seconds: float) -> None:
        """Cut `peer_id` off and refuse it for `seconds`; a longer ban it has stays."""
        self._admission.ban(peer_id, seconds=seconds, now=trio.current_time())
        self.abort(peer_id)

    def unban(self, peer_id: PeerId) -> None:
        """Let `peer_id` connect again."""
        self._admission.unban(peer_id)

    def is_banned(self, peer_id: PeerId) -> bool:
        """True while a ban of `peer_id` lasts."""
        return self._admission.is_banned(peer_id, trio.current_time())

    def admit_only(self, peers: Iterable[PeerId] | None, *, is_known: bool = True) -> None:
        """Refuse all but `peers` from now on, and cut off who is connected; None admits all.

        `is_known` is False where a bootstrap may yet say that the swarm has a list.
        """
        self._admission.admit_only(peers, is_known=is_known)
        for peer_id in self.connected_peers():
            if not self.is_admitted(peer_id):
                logger.warning("cut off %s: it is not on the swarm's list of peers", peer_id)
                self.abort(peer_id)

    def is_admitted(self, peer_id: PeerId) -> bool:
        """True unless the swarm has a list of peers without `peer_id`."""
        return self._admission.is_admitted(peer_id)

    @abstractmethod
    def refused_connections(self) -> dict[str, int]:
        """Inbound connections refused before any protocol of ours, by reason, since the start.

        In a simulation only those refused for want of a slot.
        """

    # Requests

    @abstractmethod
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

        An exception of the handler, an oversize request, a missed deadline or too many requests at
        once reset the stream. A handler goes on when nobody waits for its answer any longer;
        `on_sent` learns of each request whose answer went out to somebody who did wait. A later
        handler of the same protocol takes the place of an earlier one.
        """

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
            RequestError: the reason is in `.failure`: NOT_CONNECTED, UNSUPPORTED if nobody serves
                the protocol there, OVERSIZE of an answer, TIMEOUT, or RESET by the other side or by
                the end of the connection.
        """
        with self._answers_within(timeout, peer_id, protocol_id):
            return await self._ask(peer_id, protocol_id, payload, max_response_bytes)

    async def ping(self, peer_id: PeerId, *, timeout: float = 5.0) -> float:  # noqa: ASYNC109
        """Return one round trip to a connected peer in milliseconds.

        Raises:
            RequestError: the reason is in `.failure`.
        """
        with self._answers_within(timeout, peer_id, "a ping"):
            return await self._round_trip(peer_id)

    @abstractmethod
    async def _ask(
        self, peer_id: PeerId, protocol_id: str, payload: bytes, max_response_bytes: int
    ) -> bytes:
        """Send one request and return the answer; the caller holds the deadline."""

    @abstractmethod
    async def _round_trip(self, peer_id: PeerId) -> float:
        """Return one round trip in milliseconds; the caller holds the deadline."""

    @contextmanager
    def _answers_within(self, timeout: float, peer_id: PeerId, what: str) -> Iterator[None]:
        if not self.is_connected(peer_id):
            raise RequestError(RequestFailure.NOT_CONNECTED, peer_id)
        with trio.move_on_after(timeout):
            yield
            return
        detail = f"{peer_id} did not answer {what} within {timeout:g} s"
        raise RequestError(RequestFailure.TIMEOUT, detail)
