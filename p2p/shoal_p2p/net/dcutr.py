"""Two peers that reach each other through a relay agree on when both dial (libp2p's DCUtR).

    who was dialled ── CONNECT, where others see it ─▶ who has dialled
                    ◀─ CONNECT, the same ─────────────
                    ── SYNC ──────────────────────────▶ dials at once, and is the client
    dials half a round trip later, and is the server

py-libp2p 0.8.1's own (`libp2p.relay.circuit_v2.dcutr`) finds the circuits of its own relay
transport only, and dials whatever the other side says as often as it says so; only its messages
are used here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import trio
from libp2p.abc import INetStream
from libp2p.custom_types import TProtocol
from libp2p.relay.circuit_v2.pb.dcutr_pb2 import HolePunch
from multiaddr import Multiaddr  # type: ignore[import-untyped]

from shoal_p2p.net.address import dialable, is_circuit, texts_of
from shoal_p2p.net.circuit import MAX_MESSAGE_BYTES
from shoal_p2p.net.streams import read_message, write_message

DCUTR = TProtocol("/libp2p/dcutr")
MAX_TOLD = 4
"""Addresses that one side names, and of the other's those that are looked at."""


class DcutrError(Exception):
    """The other side says something else than the protocol has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreed:
    """The result of the talk."""

    addresses: tuple[str, ...]
    """Transport addresses at which the other side claims to be seen; not verified."""
    wait_s: float
    """Seconds until both sides dial."""


async def propose(stream: INetStream, own: Sequence[str]) -> Agreed:
    """Lead the talk, as the one who was dialled through the relay. The caller holds the deadline.

    Raises what the other side's bytes deserve: DcutrError, and the stream's and protobuf's own.
    """
    sent_at = trio.current_time()
    await _write(stream, HolePunch.CONNECT, own)
    told = await _read(stream, HolePunch.CONNECT)
    wait_s = (trio.current_time() - sent_at) / 2
    await _write(stream, HolePunch.SYNC)
    return Agreed(addresses=told, wait_s=wait_s)


async def answer(stream: INetStream, own: Sequence[str]) -> Agreed:
    """Follow the talk, as the one who has dialled through the relay. Raises as `propose` does."""
    told = await _read(stream, HolePunch.CONNECT)
    await _write(stream, HolePunch.CONNECT, own)
    await _read(stream, HolePunch.SYNC)
    return Agreed(addresses=told, wait_s=0.0)


async def _write(
    stream: INetStream, kind: HolePunch.Type.ValueType, own: Sequence[str] = ()
) -> None:
    told = [Multiaddr(address).to_bytes() for address in own[:MAX_TOLD]]
    await write_message(stream, HolePunch(type=kind, ObsAddrs=told))


async def _read(stream: INetStream, wanted: HolePunch.Type.ValueType) -> tuple[str, ...]:
    message = await read_message(stream, HolePunch, MAX_MESSAGE_BYTES)
    if not message.HasField("type") or message.type != wanted:
        raise DcutrError(f"said {message.type}, not {wanted}")
    return _direct(message.ObsAddrs)


def _direct(told: Iterable[bytes]) -> tuple[str, ...]:
    """Return the first addresses among those told that lead to a host without a relay."""
    texts = (
        # Cut at its peer id, a circuit's address would be that of its relay.
        text if is_circuit(text) else text.partition("/p2p/")[0]
        for text in texts_of(told)
    )
    return dialable(texts, lambda address: not is_circuit(address), most=MAX_TOLD)
