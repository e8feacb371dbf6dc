"""The table of live connections: one for each peer, and both ends keep the same one.

Two peers that dial each other at once get two connections. Both keep the one dialled by the smaller
peer id, and prefer a direct connection to a relayed one. But a second connection that opens much
later means that the peer lost the old one (a restart, a broken link), so then the new one wins;
py-libp2p would continue to use the dead one.
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
from shoal_p2p.net.identify import IdentifyInfo
from shoal_p2p.net.inbound_gate import prefix_of
from shoal_p2p.net.layers import lowest_layer, remote_endpoint, source_of
from shoal_p2p.net.listen_port import local_port
from shoal_p2p.net.traffic import Traffic
from shoal_wire.limits import MAX_ADDRS_PER_PEER
from shoal_wire.types import PeerId

SIMULTANEOUS_S = 5.0
"""Connections opened within this many seconds of each other count as a simultaneous dial."""


class Direction(StrEnum):
    """The direction of a dial."""

    IN = "in"
    OUT = "out"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionInfo:
    """One live connection, as the status views show it."""

    peer_id: PeerId
    address: str
    """Remote address of the socket, as a transport multiaddress."""
    direction: Direction
    opened_s: float
    """Age in seconds."""
    agent: str
    """Identify's agent string; empty until identified."""
    latency_ms: float | None
    """Last ping; None before the first answer."""
    local_port: int = 0
    """Local port; 0 for a relayed connection."""
    bytes_in: int = 0
    """Bytes since the start of the connection, as in `bytes_out`; 0 if not counted."""
    bytes_out: int = 0

    @property
    def network(self) -> str | None:
        """The remote network, or the relay's for a circuit; None for this machine."""
        return prefix_of(host_and_port(self.address)[0]) if self.address else None


def network_of(connections: Iterable[ConnectionInfo], peer_id: PeerId) -> str | None:
    """Return the network of `peer_id`; None without a connection, or for one on this machine."""
    return next((c.network for c in connections if c.peer_id == peer_id), None)


@dataclass(slots=True, kw_only=True)
class _LiveConnection:
    connection: INetConn
    direction: Direction
    address: str
    opened_at: float
    local_port: int
    source: str
    """`layers.source_of`, cached to avoid a system call for each message."""


class ConnectionTable:
    """The live connections. Decides which of two connections to one peer is kept."""

    def __init__(self, own_id: PeerId) -> None:
        self._own_id = own_id
        self._entries: dict[PeerId, _LiveConnection] = {}
        self._identified: dict[PeerId, IdentifyInfo] = {}

    def has(self, peer_id: PeerId) -> bool:
        """Return whether `peer_id` is connected."""
        return peer_id in self._entries

    def peers(self) -> frozenset[PeerId]:
        """The connected peers."""
        return frozenset(self._entries)

    def connection_of(self, peer_id: PeerId) -> INetConn | None:
        """Return the connection to `peer_id`."""
        entry = self._entries.get(peer_id)
        return entry.connection if entry else None

    def source_of(self, peer_id: PeerId) -> str:
        """Return the quota source of a connection (`layers.source_of`); empty without one."""
        entry = self._entries.get(peer_id)
        return entry.source if entry else ""

    def all_connections(self) -> list[INetConn]:
        """Return all connections."""
        return [entry.connection for entry in self._entries.values()]

    def add(self, peer_id: PeerId, connection: INetConn) -> INetConn | None:
        """Add `connection`; return the one to close, which may be the new one."""
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
        if self._keeps_old(peer_id, old, new):
            self._entries[peer_id] = old
            return new.connection
        return old.connection

    def _keeps_old(self, peer_id: PeerId, old: _LiveConnection, new: _LiveConnection) -> bool:
        """Return whether the old connection is the one to keep."""
        if new.opened_at - old.opened_at > SIMULTANEOUS_S:
            return False
        if is_circuit(old.address) is not is_circuit(new.address):
            return is_circuit(new.address)
        by_smaller = Direction.OUT if self._own_id < peer_id else Direction.IN
        return new.direction is not by_smaller and old.direction is by_smaller

    def remove(self, peer_id: PeerId, connection: INetConn) -> bool:
        """Remove `connection`. False if it was not in the table."""
        if self.connection_of(peer_id) is not connection:
            return False
        del self._entries[peer_id]
        self._identified.pop(peer_id, None)
        return True

    def set_identified(self, peer_id: PeerId, info: IdentifyInfo) -> None:
        """Record the identify result of a connected peer."""
        if peer_id in self._entries:
            self._identified[peer_id] = info

    def listen_addresses(self, peer_id: PeerId) -> tuple[str, ...]:
        """Return the transport addresses that the peer announced."""
        info = self._identified.get(peer_id)
        return info.listen if info else ()

    def add_verified_addresses(self, peer_id: PeerId, addresses: Sequence[str]) -> None:
        """Put addresses at which a connected peer was dialled successfully before those that it
        announced."""
        if info := self._identified.get(peer_id):
            both = tuple(dict.fromkeys((*addresses, *info.listen)))[:MAX_ADDRS_PER_PEER]
            self._identified[peer_id] = replace(info, listen=both)

    def observed_address(self, peer_id: PeerId) -> str:
        """Return this node's address as the peer observed it; empty if unknown."""
        info = self._identified.get(peer_id)
        return info.observed if info else ""

    def silent_s(self, peer_id: PeerId) -> float:
        """Return the seconds since a peer last sent anything; 0 if it is not connected."""
        entry = self._entries.get(peer_id)
        silent_s: float = (
            0.0 if entry is None else getattr(entry.connection.muxed_conn, "silent_s", 0.0)
        )
        return silent_s

    def snapshot(self) -> tuple[ConnectionInfo, ...]:
        """Return all connections, the oldest first."""
        now = trio.current_time()
        infos = [
            ConnectionInfo(
                peer_id=peer_id,
                address=entry.address,
                direction=entry.direction,
                opened_s=now - entry.opened_at,
                agent=info.agent if (info := self._identified.get(peer_id)) else "",
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
    host, port = remote_endpoint(connection)
    return f"/{'ip6' if ':' in host else 'ip4'}/{host}/tcp/{port}" if host else ""


class ConnectionNotifiee(INotifee):
    """Calls back for each connection that opens and closes, in the connection's own task."""

    def __init__(
        self, on_opened: Callable[[INetConn], None], on_closed: Callable[[INetConn], None]
    ) -> None:
        self._on_opened = on_opened
        self._on_closed = on_closed

    async def connected(self, network: INetwork, conn: INetConn) -> None:
        self._on_opened(conn)

    async def disconnected(self, network: INetwork, conn: INetConn) -> None:
        self._on_closed(conn)

    async def opened_stream(self, network: INetwork, stream: object) -> None: ...

    async def closed_stream(self, network: INetwork, stream: object) -> None: ...

    async def listen(self, network: INetwork, multiaddr: Multiaddr) -> None: ...

    async def listen_close(self, network: INetwork, multiaddr: Multiaddr) -> None: ...
