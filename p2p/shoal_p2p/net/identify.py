"""Identify: asks the other end of a connection who it is, and answers the same (libp2p)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import trio
from libp2p.abc import INetConn, INetStream
from libp2p.custom_types import TProtocol
from libp2p.host.basic_host import BasicHost
from libp2p.identity.identify.identify import ID as IDENTIFY_ID
from libp2p.identity.identify.identify import PROTOCOL_VERSION
from libp2p.identity.identify.pb.identify_pb2 import Identify
from libp2p.peer.peerstore import env_to_send_in_RPC
from libp2p.protocol_muxer.multiselect_communicator import MultiselectCommunicator
from multiaddr import Multiaddr  # type: ignore[import-untyped]
from multiaddr.protocols import P_P2P  # type: ignore[import-untyped]

from shoal_base.waits import REPLY_S
from shoal_p2p.net.address import decode_addresses, dialable
from shoal_p2p.net.streams import read_message, reset_stream, write_message

logger = logging.getLogger(__name__)

_MAX_IDENTIFY_BYTES = 16 * 1024
"""Longer identify messages are refused."""
_MAX_AGENT_CHARS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentifyInfo:
    """A peer's claims about itself, reduced to printable text."""

    agent: str
    listen: tuple[str, ...]
    """Transport addresses, at most eight."""
    observed: str = ""
    """This node's transport address as the peer observed it; empty if not reported."""


async def identify(host: BasicHost, connection: INetConn) -> IdentifyInfo | None:
    """Return the peer's identify information, or None if it sends none. The caller sets a
    deadline."""
    stream = None
    try:
        stream = await connection.new_stream()
        await host.multiselect_client.select_one_of(
            [TProtocol(IDENTIFY_ID)], MultiselectCommunicator(stream)
        )
        message = await read_message(stream, Identify, _MAX_IDENTIFY_BYTES)
        return IdentifyInfo(
            agent=_printable(message.agent_version),
            listen=dialable(decode_addresses(message.listen_addrs)),
            observed=next(iter(dialable(decode_addresses([message.observed_addr]))), ""),
        )
    except Exception as error:  # noqa: BLE001 - a peer without a valid answer stays unidentified
        logger.debug("identify failed: %r", error)
        return None
    finally:
        if stream is not None:
            await reset_stream(stream)


def identify_handler(host: BasicHost, agent: str) -> Callable[[INetStream], Awaitable[None]]:
    """Return the handler that answers identify requests. `agent` is this program's agent string."""

    async def answer(stream: INetStream) -> None:
        record, _ = env_to_send_in_RPC(host)
        message = Identify(
            protocol_version=PROTOCOL_VERSION,
            agent_version=agent,
            public_key=host.get_public_key().serialize(),
            listen_addrs=[a.decapsulate_code(P_P2P).to_bytes() for a in host.get_addrs()],
            observed_addr=_observed_address(stream),
            protocols=[str(name) for name in host.get_mux().get_protocols() if name is not None],
            signedPeerRecord=record,
        )
        with trio.fail_after(REPLY_S):
            await write_message(stream, message)
            await stream.close()

    return answer


def _observed_address(stream: INetStream) -> bytes:
    """Return the remote address of the stream; empty for a relayed peer."""
    remote = stream.get_remote_address()
    if remote is None:
        return b""
    host, port = remote
    if host.lower().startswith("::ffff:"):
        host = host[len("::ffff:") :]
    raw: bytes = Multiaddr(f"/ip{6 if ':' in host else 4}/{host}/tcp/{port}").to_bytes()
    return raw


def _printable(text: str) -> str:
    """Return the printable ASCII characters, so that the text cannot control a terminal."""
    return "".join(c for c in text[:_MAX_AGENT_CHARS] if c.isascii() and c.isprintable())
