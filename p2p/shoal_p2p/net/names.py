"""Looks up the names in transport addresses, so that what is dialled is known before."""

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


async def look_up(transport: str, peer_id: PeerId) -> tuple[str, ...]:
    """Return the transport addresses that a canonical one stands for, each with an IP address.

    One without a name is itself; of a ``dnsaddr`` those of `peer_id` are returned. Empty where the
    name has no address. The caller sets a deadline.
    """
    host, port = host_and_port(transport)
    if ip_of(host) is not None:
        return (transport,)
    kind = transport.split("/", 2)[1]
    rest = transport.partition(f"/tcp/{port}")[2]  # of a circuit: its relay
    try:
        if kind == "dnsaddr":
            return await _by_records(host, peer_id)
        found = await trio.socket.getaddrinfo(host, port, _FAMILIES[kind], socket.SOCK_STREAM)
    except Exception as error:  # noqa: BLE001 - resolvers raise whatever a name's records make them
        logger.debug("no address of %s: %r", host, error)
        return ()
    texts = (str(sockaddr[0]).partition("%")[0] for *_, sockaddr in found)
    places = (f"/ip{6 if ':' in ip else 4}/{ip}/tcp/{port}{rest}" for ip in texts)
    return dialable(places)


async def _by_records(host: str, peer_id: PeerId) -> tuple[str, ...]:
    """Return what a name's records say of a peer."""
    records = await DNSResolver().resolve(Multiaddr(f"/dnsaddr/{host}"))
    told = (str(one) for one in islice(records or (), 4 * MAX_ADDRS_PER_PEER))
    ending = f"/p2p/{peer_id}"
    return dialable(text.removesuffix(ending) for text in told if text.endswith(ending))
