"""Relayed connections (libp2p circuit relay v2): messages, the stream, the transport.

py-libp2p 0.8.1's own relay tracks one circuit for each peer and closes it when another circuit of
that peer ends, lets any peer reserve in another's name, and cannot abort a circuit. So only its
messages are used here.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import trio
from libp2p.abc import IListener, INetStream, IRawConnection, ITransport
from libp2p.custom_types import THandler, TProtocol
from libp2p.io.abc import ReadWriteCloser
from libp2p.io.exceptions import IOException
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.network.stream.exceptions import StreamEOF
from libp2p.peer.id import ID
from libp2p.relay.circuit_v2.pb import circuit_pb2 as pb
from libp2p.transport.exceptions import OpenConnectionError
from multiaddr import Multiaddr  # type: ignore[import-untyped]

from shoal_base.waits import REPLY_S
from shoal_p2p.net.address import decode_addresses, is_circuit, parse_peer_address
from shoal_p2p.net.streams import read_message, reset_stream, write_message
from shoal_wire.limits import MAX_ADDRS_PER_PEER
from shoal_wire.types import PeerId

HOP = TProtocol("/libp2p/circuit/relay/0.2.0/hop")
STOP = TProtocol("/libp2p/circuit/relay/0.2.0/stop")
CIRCUIT = "/p2p-circuit"
MAX_MESSAGE_BYTES = 4096
"""Limit given by the specifications of circuit relay v2 and of DCUtR."""


async def read_hop(stream: INetStream) -> pb.HopMessage:
    """Read one message to or from a relay. Raises for malformed bytes or a broken stream."""
    return await read_message(stream, pb.HopMessage, MAX_MESSAGE_BYTES)


async def read_stop(stream: INetStream) -> pb.StopMessage:
    """Read one message between a relay and the target of a circuit."""
    return await read_message(stream, pb.StopMessage, MAX_MESSAGE_BYTES)


def status_name(status: int) -> str:
    """Return the name of a status, for logs and errors."""
    try:
        return str(pb.Status.Name(pb.Status.ValueType(status))).lower().replace("_", " ")
    except ValueError:
        return f"status {status}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationReply:
    """A relay's reply to a reservation request."""

    seconds: float
    """Lifetime of the reservation: the relay's expiry time minus this machine's clock."""
    addresses: tuple[str, ...]
    """Transport addresses at which the relay claims to listen; not verified."""


class RelayRefusedError(Exception):
    """A relay refused a reservation."""


async def reserve(stream: INetStream, relay: PeerId) -> ReservationReply:
    """Request a reservation on a HOP stream, which is reset at the end.

    The caller sets the deadline. Raises RelayRefusedError, or what a malformed reply raises.
    """
    try:
        await write_message(stream, pb.HopMessage(type=pb.HopMessage.RESERVE))
        answer = await read_hop(stream)
    finally:
        await reset_stream(stream)
    if answer.status != pb.Status.OK:
        raise RelayRefusedError(status_name(answer.status))
    reservation = answer.reservation
    return ReservationReply(
        seconds=reservation.expire - time.time(),
        addresses=tuple(_addresses_of(relay, reservation.addrs[:MAX_ADDRS_PER_PEER])),
    )


def _addresses_of(relay: PeerId, encoded: Iterable[bytes]) -> Iterator[str]:
    for text in decode_addresses(encoded):
        try:
            address = parse_peer_address(text)
        except ValueError:
            continue
        if address.peer_id == relay and not is_circuit(address.transport):
            yield address.transport


async def accept_circuit(stream: INetStream, *, is_reserved: bool) -> bool:
    """Answer a relay that offers a circuit, and return whether it was accepted.

    It is accepted only if `is_reserved`: this peer has a reservation at that relay. Raises if the
    relay sends malformed bytes or does not answer in time.
    """
    with trio.fail_after(REPLY_S):
        request = await read_stop(stream)
        is_taken = is_reserved and request.type == pb.StopMessage.CONNECT
        status = pb.Status.OK if is_taken else pb.Status.PERMISSION_DENIED
        await write_message(stream, pb.StopMessage(type=pb.StopMessage.STATUS, status=status))
    if not is_taken:
        await stream.close()
    return is_taken


class CircuitStream(ReadWriteCloser):
    """The relayed byte stream below a connection's encryption. `watch` must run concurrently."""

    def __init__(self, stream: INetStream, address: str) -> None:
        """`address` is the circuit address of the other end, without its peer id."""
        self._inner = stream
        self.address = address
        self._aborted = trio.Event()
        self._reading: set[trio.CancelScope] = set()

    def abort(self) -> None:
        """Close the circuit at once."""
        self._aborted.set()
        for scope in self._reading:
            scope.cancel()

    async def watch(self) -> None:
        """Wait for `abort` or `close`, then reset the stream."""
        await self._aborted.wait()
        await reset_stream(self._inner)

    async def read(self, n: int | None = None) -> bytes:
        """Read at most `n` bytes; none at the end. Raises IOException."""
        if self._aborted.is_set():
            raise IOException("the circuit was aborted")
        with trio.CancelScope() as scope:
            self._reading.add(scope)
            try:
                return await self._inner.read(n)
            except StreamEOF:
                return b""
            finally:
                self._reading.discard(scope)
        raise IOException("the circuit was aborted")

    async def write(self, data: bytes) -> None:
        """Write `data`. Raises IOException."""
        if self._aborted.is_set():
            raise IOException("the circuit was aborted")
        await self._inner.write(data)

    async def close(self) -> None:
        """Close the circuit."""
        self.abort()
        await trio.lowlevel.checkpoint()

    def get_remote_address(self) -> tuple[str, int] | None:
        """Return None: the IP address of the other end is unknown."""
        return None


class RelayHost(Protocol):
    """The host, as a transport uses it: streams to relays, and tasks that end with it."""

    async def open_hop(self, relay: str) -> INetStream:
        """Open a stream for requests to a relay. Raises IOException or ValueError."""

    def start_soon(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run `task` for as long as the host runs."""


class CircuitTransport(ITransport):
    """Dials ``RELAY/p2p/ID/p2p-circuit/p2p/ID``."""

    def __init__(
        self, relays: RelayHost, wrap: Callable[[ReadWriteCloser], ReadWriteCloser]
    ) -> None:
        """`wrap` adds the encryption of a private swarm, if there is one."""
        self._relays = relays
        self._wrap = wrap

    async def dial(self, maddr: Multiaddr) -> IRawConnection:
        """Request a circuit from the relay. Raises OpenConnectionError."""
        relay, _, target = str(maddr).partition(f"{CIRCUIT}/p2p/")
        try:
            stream = await self._relays.open_hop(relay)
        except (IOException, ValueError) as error:
            raise OpenConnectionError(str(error)) from error
        try:
            with trio.fail_after(REPLY_S):
                peer = pb.PeerId(id=ID.from_base58(target).to_bytes())
                await write_message(stream, pb.HopMessage(type=pb.HopMessage.CONNECT, peer=peer))
                answer = await read_hop(stream)
        except Exception as error:  # noqa: BLE001 - the relay is untrusted; any error means no circuit
            await reset_stream(stream)
            raise OpenConnectionError(f"invalid reply from the relay: {error!r}") from None
        if answer.status != pb.Status.OK:
            await reset_stream(stream)
            status = status_name(answer.status)
            raise OpenConnectionError(f"the relay refused the circuit: {status}")
        circuit = CircuitStream(stream, f"{relay}{CIRCUIT}")
        self._relays.start_soon(circuit.watch)
        return RawConnection(self._wrap(circuit), True)

    def can_dial(self, maddr: Multiaddr) -> bool:
        """Return whether an address leads through a relay."""
        return f"{CIRCUIT}/p2p/" in str(maddr)

    def can_listen(self, maddr: Multiaddr) -> bool:
        """Return False: circuits arrive on streams of the relay's connection."""
        return False

    def create_listener(self, handler_function: THandler) -> IListener:
        """Raise NotImplementedError."""
        raise NotImplementedError("a circuit transport cannot listen")

    def protocols(self) -> list[str]:
        """Return the address protocols of this transport."""
        return ["p2p-circuit"]
