"""Classifies text addresses by private network. Pure."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

from shoal_base.bounded import REMEMBERED
from shoal_p2p.net.inbound_gate import IpAddress, ip_of

LOOPBACK = "loopback"
UNROUTABLE = "nowhere"
_PRIVATE = tuple(
    ipaddress.ip_network(block)
    for block in (
        *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16"),
        *("fc00::/7", "fe80::/10"),
    )
)


def private_network_of(host: str) -> str | None:
    """Return the private IP block of a text address, or LOOPBACK; None for a public address.

    A DNS name is UNROUTABLE: its owner can change its address after the check.
    """
    address = ip_of(host)
    return UNROUTABLE if address is None else _private_block(address)


@lru_cache(maxsize=REMEMBERED)
def _private_block(address: IpAddress) -> str | None:
    if address.is_loopback:
        return LOOPBACK
    for block in _PRIVATE:
        if address.version == block.version and address in block:
            return str(block)
    unusable = address.is_unspecified or address.is_multicast or int(address) >> 24 == 0
    return UNROUTABLE if unusable else None
