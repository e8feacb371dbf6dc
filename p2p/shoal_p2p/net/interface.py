"""The interface to a peer's connections. `Libp2pHost` is the real one; a simulation has its own.

`tests/conformance` runs one suite against both. Where they differ by intent: a simulated host knows
at once what a peer says of itself, gives for the other end of an inbound connection the address
where that peer listens, refuses nobody before the handshake, and notices at once that a connection
has ended, which takes the real one some tenths of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

import trio

from shoal_p2p.net.connections import ConnectionInfo
from shoal_p2p.net.identity import Identity
from shoal_p2p.net.request import RequestHandler, RequestLimits
from shoal_p2p.net.traffic import Traffic
from shoal_wire.types import PeerId

if TYPE_CHECKING:
    from trio_typing import TaskStatus


class Host(Protocol):
    """One peer on the network. Start with ``await nursery.start(host.run)``."""

    @property
    def peer_id(self) -> PeerId:
        """This peer's id."""

    @property
    def identity(self) -> Identity:
        """This peer's identity, for signing."""

    def add_peer_callbacks(
        self,
        *,
        connected: Callable[[PeerId], None] | None = None,
        disconnected: Callable[[PeerId], None] | None = None,
    ) -> None:
        """Call `connected` at a peer's first connection, `disconnected` at the end of its last.

        Both run inside the loop and must return at once; what one raises harms nobody else. One may
        cut the peer off.
        """

    def set_full_callback(self, callback: Callable[[str], None]) -> None:
        """Call ``callback(network)`` when a connection is refused for want of a slot.

        `network` is the network whose share of the slots is taken, empty where all are. Runs inside
        the loop and must return at once.
        """

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until `close` or cancellation, which end all connections; started means listening.

        Raises:
            ListenError: an address is malformed or taken.
        """

    async def close(self) -> None:
        """Close connections and sockets and wait until `run` has ended; again does nothing."""

    def listen_addrs(self) -> tuple[str, ...]:
        """Full multiaddresses that others can dial; none while it does not listen."""

    def interface_addrs(self) -> tuple[str, ...]:
        """Full multiaddresses on this machine's own interfaces; none while it does not listen."""

    # Who is connected

    def connections(self) -> tuple[ConnectionInfo, ...]:
        """Every live connection, one a peer."""

    def connected_peers(self) -> frozenset[PeerId]:
        """The peers with a live connection."""

    def is_connected(self, peer_id: PeerId) -> bool:
        """True while `peer_id` has a live connection."""

    def peer_addresses(self, peer_id: PeerId) -> tuple[str, ...]:
        """Transport addresses at which `peer_id` says it listens; none yet before it has."""

    def note_reached(self, peer_id: PeerId, addresses: Sequence[str]) -> None:
        """This peer got in at these transport addresses of a connected one's, when asked to."""

    def remote_address(self, peer_id: PeerId) -> str:
        """Return the other end of the connection to `peer_id`, as `connections` has it; else ""."""

    def observed_address(self, peer_id: PeerId) -> str:
        """Where `peer_id` says it sees this peer come from; empty if it has not said."""

    def source_of(self, peer_id: PeerId) -> str:
        """Return what a connected peer shares limits by, since names are free: its network, its
        relay, or on one machine its connection. Empty for a peer that is not connected.
        """

    async def dial(self, address: str, *, timeout: float = 10.0) -> PeerId:  # noqa: ASYNC109
        """Connect to one full multiaddress; an existing connection to that peer is enough.

        However many dials there are at once, from both ends, one connection is left.

        Raises:
            ValueError: `address` is malformed.
            DialError: no connection within `timeout` seconds, another peer answered, or one of the
                two does not have the other. One line.
        """

    async def disconnect(self, peer_id: PeerId) -> None:
        """Close every connection to `peer_id` politely; none is left here on return."""

    def abort(self, peer_id: PeerId) -> None:
        """Cut every connection to `peer_id` at once."""

    # Who may be

    def ban(self, peer_id: PeerId, *, seconds: float) -> None:
        """Cut `peer_id` off and refuse it for `seconds`; a longer ban it has stays."""

    def unban(self, peer_id: PeerId) -> None:
        """Let `peer_id` connect again."""

    def is_banned(self, peer_id: PeerId) -> bool:
        """True while a ban of `peer_id` lasts."""

    def admit_only(self, peers: Iterable[PeerId] | None) -> None:
        """Refuse all but `peers` from now on, and cut off who is connected; None admits all."""

    def is_admitted(self, peer_id: PeerId) -> bool:
        """True unless the swarm has a list of peers without `peer_id`."""

    @property
    def traffic(self) -> Traffic:
        """Bytes over all sockets since the start; in a simulation none are counted."""

    def refused_connections(self) -> dict[str, int]:
        """Inbound connections refused before any protocol of ours, by reason, since the start.

        In a simulation only those refused for want of a slot.
        """

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

    async def ping(self, peer_id: PeerId, *, timeout: float = 5.0) -> float:  # noqa: ASYNC109
        """Return one round trip to a connected peer in milliseconds.

        Raises:
            RequestError: the reason is in `.failure`.
        """
