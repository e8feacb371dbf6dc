"""py-libp2p's swarm and host, reduced to TCP, Noise and Yamux, with its traps removed.

Differences from ``libp2p.new_host`` 0.8.1, with reasons:

* Its default security set accepts ``/plaintext/2.0.0``; here Noise is the only one.
* An inbound connection keeps its slot until the node exits, so all connections are refused after
  about 250 handshakes; here the slot ends with the connection.
* Opening a stream dials implicitly, remembers failures for 60 s and prefers stale addresses; here
  only `Libp2pHost.dial` dials, one given address at a time.
* The auto-connector, the resource manager's circuit breaker and the identify task act on their own
  clocks and memory; here discovery and the host do that.
* The agent string is a module global, shared by all hosts of a process; here each host has its own.
* Identify/push data of a peer is stored, a megabyte and more for each peer id; here it is ignored,
  and nothing that a peer claims enters the library's address book.
* A negotiating peer can make it hold megabytes and answer without end; here lines are short and
  few.
* An exception in a stream handler ends the swarm; here it ends the stream.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any, cast

import trio
from libp2p.abc import IMuxedConn, INetConn, INetStream
from libp2p.crypto.x25519 import create_new_key_pair as create_x25519_key_pair
from libp2p.custom_types import TProtocol
from libp2p.host.basic_host import BasicHost
from libp2p.identity.identify.identify import ID as IDENTIFY_ID
from libp2p.identity.identify_push.identify_push import ID_PUSH as IDENTIFY_PUSH_ID
from libp2p.io.abc import ReadWriteCloser
from libp2p.io.trio import TrioTCPStream
from libp2p.network.auto_connector import AutoConnector
from libp2p.network.config import ConnectionConfig, RetryConfig
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.network.exceptions import SwarmException
from libp2p.network.swarm import Swarm
from libp2p.peer.id import ID
from libp2p.peer.peerstore import PeerStore
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE_ID
from libp2p.stream_muxer.yamux.yamux import PROTOCOL_ID as YAMUX_ID
from libp2p.transport.exceptions import SecurityUpgradeFailure
from multiaddr import Multiaddr  # type: ignore[import-untyped]

from shoal_base.ranges import Range, Ranged, Seconds
from shoal_base.waits import AT_ONCE_S
from shoal_p2p.net.address import from_libp2p_id, host_and_port
from shoal_p2p.net.admission import Admission
from shoal_p2p.net.announced import AnnouncedAddresses
from shoal_p2p.net.channel import ChannelNoise
from shoal_p2p.net.circuit import CircuitStream, CircuitTransport, RelayHost
from shoal_p2p.net.identify import identify_handler
from shoal_p2p.net.identity import Identity
from shoal_p2p.net.inbound_gate import GateLimits, GateRefusal, GateTicket, InboundGate
from shoal_p2p.net.layers import remote_endpoint
from shoal_p2p.net.listen_port import BindAddress, bind_address_for, connect_from, is_behind_nat
from shoal_p2p.net.negotiation import BoundedMultiselect, BoundedMultiselectClient
from shoal_p2p.net.private import ClearStream, KeyedTCP, PrivateStream
from shoal_p2p.net.refusals import NotListedError, RefusalCounts
from shoal_p2p.net.streams import log_failure, reset_stream
from shoal_p2p.net.yamux import KeepaliveSettings, KeepaliveUpgrader, KeepaliveYamux, abort

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SwarmSettings(Ranged):
    """Limits of the connection layer."""

    max_connections: Annotated[int, Range("connections", 1, 10_000)] = 128
    """Inbound and outbound together, including unfinished inbound handshakes."""
    max_streams_per_connection: Annotated[int, Range("streams", 1, 10_000)] = 64
    """Inbound streams served at once. Further ones are reset."""
    handshake_deadline_s: Seconds = 10.0
    """Deadline for handshakes, and for negotiating a stream's protocol."""
    keepalive: KeepaliveSettings = field(default_factory=KeepaliveSettings)
    gate: GateLimits = field(default_factory=GateLimits)
    """Limits for unauthenticated connections."""
    key: Annotated[bytes, Range("bytes", 32, 32)] | None = field(default=None, repr=False)
    """Pre-shared key of a private swarm, 32 bytes; None for a public one."""


class _NoAutoConnector(AutoConnector):
    """An auto-connector that does nothing: discovery dials and remembers peers."""

    async def maybe_connect(self) -> None:
        """Do nothing."""

    def record_disconnect(self, peer_id: ID) -> None:
        """Do nothing; the base class remembers every peer for ever."""


class GuardedSwarm(Swarm):
    """The swarm without its slot leak, its implicit dials and its fatal handler errors."""

    def __init__(
        self,
        identity: Identity,
        settings: SwarmSettings,
        *,
        admission: Admission,
        relays: RelayHost,
    ) -> None:
        key_pair = identity.key_pair
        security = ChannelNoise(key_pair, noise_privkey=create_x25519_key_pair().private_key)
        peer_id = ID.from_pubkey(key_pair.public_key)
        peerstore = PeerStore()
        peerstore.add_key_pair(peer_id, key_pair)
        super().__init__(
            peer_id,
            peerstore,
            KeepaliveUpgrader(
                {NOISE_ID: security}, {YAMUX_ID: KeepaliveYamux}, settings.keepalive, self._check
            ),
            transports=[
                CircuitTransport(relays, self._keyed),
                KeyedTCP(self._keyed, self._bind_address),
            ],
            retry_config=RetryConfig(max_retries=0),
            connection_config=_connection_config(settings),
        )
        self.auto_connector = _NoAutoConnector(self)
        self._settings = settings
        self._gate: InboundGate | None = None
        self._admission = admission
        self._serving: Counter[int] = Counter()
        self.refusals = RefusalCounts()
        self.traffic = security.traffic
        self.on_full: Callable[[str], None] = lambda _network: None
        """Called when a connection is refused because no slot is free: `Host.set_full_callback`."""

    def _check(self, peer_id: ID) -> None:
        """Raise for a banned peer, or one that is not on the list.

        At this point its identity is proven, and no muxer has been negotiated.
        """
        name = from_libp2p_id(peer_id)
        if self._admission.is_banned(name, trio.current_time()):
            raise SecurityUpgradeFailure(f"{peer_id} is banned for now")
        if not self._admission.is_admitted(name):
            raise NotListedError(str(peer_id))

    async def dial_peer(self, peer_id: ID) -> list[INetConn]:
        """Refuse: `new_stream` calls this when there is no connection."""
        raise SwarmException(f"not connected to {peer_id}")

    def _schedule_auto_connect(self) -> None:
        """Do nothing."""

    async def _handle_inbound_connection(
        self, read_write_closer: ReadWriteCloser, maddr: Multiaddr
    ) -> None:
        """Upgrade one accepted socket, and hold its slot for exactly as long as it lives."""
        ticket = self._admit(read_write_closer)
        if ticket is None:
            abort(read_write_closer)  # a reset, which leaves no state in this system
            return
        try:
            raw = RawConnection(self._keyed(read_write_closer), False)
            host = remote_endpoint(read_write_closer)[0] or "an unknown address"
            try:
                await self._serve_inbound(raw, maddr, host, ticket.on_handshake_done)
            finally:
                with trio.move_on_after(AT_ONCE_S) as scope:
                    scope.shield = True
                    await raw.close()
        finally:
            ticket.on_closed()

    def _keyed(self, connection: ReadWriteCloser) -> ReadWriteCloser:
        key = self._settings.key
        return PrivateStream(connection, key) if key else ClearStream(connection)

    def _admit(self, connection: ReadWriteCloser) -> GateTicket | None:
        if self._gate is None:
            self._gate = InboundGate(self._settings.gate, trio.current_time())
        # Outbound connections count too: the library notices an excess only after the handshake,
        # and silently.
        taken = len(self.get_connections()) + self._gate.num_unfinished
        if taken >= self._settings.max_connections:
            self._gate.refused[GateRefusal.FULL] += 1
            self.on_full("")
            return None
        host, _ = remote_endpoint(connection)
        ticket = self._gate.admit(host, trio.current_time())
        if isinstance(ticket, GateRefusal):
            logger.debug("inbound connection refused: %s", ticket)
            if ticket is GateRefusal.PREFIX_FULL:
                self.on_full(self._gate.prefix(host) or "")
            return None
        return ticket

    @property
    def refused(self) -> dict[str, int]:
        """Inbound connections closed before any protocol was negotiated, by reason."""
        at_gate: Counter[GateRefusal] = Counter() if self._gate is None else self._gate.refused
        after_it = self.refusals.counts
        return {str(why): n for counts in (at_gate, after_it) for why, n in counts.items()}

    async def _serve_inbound(
        self,
        raw: RawConnection,
        maddr: Multiaddr,
        where: str,
        on_secured: Callable[[], None] = lambda: None,
    ) -> None:
        """Serve a connection from `where` until it ends. `on_secured` is called after the
        handshake."""
        try:
            muxed = await self.upgrade_inbound_raw_conn(raw, maddr)
            on_secured()
            await muxed.event_closed.wait()
        except Exception as error:  # noqa: BLE001 - untrusted handshakes fail in any way
            if not self.refusals.record(where, error):
                logger.debug("inbound connection from %s failed: %r", where, error)

    async def serve_circuit(self, circuit: CircuitStream) -> None:
        """Serve an inbound relayed connection until it ends."""
        raw = RawConnection(self._keyed(circuit), False)
        try:
            await self._serve_inbound(raw, Multiaddr(circuit.address), circuit.address)
        finally:
            circuit.abort()

    # Behind NAT

    def _listening(self) -> list[str]:
        return [str(a) for listener in self.listeners.values() for a in listener.get_addrs()]

    def _bind_address(self, host: str) -> BindAddress | None:
        listening = self._listening()
        seen = is_behind_nat(host, listening)
        return bind_address_for(host, listening) if seen else None

    async def punch_dial(self, address: str) -> TrioTCPStream:
        """Connect to a transport address from the listen port, at the same time as the peer does.

        Both dials may result in one connection, which does not show which end is the client.
        `as_initiator` and `as_responder` take the roles, and close it.

        Raises:
            OSError: the dial failed, or no listen port can be used.
        """
        host, port = host_and_port(address)
        source = bind_address_for(host, self._listening())
        if source is None:
            raise OSError(f"no listen port from which {address} can be dialled")
        return TrioTCPStream(await connect_from(host, port, source))

    async def as_initiator(self, stream: TrioTCPStream, peer_id: ID) -> None:
        """Take the client's role on a connection opened by `punch_dial`.

        Raises:
            SwarmException, trio.TooSlowError: it is not `peer_id`, or may not connect.
        """
        raw = RawConnection(self._keyed(stream), True)
        try:
            with trio.fail_after(self._settings.handshake_deadline_s):
                await self.upgrade_outbound_raw_conn(raw, peer_id)
        except BaseException:
            abort(stream)
            raise

    async def as_responder(self, stream: TrioTCPStream, address: str) -> None:
        """Take the server's role, through the gate like any inbound connection, until it ends."""
        await self._handle_inbound_connection(stream, Multiaddr(address))

    def set_stream_handler(self, stream_handler: Callable[[INetStream], Awaitable[None]]) -> None:
        """Serve inbound streams with `stream_handler`, limited in number and with contained
        errors."""

        async def guarded(stream: INetStream) -> None:
            await self._serve_stream(stream, stream_handler)

        super().set_stream_handler(guarded)

    async def _serve_stream(
        self, stream: INetStream, handler: Callable[[INetStream], Awaitable[None]]
    ) -> None:
        connection: IMuxedConn = stream.muxed_conn
        key = id(connection)
        if self._serving[key] >= self._settings.max_streams_per_connection:
            await reset_stream(stream)
            return
        self._serving[key] += 1
        try:
            await handler(stream)
        except Exception as error:  # noqa: BLE001 - an error in one stream must not end the swarm
            log_failure("serving a stream of", connection.peer_id, error)
            await reset_stream(stream)
        finally:
            self._serving[key] -= 1
            if not self._serving[key]:
                del self._serving[key]


class QuietHost(BasicHost):
    """The host without its own identify tasks (`Libp2pHost` runs identify in its own nursery).

    Its addresses are the announced ones. The library truncates addresses at the first peer id,
    which for a circuit address is the relay's.
    """

    def __init__(self, *, announced: AnnouncedAddresses, **what: Any) -> None:
        self._announced = announced
        super().__init__(**what)

    def get_transport_addrs(self) -> list[Multiaddr]:
        """Return the listening addresses; empty once the sockets are closed."""
        with suppress(OSError):
            return super().get_transport_addrs()
        return []

    def get_addrs(self) -> list[Multiaddr]:
        """Return the full addresses to announce."""
        announced = self._announced.to_announce(map(str, self.get_transport_addrs()))
        return [Multiaddr(f"{address}/p2p/{self.get_id()}") for address in announced]

    def get_network(self) -> GuardedSwarm:
        """Return the swarm."""
        return cast("GuardedSwarm", super().get_network())

    def _schedule_identify(self, peer_id: ID, *, reason: str) -> None:
        """Do nothing."""

    async def _push_identify_to_all_peers(self) -> None:
        """Do nothing: there are no connections when the host starts to listen."""


def build_host(
    identity: Identity,
    settings: SwarmSettings,
    *,
    agent: str,
    admission: Admission,
    relays: RelayHost,
    announced: AnnouncedAddresses,
) -> QuietHost:
    """Return a host that accepts only Noise over TCP with Yamux.

    It announces what `announced` derives from the listening addresses.
    """
    if not os.environ.get("LIBP2P_DEBUG"):
        # The library logs errors of untrusted peers with tracebacks, bypassing shoal's handlers.
        logging.getLogger("libp2p").setLevel(logging.CRITICAL)
    swarm = GuardedSwarm(identity, settings, admission=admission, relays=relays)

    host = QuietHost(
        network=swarm,
        negotiate_timeout=int(settings.handshake_deadline_s),
        disable_identify_address_discovery=True,
        announced=announced,
    )
    host.multiselect = BoundedMultiselect(dict(host.multiselect.handlers))
    host.multiselect_client = BoundedMultiselectClient()
    host.set_stream_handler(TProtocol(IDENTIFY_ID), identify_handler(host, agent))
    # A pushed megabyte of protocol names occupies fourteen in memory, under a free peer id.
    host.remove_stream_handler(TProtocol(IDENTIFY_PUSH_ID))
    return host


def _connection_config(settings: SwarmSettings) -> ConnectionConfig:
    return ConnectionConfig(
        max_connections=settings.max_connections,
        min_connections=0,
        low_watermark=0,
        high_watermark=settings.max_connections,
        max_connections_per_peer=3,
        inbound_upgrade_timeout=settings.handshake_deadline_s,
        outbound_upgrade_timeout=settings.handshake_deadline_s,
        outbound_stream_protocol_negotiation_timeout=settings.handshake_deadline_s,
        inbound_stream_protocol_negotiation_timeout=settings.handshake_deadline_s,
    )
