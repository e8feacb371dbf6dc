"""Admits connections before the handshake: slots and rate limits by network prefix. Pure.

A prefix is an IPv4 /24 or an IPv6 /48: peer ids are free, networks are not. Loopback is exempt by
default, since all nodes of a machine share it.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Annotated

from shoal_base.bounded import MANY, REMEMBERED
from shoal_base.ranges import Range, Ranged
from shoal_p2p.fair.buckets import KeyedBuckets, Rate, TokenBucket

_IPV4_BITS, _IPV6_BITS = 24, 48


class GateRefusal(StrEnum):
    """Reason why a connection was closed before its handshake."""

    FULL = "full"
    PREFIX_HANDSHAKES = "prefix_handshakes"
    PREFIX_FULL = "prefix_full"
    PREFIX_PACE = "prefix_pace"
    PACE = "pace"


IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLimits(Ranged):
    """Limits on inbound connections and their handshakes."""

    prefix_connections: Annotated[int, Range("connections", 1, 10_000)] = 64
    prefix_handshakes: Annotated[int, Range("handshakes", 1, 10_000)] = 16
    prefix_pace: Annotated[Rate, "connections"] = Rate(burst=64.0, per_second=10.0)
    pace: Annotated[Rate, "connections"] = Rate(burst=400.0, per_second=50.0)
    """Rate for all networks together, which limits the cost of handshakes."""
    limit_loopback: bool = False


@lru_cache(maxsize=REMEMBERED)
def ip_of(host: str) -> IpAddress | None:
    """Return the address object for a text address, with IPv4-mapped IPv6 as IPv4; None if it is
    not an IP address.

    Texts are no longer than `parse_transport` allows.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def prefix_of(host: str) -> str | None:
    """Return the network of a text address; None for loopback and for anything that is not an
    address."""
    address = ip_of(host)
    return None if address is None or address.is_loopback else _network(address)


@lru_cache(maxsize=REMEMBERED)
def _network(address: IpAddress) -> str:
    bits = _IPV4_BITS if address.version == 4 else _IPV6_BITS
    return str(ipaddress.ip_network((address, bits), strict=False))


class InboundGate:
    """Counts open connections and unfinished handshakes."""

    def __init__(self, limits: GateLimits, now: float) -> None:
        self._limits = limits
        self._open: Counter[str] = Counter()
        self._handshaking: Counter[str] = Counter()
        self._handshakes = 0
        self._pace = TokenBucket(limits.pace, now)
        self._paces: KeyedBuckets[str] = KeyedBuckets(limits.prefix_pace, max_keys=MANY)
        self.refused: Counter[GateRefusal] = Counter()

    @property
    def num_unfinished(self) -> int:
        """Admitted connections whose handshake has not ended."""
        return self._handshakes

    def admit(self, host: str, now: float) -> GateTicket | GateRefusal:
        """Admit a connection, or return the reason for refusing it."""
        prefix = self.prefix(host)
        refusal = self._refusal(prefix, now)
        if refusal is not None:
            self.refused[refusal] += 1
            return refusal
        self._handshakes += 1
        if prefix is not None:
            self._open[prefix] += 1
            self._handshaking[prefix] += 1
        return GateTicket(self, prefix)

    def prefix(self, host: str) -> str | None:
        """Return the network that a connection from `host` counts for; None if it is exempt."""
        if self._limits.limit_loopback and (address := ip_of(host)) is not None:
            return _network(address)
        return prefix_of(host)

    def _refusal(self, prefix: str | None, now: float) -> GateRefusal | None:
        limits = self._limits
        if prefix is not None:
            if self._handshaking[prefix] >= limits.prefix_handshakes:
                return GateRefusal.PREFIX_HANDSHAKES
            if self._open[prefix] >= limits.prefix_connections:
                return GateRefusal.PREFIX_FULL
            if not self._paces.get(prefix, now).try_take(1.0, now):
                return GateRefusal.PREFIX_PACE
        return None if self._pace.try_take(1.0, now) else GateRefusal.PACE

    def on_handshake_done(self, prefix: str | None) -> None:
        """Record that a handshake ended, successfully or not."""
        self._handshakes -= 1
        _decrement(self._handshaking, prefix)

    def on_closed(self, prefix: str | None) -> None:
        """Record that a connection ended."""
        _decrement(self._open, prefix)


class GateTicket:
    """One admitted connection. Its owner reports the end of the handshake and of the connection."""

    def __init__(self, gate: InboundGate, prefix: str | None) -> None:
        self._gate = gate
        self._prefix = prefix
        self._is_handshaking = True

    def on_handshake_done(self) -> None:
        """Record that the handshake ended. The connection still counts."""
        if self._is_handshaking:
            self._is_handshaking = False
            self._gate.on_handshake_done(self._prefix)

    def on_closed(self) -> None:
        """Record that the connection ended."""
        self.on_handshake_done()
        self._gate.on_closed(self._prefix)


def _decrement(counter: Counter[str], prefix: str | None) -> None:
    if prefix is None:
        return
    counter[prefix] -= 1
    if counter[prefix] <= 0:
        del counter[prefix]
