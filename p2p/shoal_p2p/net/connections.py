"""The table of live connections: one per peer, chosen so that both ends choose the same.

Two peers that dial each other at once get two connections.  Both keep the one dialled by the
smaller peer id; of one through a relay and one that is direct, the direct one.  But a connection
that comes long after the other is a peer that lost the old one (a restart, a cut cable), so then
the new one wins; py-libp2p would keep using the dead one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import trio
from libp2p.abc import INetConn, INetwork, INotifee
from libp2p.rcmgr import Direction as Libp2pDirection
from multiaddr import Multiaddr  # type: ignore[import-untyped]

from shoal_p2p.net.address import host_and_port, is_circuit
from shoal_p2p.net.channel import Channel
from shoal_p2p.net.circuit import CircuitStream
from shoal_p2p.net.identify import PeerAbout
from shoal_p2p.net.inbound_gate import prefix_of
from shoal_p2p.net.layers import lowest_layer, remote_end, source_of
from shoal_p2p.net.own_port import local_port
from shoal_p2p.net.traffic import Traffic
from shoal_wire.limits import MAX_ADDRS_PER_PEER
from shoal_wire.types import PeerId

SIMULTANEOUS_S = 5.0
"""Connections opened within this many seconds of each other are a simultaneous dial."""


class Direction(StrEnum):
    """The side that dialled."""

    IN = "in"
    OUT = "out"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionInfo:
    """One live connection, as the debug CLI shows it."""

    peer_id: PeerId
    address: str
    """The other end of the socket, as a transport multiaddress."""
    direction: Direction
    opened_s: float
    """Seconds since it was opened."""
    agent: str
    """Identify's agent string; empty until identified."""
    latency_ms: float | None
    """Last ping; None before the first answer."""
    local_port: int = 0
    """This end's port; 0 for one through a relay."""
    bytes_in: int = 0
    """Bytes since it was opened, as `bytes_out`; 0 if not counted."""
    bytes_out: int = 0

    @property
    def network(self) -> str | None:
        """The network it comes from, of a circuit the relay's; None for this machine."""
        return prefix_of(host_and_port(self.address)[0]) if self.address else None


def network_of(connections: Iterable[ConnectionInfo], peer_id: PeerId) -> str | None:
    """Return the network of `peer_id`; None without a connection, or for one of this machine."""
    return next((c.network for c in connections if c.peer_id == peer_id), None)


@dataclass(slots=True, kw_only=True)
class _LiveConnection:
    connection: INetConn
    direction: Direction
    address: str
    opened_at: float
    local_port: int
    source: str
    """`seats.source_of`: the system is asked once, not for each message."""


class ConnectionTable:
    """The live connections; decides which of two connections to one peer stays."""

    def __init__(self, own_id: PeerId) -> None:
        self._own_id = own_id
        self._entries: dict[PeerId, _LiveConnection] = {}
        self._about: dict[PeerId, PeerAbout] = {}

    def has(self, peer_id: PeerId) -> bool:
        """True while `peer_id` has a connection."""
        return peer_id in self._entries

    def peers(self) -> frozenset[PeerId]:
        """The connected peers."""
        return frozenset(self._entries)

    def connection_of(self, peer_id: PeerId) -> INetConn | None:
        """Return the connection to `peer_id`."""
        entry = self._entries.get(peer_id)
        return entry.connection if entry else None

    def source_of(self, peer_id: PeerId) -> str:
        """Return what its connection shares with others (`seats.source_of`); empty without one."""
        entry = self._entries.get(peer_id)
        return entry.source if entry else ""

    def all_connections(self) -> list[INetConn]:
        """Return the connections to everybody."""
        return [entry.connection for entry in self._entries.values()]

    def add(self, peer_id: PeerId, connection: INetConn) -> INetConn | None:
        """Add `connection`; return the one to cut, which may be it."""
        inbound = connection.direction == Libp2pDirection.INBOUND
        new = _LiveConnection(
            connection=connection,
            direction=Direction.IN if inbound else Direction.OUT,
            address=_remote_address(connection),
            opened_at=trio.current_time(),
            local_port=local_port(connection),
            source=source_of(connection, peer_id),
        )
        old = self._entries.get(peer_id)
        self._entries[peer_id] = new
        if old is None:
            return None
        if self._stays(peer_id, old, new):
            self._entries[peer_id] = old
            return new.connection
        return old.connection

    def _stays(self, peer_id: PeerId, old: _LiveConnection, new: _LiveConnection) -> bool:
        """Return whether an old connection is the one to keep."""
        if new.opened_at - old.opened_at > SIMULTANEOUS_S:
            return False
        if is_circuit(old.address) is not is_circuit(new.address):
            return is_circuit(new.address)
        by_smaller = Direction.OUT if self._own_id < peer_id else Direction.IN
        return new.direction is not by_smaller and old.direction is by_smaller

    def remove(self, peer_id: PeerId, connection: INetConn) -> bool:
        """Forget `connection`; False if it was not in the table."""
        if self.connection_of(peer_id) is not connection:
            return False
        del self._entries[peer_id]
        self._about.pop(peer_id, None)
        return True

    def set_identity(self, peer_id: PeerId, about: PeerAbout) -> None:
        """Remember what a connected peer said about itself."""
        if peer_id in self._entries:
            self._about[peer_id] = about

    def listen_addresses(self, peer_id: PeerId) -> tuple[str, ...]:
        """The transport addresses the peer announced."""
        about = self._about.get(peer_id)
        return about.listen if about else ()

    def add_reached(self, peer_id: PeerId, addresses: Sequence[str]) -> None:
        """Put addresses at which a connected peer was reached before those that it announced."""
        if about := self._about.get(peer_id):
            both = tuple(dict.fromkeys((*addresses, *about.listen)))[:MAX_ADDRS_PER_PEER]
            self._about[peer_id] = replace(about, listen=both)

    def observed_address(self, peer_id: PeerId) -> str:
        """Return the address at which the peer says it sees us; empty if it has not said."""
        about = self._about.get(peer_id)
        return about.observed if about else ""

    def silent_s(self, peer_id: PeerId) -> float:
        """Return for how many seconds a peer has said nothing; 0 for one that is not connected."""
        entry = self._entries.get(peer_id)
        silent_s: float = (
            0.0 if entry is None else getattr(entry.connection.muxed_conn, "silent_s", 0.0)
        )
        return silent_s

    def snapshot(self) -> tuple[ConnectionInfo, ...]:
        """Return every connection, oldest first."""
        now = trio.current_time()
        infos = [
            ConnectionInfo(
                peer_id=peer_id,
                address=entry.address,
                direction=entry.direction,
                opened_s=now - entry.opened_at,
                agent=about.agent if (about := self._about.get(peer_id)) else "",
                latency_ms=_latency_ms(entry.connection),
                local_port=entry.local_port,
                bytes_in=(traffic := _traffic(entry.connection)).bytes_in,
                bytes_out=traffic.bytes_out,
            )
            for peer_id, entry in self._entries.items()
        ]
        return tuple(sorted(infos, key=lambda info: -info.opened_s))


def _latency_ms(connection: INetConn) -> float | None:
    latency_s: float | None = getattr(connection.muxed_conn, "latency_s", None)
    return None if latency_s is None else latency_s * 1000


def _traffic(connection: INetConn) -> Traffic:
    channel = getattr(connection.muxed_conn, "secured_conn", None)
    return channel.traffic if isinstance(channel, Channel) else Traffic()


def _remote_address(connection: INetConn) -> str:
    if isinstance(lowest := lowest_layer(connection), CircuitStream):
        return lowest.address
    host, port = remote_end(connection)
    return f"/{'ip6' if ':' in host else 'ip4'}/{host}/tcp/{port}" if host else ""


class Watcher(INotifee):
    """Tells of each connection that begins and ends, in the connection's own task."""

    def __init__(
        self, begun: Callable[[INetConn], None], ended: Callable[[INetConn], None]
    ) -> None:
        self._begun = begun
        self._ended = ended

    async def connected(self, network: INetwork, conn: INetConn) -> None:
        self._begun(conn)

    async def disconnected(self, network: INetwork, conn: INetConn) -> None:
        self._ended(conn)

    async def opened_stream(self, network: INetwork, stream: object) -> None: ...

    async def closed_stream(self, network: INetwork, stream: object) -> None: ...

    async def listen(self, network: INetwork, multiaddr: Multiaddr) -> None: ...

    async def listen_close(self, network: INetwork, multiaddr: Multiaddr) -> None: ...
