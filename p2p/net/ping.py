"""libp2p ping (`/ipfs/ping/1.0.0`): 32 random bytes, and the same 32 back."""

from __future__ import annotations

import secrets

import trio
from libp2p.custom_types import TProtocol
from libp2p.host.basic_host import BasicHost
from libp2p.host.exceptions import HostException
from libp2p.host.ping import ID as PING_ID
from libp2p.io.exceptions import IOException
from libp2p.network.exceptions import SwarmException

from p2p.net.address import to_libp2p_id
from p2p.net.request import RequestError, RequestFailure, root_cause
from p2p.net.swarm import reset_stream
from shoal_wire.types import PeerId

PING_BYTES = 32


async def ping(host: BasicHost, peer_id: PeerId) -> float:
    """Return one round trip in milliseconds, without the stream's negotiation.

    The caller holds the deadline. Raises RequestError; the reason is in `.failure`.
    """
    try:
        stream = await host.new_stream(to_libp2p_id(peer_id), [TProtocol(PING_ID)])
    except (HostException, SwarmException, IOException) as error:
        unsupported = "not supported" in root_cause(error)
        failure = RequestFailure.UNSUPPORTED if unsupported else RequestFailure.RESET
        raise RequestError(failure, f"{peer_id}: {root_cause(error)}") from error
    try:
        sent_at, sent, heard = trio.current_time(), secrets.token_bytes(PING_BYTES), b""
        await stream.write(sent)
        while len(heard) < PING_BYTES:
            piece = await stream.read(PING_BYTES - len(heard))
            if not piece:
                raise RequestError(RequestFailure.RESET, f"{peer_id} ended the stream")
            heard += piece
        took_ms = (trio.current_time() - sent_at) * 1000
    except IOException as error:
        raise RequestError(RequestFailure.RESET, f"{peer_id}: {error!r}") from error
    finally:
        await reset_stream(stream)
    if heard != sent:
        raise RequestError(RequestFailure.RESET, f"{peer_id} answered with other bytes")
    return took_ms
