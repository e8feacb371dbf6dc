"""Two relayed peers agree on when both dial each other (libp2p's DCUtR).

    dialled peer  ── CONNECT, own observed addresses ─▶ dialling peer
                  ◀─ CONNECT, the same ────────────────
                  ── SYNC ────────────────────────────▶ dials at once, as the client
    dials half a round trip later, as the server

py-libp2p 0.8.1's own implementation (`libp2p.relay.circuit_v2.dcutr`) only finds circuits of its
own relay transport, and dials any address that the other side sends, any number of times. So only
its messages are used here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import trio
from libp2p.abc import INetStream
from libp2p.custom_types import TProtocol
from libp2p.relay.circuit_v2.pb.dcutr_pb2 import HolePunch
from multiaddr import Multiaddr  # type: ignore[import-untyped]

from shoal_p2p.net.address import decode_addresses, dialable, is_circuit
from shoal_p2p.net.circuit import MAX_MESSAGE_BYTES
from shoal_p2p.net.streams import read_message, write_message

DCUTR = TProtocol("/libp2p/dcutr")
MAX_ADDRESSES = 4
"""Addresses that this side sends, and that it accepts from the other side."""


class DcutrError(Exception):
    """The other side violates the protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PunchPlan:
    """The result of the exchange."""

    addresses: tuple[str, ...]
    """Transport addresses at which the other side claims to be reachable; not verified."""
    wait_s: float
    """Seconds until both sides dial."""


async def initiate(stream: INetStream, own: Sequence[str]) -> PunchPlan:
    """Initiate the exchange, as the peer that was dialled through the relay. The caller sets the
    deadline.

    Raises DcutrError, or an error of the stream or of protobuf for malformed bytes.
    """
    sent_at = trio.current_time()
    await _write(stream, HolePunch.CONNECT, own)
    addresses = await _read(stream, HolePunch.CONNECT)
    wait_s = (trio.current_time() - sent_at) / 2
    await _write(stream, HolePunch.SYNC)
    return PunchPlan(addresses=addresses, wait_s=wait_s)


async def respond(stream: INetStream, own: Sequence[str]) -> PunchPlan:
    """Respond in the exchange, as the peer that dialled through the relay. Raises as `initiate`
    does."""
    addresses = await _read(stream, HolePunch.CONNECT)
    await _write(stream, HolePunch.CONNECT, own)
    await _read(stream, HolePunch.SYNC)
    return PunchPlan(addresses=addresses, wait_s=0.0)


async def _write(
    stream: INetStream, kind: HolePunch.Type.ValueType, own: Sequence[str] = ()
) -> None:
    addresses = [Multiaddr(address).to_bytes() for address in own[:MAX_ADDRESSES]]
    await write_message(stream, HolePunch(type=kind, ObsAddrs=addresses))


async def _read(stream: INetStream, wanted: HolePunch.Type.ValueType) -> tuple[str, ...]:
    message = await read_message(stream, HolePunch, MAX_MESSAGE_BYTES)
    if not message.HasField("type") or message.type != wanted:
        raise DcutrError(f"received {message.type}, expected {wanted}")
    return _direct(message.ObsAddrs)


def _direct(addresses: Iterable[bytes]) -> tuple[str, ...]:
    """Return the first addresses that lead to a host without a relay."""
    texts = (
        # Without its peer id, a circuit's address would be the relay's.
        text if is_circuit(text) else text.partition("/p2p/")[0]
        for text in decode_addresses(addresses)
    )
    return dialable(texts, lambda address: not is_circuit(address), most=MAX_ADDRESSES)
