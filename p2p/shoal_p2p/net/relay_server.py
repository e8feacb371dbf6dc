"""Relays for peers that cannot be dialled: reservations, and circuits between two streams.

    reserved peer ◀── STOP stream ── this relay ◀── HOP stream ── dialling peer

The two ends encrypt end to end, so the relay sees only ciphertext. Reservations, circuits, and the
bytes and seconds of each circuit are limited. Their state ends with the streams.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass
from typing import Annotated

import trio
from libp2p.abc import INetStream
from libp2p.peer.id import ID
from libp2p.relay.circuit_v2.pb import circuit_pb2 as pb
from multiaddr import Multiaddr  # type: ignore[import-untyped]

from shoal_base.bounded import PIECE_BYTES
from shoal_base.ranges import Bytes, Range, Ranged, Seconds, Share
from shoal_base.waits import LONG_DEADLINE_S, REPLY_S
from shoal_p2p.net.address import from_libp2p_id, is_circuit, to_libp2p_id
from shoal_p2p.net.circuit import (
    CIRCUIT,
    HOP,
    STOP,
    read_hop,
    read_stop,
    status_name,
)
from shoal_p2p.net.connections import network_of
from shoal_p2p.net.host import Libp2pHost
from shoal_p2p.net.streams import reset_stream, write_message
from shoal_wire.limits import MAX_ADDRS_PER_PEER
from shoal_wire.types import PeerId

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayLimits(Ranged):
    """Limits of a relay."""

    reservations: Annotated[int, Range("peers", 1, 10_000)] = 64
    circuits: Annotated[int, Range("circuits", 1, 100_000)] = 256
    circuits_per_peer: Annotated[int, Range("circuits", 1, 100_000)] = 32
    """Circuits to one reserved peer, and from one dialling peer."""
    network_share: Share = 0.25
    """Share of the reservations and of the circuits that one network may use. Loopback is
    exempt."""
    circuit_bytes: Bytes = 1 << 28
    """Bytes, both ways together, after which a circuit ends and its peers open another. This limit
    and the age below are guesses."""
    circuit_seconds: Seconds = 3600.0
    """Maximum age of a circuit."""
    reservation_seconds: Seconds = 1800.0


class _OverLimitError(Exception):
    """The circuit has reached its byte limit."""


@dataclass(slots=True)
class _Budget:
    left: int


class RelayServer:
    """Serves the HOP protocol. Call `serve` before the host listens."""

    def __init__(self, host: Libp2pHost, limits: RelayLimits | None = None) -> None:
        self._host = host
        self._inner = host.libp2p_host
        self.limits = limits or RelayLimits()
        self._reserved: dict[PeerId, float] = {}
        self._network: dict[PeerId, str | None] = {}
        """Network of each reserved peer."""
        self._circuits_of_network: Counter[str | None] = Counter()
        self._circuits: Counter[PeerId] = Counter()
        self.num_circuits = 0
        """Open circuits."""
        self.bytes_relayed = 0
        self.refused: Counter[str] = Counter()
        """Requests refused, by status."""
        host.add_peer_callbacks(disconnected=self._on_disconnected)

    def serve(self) -> None:
        """Register the HOP handler."""
        self._inner.set_stream_handler(HOP, self._handle)

    @property
    def num_reserved(self) -> int:
        """Peers with a current reservation."""
        now = trio.current_time()
        self._reserved = {peer: until for peer, until in self._reserved.items() if until > now}
        return len(self._reserved)

    def addresses_of(self, peer_id: PeerId) -> tuple[str, ...]:
        """Return the transport addresses of a reserved peer through this relay."""
        if self._reserved.get(peer_id, 0.0) <= trio.current_time():
            return ()
        return tuple(f"{own}{CIRCUIT}" for own in self._host.listen_addrs() if not is_circuit(own))

    def _on_disconnected(self, peer_id: PeerId) -> None:
        self._reserved.pop(peer_id, None)
        self._network.pop(peer_id, None)

    async def _handle(self, stream: INetStream) -> None:
        """Serve one stream. Malformed messages reset it (see the swarm)."""
        peer_id = from_libp2p_id(stream.muxed_conn.peer_id)
        with trio.fail_after(REPLY_S):
            message = await read_hop(stream)
        if not self._host.is_connected(peer_id):
            # The connection is not yet in the table, or is over. It has no network, so no limit
            # would apply.
            await reset_stream(stream)
        elif is_circuit(self._host.remote_address(peer_id)):
            await self._refuse(stream, pb.Status.PERMISSION_DENIED)  # no circuits over circuits
        elif message.type == pb.HopMessage.RESERVE:
            await self._reserve(stream, peer_id)
        elif message.type == pb.HopMessage.CONNECT:
            await self._connect(stream, peer_id, from_libp2p_id(ID(message.peer.id)))
        else:
            await self._refuse(stream, pb.Status.UNEXPECTED_MESSAGE)

    async def _refuse(self, stream: INetStream, status: pb.Status.ValueType) -> None:
        self.refused[status_name(status)] += 1
        await self._answer(stream, pb.HopMessage(type=pb.HopMessage.STATUS, status=status))
        await stream.close()

    async def _answer(self, stream: INetStream, message: pb.HopMessage) -> None:
        with trio.fail_after(REPLY_S):
            await write_message(stream, message)

    async def _reserve(self, stream: INetStream, peer_id: PeerId) -> None:
        network = network_of(self._host.connections(), peer_id)
        if peer_id not in self._reserved and not self._has_capacity(network):
            await self._refuse(stream, pb.Status.RESERVATION_REFUSED)
            return
        self._network[peer_id] = network
        self._reserved[peer_id] = trio.current_time() + self.limits.reservation_seconds
        own = [a for a in self._host.listen_addrs() if not is_circuit(a)][:MAX_ADDRS_PER_PEER]
        await self._answer(
            stream,
            pb.HopMessage(
                type=pb.HopMessage.STATUS,
                status=pb.Status.OK,
                reservation=pb.Reservation(
                    expire=int(time.time() + self.limits.reservation_seconds),
                    addrs=[Multiaddr(address).to_bytes() for address in own],
                ),
                limit=self._limit(),
            ),
        )
        await stream.close()

    def _has_capacity(self, network: str | None) -> bool:
        """Return whether `network` may have another reservation. Networks are costly, peer ids are
        not."""
        if self.num_reserved >= self.limits.reservations:
            return False
        num_same_network = sum(self._network.get(peer_id) == network for peer_id in self._reserved)
        return network is None or num_same_network < self._share(self.limits.reservations)

    def _share(self, slots: int) -> int:
        return max(1, int(slots * self.limits.network_share))

    def _limit(self) -> pb.Limit:
        return pb.Limit(duration=int(self.limits.circuit_seconds), data=self.limits.circuit_bytes)

    async def _connect(self, stream: INetStream, source: PeerId, target: PeerId) -> None:
        limits = self.limits
        if not self.addresses_of(target) or not self._host.is_connected(target):
            await self._refuse(stream, pb.Status.NO_RESERVATION)
            return
        busiest = max(self._circuits[source], self._circuits[target])
        network = network_of(self._host.connections(), source)
        num_same_network = self._circuits_of_network[network] if network is not None else 0
        if (
            self.num_circuits >= limits.circuits
            or busiest >= limits.circuits_per_peer
            or num_same_network >= self._share(limits.circuits)
        ):
            await self._refuse(stream, pb.Status.RESOURCE_LIMIT_EXCEEDED)
            return
        ends = (source, target)
        self._circuits.update(ends)
        self._circuits_of_network[network] += 1
        self.num_circuits += 1
        try:
            await self._open_circuit(stream, source, target)
        finally:
            self.num_circuits -= 1
            self._circuits.subtract(ends)
            self._circuits = +self._circuits
            self._circuits_of_network[network] -= 1
            self._circuits_of_network = +self._circuits_of_network

    async def _open_circuit(self, stream: INetStream, source: PeerId, target: PeerId) -> None:
        other: INetStream | None = None
        try:
            try:
                with trio.fail_after(REPLY_S):
                    other = await self._inner.new_stream(to_libp2p_id(target), [STOP])
                    peer = pb.PeerId(id=to_libp2p_id(source).to_bytes())
                    request = pb.StopMessage(
                        type=pb.StopMessage.CONNECT, peer=peer, limit=self._limit()
                    )
                    await write_message(other, request)
                    answer = await read_stop(other)
            except Exception as error:  # noqa: BLE001 - any failure of the target
                logger.debug("no circuit to %s: %r", target, error)
                await self._refuse(stream, pb.Status.CONNECTION_FAILED)
                return
            if answer.status != pb.Status.OK:
                await self._refuse(stream, pb.Status.CONNECTION_FAILED)
                return
            accepted = pb.HopMessage(
                type=pb.HopMessage.STATUS, status=pb.Status.OK, limit=self._limit()
            )
            await self._answer(stream, accepted)
            await self._relay(stream, other)
        finally:
            await reset_stream(stream)
            if other is not None:
                await reset_stream(other)

    async def _relay(self, one: INetStream, other: INetStream) -> None:
        """Copy both ways until either side ends or a limit is reached."""
        budget = _Budget(self.limits.circuit_bytes)

        async def copy(source: INetStream, sink: INetStream) -> None:
            try:
                while data := await source.read(PIECE_BYTES):
                    budget.left -= len(data)
                    if budget.left < 0:
                        raise _OverLimitError
                    self.bytes_relayed += len(data)
                    with trio.fail_after(LONG_DEADLINE_S):
                        await sink.write(data)
            except Exception as error:  # noqa: BLE001 - either end may fail in any way
                logger.debug("a circuit ends: %r", error)
            nursery.cancel_scope.cancel()

        with trio.move_on_after(self.limits.circuit_seconds):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(copy, one, other)
                nursery.start_soon(copy, other, one)
