"""Admits connections before a handshake: slots and rate by network prefix. Pure.

A prefix is an IPv4 /24 or an IPv6 /48: names cost nothing, networks do.  Loopback is let through
unless told otherwise, since all of a machine's nodes share it.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from shoal_base.bounded import MANY, REMEMBERED
from shoal_p2p.fair.buckets import KeyedBuckets, Rate, TokenBucket

_IPV4_BITS, _IPV6_BITS = 24, 48


class GateRefusal(StrEnum):
    """Why a connection was closed before its handshake."""

    FULL = "full"
    PREFIX_HANDSHAKES = "prefix_handshakes"
    PREFIX_FULL = "prefix_full"
    PREFIX_PACE = "prefix_pace"
    PACE = "pace"


IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLimits:
    """Limits on inbound connections and their handshakes."""

    prefix_connections: int = 64
    prefix_handshakes: int = 16
    prefix_pace: Rate = field(default=Rate(burst=64.0, per_second=10.0))
    pace: Rate = field(default=Rate(burst=400.0, per_second=50.0))
    """Pace of everybody together, which bounds what handshakes cost."""
    limit_loopback: bool = False


@lru_cache(maxsize=REMEMBERED)
def ip_of(host: str) -> IpAddress | None:
    """Return a text address as a number, an IPv4 one in IPv6's clothes as what it is; else None.

    Texts are no longer than those that `parse_transport` lets through.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def prefix_of(host: str) -> str | None:
    """Return the network a text address belongs to; None for loopback or what is no address."""
    address = ip_of(host)
    return None if address is None or address.is_loopback else _network(address)


@lru_cache(maxsize=REMEMBERED)
def _network(address: IpAddress) -> str:
    bits = _IPV4_BITS if address.version == 4 else _IPV6_BITS
    return str(ipaddress.ip_network((address, bits), strict=False))


class InboundGate:
    """Counts what is open and unfinished."""

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
        """Connections let in whose handshake has not ended."""
        return self._handshakes

    def admit(self, host: str, now: float) -> GateTicket | GateRefusal:
        """Let a connection in, or say why not."""
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
        """Return the network that a connection from `host` is counted with; None for none."""
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

    def settled(self, prefix: str | None) -> None:
        """A handshake has ended, well or not."""
        self._handshakes -= 1
        _less(self._handshaking, prefix)

    def left(self, prefix: str | None) -> None:
        """A connection has ended."""
        _less(self._open, prefix)


class GateTicket:
    """One admitted connection: tell it when the handshake and when the connection has ended."""

    def __init__(self, gate: InboundGate, prefix: str | None) -> None:
        self._gate = gate
        self._prefix = prefix
        self._shaking = True

    def settled(self) -> None:
        """The handshake is over; the slot stays taken."""
        if self._shaking:
            self._shaking = False
            self._gate.settled(self._prefix)

    def left(self) -> None:
        """The connection is over."""
        self.settled()
        self._gate.left(self._prefix)


def _less(counter: Counter[str], prefix: str | None) -> None:
    if prefix is None:
        return
    counter[prefix] -= 1
    if counter[prefix] <= 0:
        del counter[prefix]
