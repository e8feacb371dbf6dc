"""Resolves names in transport addresses, so that the target of a dial is known in advance."""

from __future__ import annotations

import logging
import socket
from itertools import islice

import trio
from multiaddr import Multiaddr  # type: ignore[import-untyped]
from multiaddr.resolvers import DNSResolver  # type: ignore[import-untyped]

from shoal_p2p.net.address import dialable, host_and_port
from shoal_p2p.net.inbound_gate import ip_of
from shoal_wire.limits import MAX_ADDRS_PER_PEER
from shoal_wire.types import PeerId

logger = logging.getLogger(__name__)

_FAMILIES = {"dns": socket.AF_UNSPEC, "dns4": socket.AF_INET, "dns6": socket.AF_INET6}


async def resolve(transport: str, peer_id: PeerId) -> tuple[str, ...]:
    """Return the transport addresses that a canonical address resolves to, each with an IP address.

    An address without a name resolves to itself, a ``dnsaddr`` to the records for `peer_id`. Empty
    if the name has no address. The caller sets a deadline.
    """
    host, port = host_and_port(transport)
    if ip_of(host) is not None:
        return (transport,)
    kind = transport.split("/", 2)[1]
    rest = transport.partition(f"/tcp/{port}")[2]  # for a circuit, its path
    try:
        if kind == "dnsaddr":
            return await _resolve_dnsaddr(host, peer_id)
        found = await trio.socket.getaddrinfo(host, port, _FAMILIES[kind], socket.SOCK_STREAM)
    except Exception as error:  # noqa: BLE001 - resolvers may raise anything for a name's records
        logger.debug("no address of %s: %r", host, error)
        return ()
    texts = (str(sockaddr[0]).partition("%")[0] for *_, sockaddr in found)
    places = (f"/ip{6 if ':' in ip else 4}/{ip}/tcp/{port}{rest}" for ip in texts)
    return dialable(places)


async def _resolve_dnsaddr(host: str, peer_id: PeerId) -> tuple[str, ...]:
    """Return the addresses of a peer in a name's dnsaddr records."""
    records = await DNSResolver().resolve(Multiaddr(f"/dnsaddr/{host}"))
    texts = (str(one) for one in islice(records or (), 4 * MAX_ADDRS_PER_PEER))
    ending = f"/p2p/{peer_id}"
    return dialable(text.removesuffix(ending) for text in texts if text.endswith(ending))
