"""The connections of one peer. `Libp2pHost` is the real host; a simulation and tests have others.

What does not depend on the underlying network is implemented here once: admission, callbacks,
deadlines. `tests/conformance` runs one suite against the real and the simulated host. They differ
by intent: a simulated host knows identify information at once, reports the listen address of the
other end for an inbound connection, refuses no connection before the handshake, and notices at once
that a connection ended, which takes the real one some tenths of a second.
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
from shoal_p2p.net.names import resolve
from shoal_p2p.net.refusals import DialError
from shoal_p2p.net.request import RequestError, RequestFailure, RequestHandler, RequestLimits
from shoal_p2p.net.traffic import Traffic
from shoal_wire.types import PeerId

if TYPE_CHECKING:
    from trio_typing import TaskStatus

logger = logging.getLogger(__name__)

PeerCallback = Callable[[PeerId], None]

DIALS_AT_ONCE = 8
"""Maximum number of peers that each part of a node dials at once."""


class Host(ABC):
    """One peer on the network. Start it with ``await nursery.start(host.run)``."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        """This peer's key pair, for signing."""
        self.traffic = Traffic()
        """Bytes over all sockets since the start; not counted in a simulation."""
        self._admission = Admission()
        self._connected: list[PeerCallback] = []
        self._disconnected: list[PeerCallback] = []
        self._on_full: Callable[[str], None] = lambda _network: None

    @property
    def peer_id(self) -> PeerId:
        """This peer's id."""
        return self.identity.peer_id

    def add_peer_callbacks(
        self, *, connected: PeerCallback | None = None, disconnected: PeerCallback | None = None
    ) -> None:
        """Call `connected` for a peer's first connection and `disconnected` at the end of its last.

        Both run inside the event loop and must return at once. Exceptions are contained. A callback
        may disconnect the peer.
        """
        if connected is not None:
            self._connected.append(connected)
        if disconnected is not None:
            self._disconnected.append(disconnected)

    def set_full_callback(self, callback: Callable[[str], None]) -> None:
        """Call ``callback(network)`` when a connection is refused because no slot is free.

        `network` is the network whose share of the slots is used up; empty if all slots are. The
        callback runs inside the event loop and must return at once.
        """
        self._on_full = callback

    @abstractmethod
    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until `close` or cancellation, which end all connections. Started once it listens.

        Raises:
            ListenError: an address is malformed or in use.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close all connections and sockets and wait until `run` has ended. Idempotent."""

    @abstractmethod
    def listen_addrs(self) -> tuple[str, ...]:
        """Return the full multiaddresses that peers can dial; empty while it does not listen."""

    def interface_addrs(self) -> tuple[str, ...]:
        """Return the full multiaddresses of this machine's interfaces; empty while it does not
        listen."""
        return self.listen_addrs()

    # Connections

    @abstractmethod
    def connections(self) -> tuple[ConnectionInfo, ...]:
        """Return all live connections, one for each peer."""

    @abstractmethod
    def connected_peers(self) -> frozenset[PeerId]:
        """Return the peers with a live connection."""

    @abstractmethod
    def is_connected(self, peer_id: PeerId) -> bool:
        """Return whether `peer_id` has a live connection."""

    @abstractmethod
    def peer_addresses(self, peer_id: PeerId) -> tuple[str, ...]:
        """Return the transport addresses that `peer_id` announces; empty before identify has
        finished."""

    @abstractmethod
    def add_verified_addresses(self, peer_id: PeerId, addresses: Sequence[str]) -> None:
        """Record transport addresses at which this node dialled a connected peer successfully, at
        its request."""

    def remote_address(self, peer_id: PeerId) -> str:
        """Return the remote address of the connection to `peer_id`, as in `connections`; "" without
        one."""
        return next((one.address for one in self.connections() if one.peer_id == peer_id), "")

    @abstractmethod
    def observed_address(self, peer_id: PeerId) -> str:
        """Return this node's address as `peer_id` observed it; empty if not reported."""

    @abstractmethod
    def source_of(self, peer_id: PeerId) -> str:
        """Return the quota source of a connected peer, since peer ids are free: its network, its
        relay, or the peer itself on this machine. Empty for a peer that is not connected."""

    async def resolve(self, transport: str, peer_id: PeerId) -> tuple[str, ...]:
        """Return the addresses that a peer's transport address resolves to; empty if its name has
        no address. The caller sets a deadline."""
        return await resolve(transport, peer_id)

    def is_shoal_peer(self, peer_id: PeerId) -> bool:
        """Return whether the agent string of a connected peer begins with "shoal"."""
        agents = (one.agent for one in self.connections() if one.peer_id == peer_id)
        return next(agents, "").startswith("shoal")

    def is_dialled(self, peer_id: PeerId) -> bool:
        """Return whether this node dialled a connected peer."""
        sides = (one.direction for one in self.connections() if one.peer_id == peer_id)
        return next(sides, Direction.IN) is Direction.OUT

    async def dial(self, address: str, *, timeout: float = 10.0) -> PeerId:  # noqa: ASYNC109
        """Connect to a full multiaddress. An existing connection to that peer is enough.

        With any number of concurrent dials from both ends, one connection is left.

        Raises:
            ValueError: `address` is malformed.
            DialError: no connection within `timeout` seconds, another peer answered, or one of the
                two refuses the other. One line.
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
                    await self._dial(target)
            except trio.TooSlowError:
                raise DialError(f"{address} did not answer within {timeout:g} s") from None
        return target.peer_id

    @abstractmethod
    async def _dial(self, target: PeerAddress) -> None:
        """Connect to a peer that is not connected. Raises DialError."""

    @abstractmethod
    async def disconnect(self, peer_id: PeerId) -> None:
        """Close all connections to `peer_id` gracefully; none is left on this side on return."""

    @abstractmethod
    def abort(self, peer_id: PeerId) -> None:
        """Abort all connections to `peer_id` at once."""

    def _notify(self, callbacks: list[PeerCallback], peer_id: PeerId) -> None:
        for callback in callbacks:
            try:
                callback(peer_id)
            except Exception:  # a failing callback must not cost the connection
                logger.exception("peer callback failed")

    # Admission

    def ban(self, peer_id: PeerId, *, seconds: float) -> None:
        """Disconnect `peer_id` and refuse it for `seconds`. A longer existing ban stays."""
        self._admission.ban(peer_id, seconds=seconds, now=trio.current_time())
        self.abort(peer_id)

    def unban(self, peer_id: PeerId) -> None:
        """Lift the ban of `peer_id`."""
        self._admission.unban(peer_id)

    def is_banned(self, peer_id: PeerId) -> bool:
        """Return whether `peer_id` is banned."""
        return self._admission.is_banned(peer_id, trio.current_time())

    def admit_only(self, peers: Iterable[PeerId] | None, *, is_known: bool = True) -> None:
        """Refuse all peers except `peers` from now on, and disconnect others; None admits all.

        `is_known` is False if a bootstrap peer may still report that the swarm has a list.
        """
        self._admission.admit_only(peers, is_known=is_known)
        for peer_id in self.connected_peers():
            if not self.is_admitted(peer_id):
                logger.warning("disconnecting %s: not on the swarm's list of peers", peer_id)
                self.abort(peer_id)

    def is_admitted(self, peer_id: PeerId) -> bool:
        """Return whether `peer_id` is on the swarm's list of peers, or there is none."""
        return self._admission.is_admitted(peer_id)

    @abstractmethod
    def refused_connections(self) -> dict[str, int]:
        """Return the number of inbound connections refused before any shoal protocol, by reason.

        A simulation counts only refusals for lack of a slot.
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
        """Answer requests of `protocol_id` with ``await handler(peer_id, request)``.

        An exception in the handler, an oversize request, a missed deadline or too many concurrent
        requests reset the stream. A handler continues even if the requester no longer waits.
        `on_sent` is called for each request whose answer was sent to a requester that did wait. A
        later handler replaces an earlier one for the same protocol.
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
            RequestError: `.failure` has the reason: NOT_CONNECTED, UNSUPPORTED (the peer does not
                serve the protocol), OVERSIZE (of the answer), TIMEOUT, or RESET (by the other side,
                or by the end of the connection).
        """
        with self._deadline(timeout, peer_id, protocol_id):
            return await self._request(peer_id, protocol_id, payload, max_response_bytes)

    async def ping(self, peer_id: PeerId, *, timeout: float = 5.0) -> float:  # noqa: ASYNC109
        """Return the round-trip time to a connected peer in milliseconds.

        Raises:
            RequestError: `.failure` has the reason.
        """
        with self._deadline(timeout, peer_id, "a ping"):
            return await self._ping(peer_id)

    @abstractmethod
    async def _request(
        self, peer_id: PeerId, protocol_id: str, payload: bytes, max_response_bytes: int
    ) -> bytes:
        """Send one request and return the answer. The caller sets the deadline."""

    @abstractmethod
    async def _ping(self, peer_id: PeerId) -> float:
        """Return one round-trip time in milliseconds. The caller sets the deadline."""

    @contextmanager
    def _deadline(self, timeout: float, peer_id: PeerId, what: str) -> Iterator[None]:
        if not self.is_connected(peer_id):
            raise RequestError(RequestFailure.NOT_CONNECTED, peer_id)
        with trio.move_on_after(timeout):
            yield
            return
        detail = f"{peer_id} did not answer {what} within {timeout:g} s"
        raise RequestError(RequestFailure.TIMEOUT, detail)
