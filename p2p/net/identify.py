"""Ask a new connection who is at its other end (libp2p identify)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from libp2p.abc import INetConn
from libp2p.custom_types import TProtocol
from libp2p.host.basic_host import BasicHost
from libp2p.identity.identify.identify import ID as IDENTIFY_ID
from libp2p.identity.identify.pb.identify_pb2 import Identify
from libp2p.protocol_muxer.multiselect_communicator import MultiselectCommunicator
from libp2p.utils.varint import read_varint_prefixed_bytes_limited
from multiaddr import Multiaddr  # type: ignore[import-untyped]

from p2p.net.address import is_unspecified, parse_transport
from p2p.net.swarm import reset_stream

logger = logging.getLogger(__name__)

_MAX_IDENTIFY_BYTES = 16 * 1024
_MAX_AGENT_CHARS = 64
_MAX_ADDRESSES = 8
_NEGOTIATION_DEADLINE_S = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerAbout:
    """What a peer says about itself: claims, cleaned of anything that is not text."""

    agent: str
    listen: tuple[str, ...]
    """Transport addresses, at most eight."""
    observed: str = ""
    """Where it sees us come from, as a transport address; empty if it does not say."""


async def identify(host: BasicHost, connection: INetConn) -> PeerAbout | None:
    """Return the peer's self-description, or None if it gives none; the caller sets a deadline."""
    stream = None
    try:
        stream = await connection.new_stream()
        await host.multiselect_client.select_one_of(
            [TProtocol(IDENTIFY_ID)], MultiselectCommunicator(stream), _NEGOTIATION_DEADLINE_S
        )
        raw = await read_varint_prefixed_bytes_limited(stream, _MAX_IDENTIFY_BYTES)
        message = Identify()
        message.ParseFromString(raw)
        return PeerAbout(
            agent=_printable(message.agent_version),
            listen=_addresses(message.listen_addrs),
            observed=next(iter(_addresses([message.observed_addr])), ""),
        )
    except Exception as error:  # noqa: BLE001 - a peer that cannot say who it is stays unnamed
        logger.debug("identify failed: %r", error)
        return None
    finally:
        if stream is not None:
            await reset_stream(stream)


def _printable(text: str) -> str:
    """Keep what a terminal can show without being controlled by it."""
    return "".join(c for c in text[:_MAX_AGENT_CHARS] if c.isascii() and c.isprintable())


def _addresses(raw_addresses: Sequence[bytes]) -> tuple[str, ...]:
    found: list[str] = []
    for raw in raw_addresses[: 4 * _MAX_ADDRESSES]:
        try:
            address = parse_transport(str(Multiaddr(bytes(raw))))
        except Exception:  # noqa: BLE001 - py-multiaddr raises any type on hostile bytes
            continue
        if not is_unspecified(address) and address not in found:
            found.append(address)
    return tuple(found[:_MAX_ADDRESSES])
