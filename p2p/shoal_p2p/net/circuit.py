"""Connections through a relay (libp2p circuit relay v2): messages, the stream, the transport.

py-libp2p 0.8.1's own relay keeps one circuit a peer in its books and closes it when another of
that peer's ends, lets anybody reserve in another's name, and has no way to cut a circuit; so only
its messages are used here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
from shoal_p2p.net.address import is_circuit, parse_peer_address, texts_of
from shoal_p2p.net.streams import read_message, reset_stream, write_message
from shoal_wire.limits import MAX_ADDRS_PER_PEER
from shoal_wire.types import PeerId

if TYPE_CHECKING:
    from shoal_p2p.net.host import Libp2pHost

HOP = TProtocol("/libp2p/circuit/relay/0.2.0/hop")
STOP = TProtocol("/libp2p/circuit/relay/0.2.0/stop")
CIRCUIT = "/p2p-circuit"
MAX_MESSAGE_BYTES = 4096
"""Bound that the specifications of circuit relay v2 and of DCUtR name."""


async def read_hop(stream: INetStream) -> pb.HopMessage:
    """Read one message to or from a relay. Raises what the bytes or the stream deserve."""
    return await read_message(stream, pb.HopMessage, MAX_MESSAGE_BYTES)


async def read_stop(stream: INetStream) -> pb.StopMessage:
    """Read one message between a relay and the peer that it is to connect."""
    return await read_message(stream, pb.StopMessage, MAX_MESSAGE_BYTES)


def status_name(status: int) -> str:
    """Return what a status means, for people."""
    try:
        return str(pb.Status.Name(pb.Status.ValueType(status))).lower().replace("_", " ")
    except ValueError:
        return f"status {status}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """A relay's answer to who asks it for a place."""

    seconds: float
    """Seconds for which the place lasts, by the relay's clock less this one's."""
    addresses: tuple[str, ...]
    """Transport addresses at which the relay claims to listen; not verified."""


class RelayRefusedError(Exception):
    """A relay has no place for this peer."""


async def reserve(stream: INetStream, relay: PeerId) -> Reserved:
    """Ask a relay for a place, on a stream of `HOP` that is reset at the end.

    The caller holds the deadline. Raises RelayRefusedError, and what the bytes read deserve.
    """
    try:
        await write_message(stream, pb.HopMessage(type=pb.HopMessage.RESERVE))
        answer = await read_hop(stream)
    finally:
        await reset_stream(stream)
    if answer.status != pb.Status.OK:
        raise RelayRefusedError(status_name(answer.status))
    said = answer.reservation
    return Reserved(
        seconds=said.expire - time.time(),
        addresses=tuple(_addresses_of(relay, said.addrs[:MAX_ADDRS_PER_PEER])),
    )


def _addresses_of(relay: PeerId, told: Iterable[bytes]) -> Iterator[str]:
    for text in texts_of(told):
        try:
            said = parse_peer_address(text)
        except ValueError:
            continue
        if said.peer_id == relay and not is_circuit(said.transport):
            yield said.transport


async def answer_relay(stream: INetStream, *, is_ours: bool) -> bool:
    """Answer a relay that has a circuit for this peer, and return whether it is taken.

    It is only where `is_ours`: the relay holds a place of this peer's. Raises what the other side's
    bytes or silence deserve.
    """
    with trio.fail_after(REPLY_S):
        request = await read_stop(stream)
        is_taken = is_ours and request.type == pb.StopMessage.CONNECT
        status = pb.Status.OK if is_taken else pb.Status.PERMISSION_DENIED
        await write_message(stream, pb.StopMessage(type=pb.StopMessage.STATUS, status=status))
    if not is_taken:
        await stream.close()
    return is_taken


class CircuitStream(ReadWriteCloser):
    """The relayed byte stream below a connection's encryption. `watch` must run beside it."""

    def __init__(self, stream: INetStream, address: str) -> None:
        """`address` is the other end's circuit address, without its peer id."""
        self._inner = stream
        self.address = address
        self._cut = trio.Event()
        self._reading: set[trio.CancelScope] = set()

    def abort(self) -> None:
        """End the circuit at once."""
        self._cut.set()
        for scope in self._reading:
            scope.cancel()

    async def watch(self) -> None:
        """Wait for `abort` or `close`, and give the stream back."""
        await self._cut.wait()
        await reset_stream(self._inner)

    async def read(self, n: int | None = None) -> bytes:
        """Read at most `n` bytes; none at the end. Raises IOException."""
        if self._cut.is_set():
            raise IOException("the circuit was cut")
        with trio.CancelScope() as scope:
            self._reading.add(scope)
            try:
                return await self._inner.read(n)
            except StreamEOF:
                return b""
            finally:
                self._reading.discard(scope)
        raise IOException("the circuit was cut")

    async def write(self, data: bytes) -> None:
        """Write `data`. Raises IOException."""
        if self._cut.is_set():
            raise IOException("the circuit was cut")
        await self._inner.write(data)

    async def close(self) -> None:
        """End the circuit."""
        self.abort()
        await trio.lowlevel.checkpoint()

    def get_remote_address(self) -> tuple[str, int] | None:
        """None: the other end has no address of its own here."""
        return None


class CircuitTransport(ITransport):
    """Dials ``RELAY/p2p/ID/p2p-circuit/p2p/ID``."""

    def __init__(
        self, relays: Libp2pHost, wrap: Callable[[ReadWriteCloser], ReadWriteCloser]
    ) -> None:
        """`wrap` puts a connection under the private swarm's key, if there is one."""
        self._relays = relays
        self._wrap = wrap

    async def dial(self, maddr: Multiaddr) -> IRawConnection:
        """Ask the relay for a circuit. Raises OpenConnectionError."""
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
        except Exception as error:  # noqa: BLE001 - the relay is a stranger: no circuit
            await reset_stream(stream)
            raise OpenConnectionError(f"the relay gave no usable answer: {error!r}") from None
        if answer.status != pb.Status.OK:
            await reset_stream(stream)
            said = status_name(answer.status)
            raise OpenConnectionError(f"the relay refused the circuit: {said}")
        circuit = CircuitStream(stream, f"{relay}{CIRCUIT}")
        self._relays.start_soon(circuit.watch)
        return RawConnection(self._wrap(circuit), True)

    def can_dial(self, maddr: Multiaddr) -> bool:
        """True for addresses through a relay."""
        return f"{CIRCUIT}/p2p/" in str(maddr)

    def can_listen(self, maddr: Multiaddr) -> bool:
        """False: circuits come in on streams of the relay's connection."""
        return False

    def create_listener(self, handler_function: THandler) -> IListener:
        """Refuse."""
        raise NotImplementedError("a circuit is not listened on")

    def protocols(self) -> list[str]:
        """Return the address protocols that this transport is for."""
        return ["p2p-circuit"]
