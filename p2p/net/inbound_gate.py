"""Whom to let in before a handshake: slots and pace by network prefix. Pure.

A prefix is an IPv4 /24 or an IPv6 /48: names cost nothing, networks do.  Loopback is let through
unless told otherwise, since all of a machine's nodes share it.
"""

from __future__ import annotations

import ipaddress
from collections import Counter, OrderedDict
from dataclasses import dataclass
from enum import StrEnum

_MAX_PREFIXES = 4096
_IPV4_BITS, _IPV6_BITS = 24, 48


class Refusal(StrEnum):
    """Why a connection was closed before its handshake."""

    HANDSHAKES = "too_many_handshakes"
    PREFIX_HANDSHAKES = "prefix_handshakes"
    PREFIX_FULL = "prefix_full"
    PREFIX_PACE = "prefix_pace"
    PACE = "pace"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLimits:
    """What inbound connections may occupy; 0 connections of a prefix is no limit."""

    prefix_connections: int = 64
    prefix_handshakes: int = 16
    prefix_per_second: float = 10.0
    prefix_burst: float = 64.0
    handshakes: int = 64
    """Unfinished handshakes, everybody together."""
    per_second: float = 50.0
    burst: float = 400.0
    limit_loopback: bool = False


class Bucket:
    """A token bucket on the caller's clock."""

    def __init__(self, *, per_second: float, burst: float, now: float) -> None:
        self._per_second = per_second
        self._burst = burst
        self._tokens = burst
        self._at = now

    def take(self, tokens: float, now: float) -> bool:
        """Take `tokens` if they are there."""
        self._refill(now)
        if self._tokens < tokens:
            return False
        self._tokens -= tokens
        return True

    def owe(self, tokens: float, now: float) -> None:
        """Take `tokens` even where there are none, down to a debt of one burst."""
        self._refill(now)
        self._tokens = max(-self._burst, self._tokens - tokens)

    def wait_s(self, now: float) -> float:
        """Return the seconds until the debt is paid; 0 without one."""
        self._refill(now)
        return max(0.0, -self._tokens / self._per_second)

    @property
    def owing(self) -> bool:
        """Whether there was a debt at the last call."""
        return self._tokens < 0.0

    def _refill(self, now: float) -> None:
        earned = max(0.0, now - self._at) * self._per_second
        self._tokens = min(self._burst, self._tokens + earned)
        self._at = max(self._at, now)


def prefix_of(host: str) -> str | None:
    """Return the network a text address belongs to; None for loopback or what is no address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_loopback:
        return None
    return _network(address)


def _network(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    bits = _IPV4_BITS if address.version == 4 else _IPV6_BITS
    return str(ipaddress.ip_network((address, bits), strict=False))


class InboundGate:
    """Counts what is open and unfinished, in all and by prefix."""

    def __init__(self, limits: GateLimits, now: float) -> None:
        self._limits = limits
        self._open: Counter[str] = Counter()
        self._handshaking: Counter[str] = Counter()
        self._handshakes = 0
        self._pace = Bucket(per_second=limits.per_second, burst=limits.burst, now=now)
        self._paces: OrderedDict[str, Bucket] = OrderedDict()
        self.refused: Counter[Refusal] = Counter()

    def admit(self, host: str, now: float) -> Ticket | Refusal:
        """Let a connection in, or say why not."""
        prefix = self._prefix(host)
        refusal = self._refusal(prefix, now)
        if refusal is not None:
            self.refused[refusal] += 1
            return refusal
        self._handshakes += 1
        if prefix is not None:
            self._open[prefix] += 1
            self._handshaking[prefix] += 1
        return Ticket(self, prefix)

    def _prefix(self, host: str) -> str | None:
        prefix = prefix_of(host)
        if prefix is None and self._limits.limit_loopback:
            try:
                return _network(ipaddress.ip_address(host.partition("%")[0]))
            except ValueError:
                return None
        return prefix

    def _refusal(self, prefix: str | None, now: float) -> Refusal | None:
        limits = self._limits
        if self._handshakes >= limits.handshakes:
            return Refusal.HANDSHAKES
        if prefix is not None:
            if self._handshaking[prefix] >= limits.prefix_handshakes:
                return Refusal.PREFIX_HANDSHAKES
            if 0 < limits.prefix_connections <= self._open[prefix]:
                return Refusal.PREFIX_FULL
            if not self._pace_of(prefix, now).take(1.0, now):
                return Refusal.PREFIX_PACE
        return None if self._pace.take(1.0, now) else Refusal.PACE

    def _pace_of(self, prefix: str, now: float) -> Bucket:
        limits = self._limits
        pace = self._paces.get(prefix)
        if pace is None:
            pace = Bucket(per_second=limits.prefix_per_second, burst=limits.prefix_burst, now=now)
            self._paces[prefix] = pace
            if len(self._paces) > _MAX_PREFIXES:
                self._paces.popitem(last=False)
        self._paces.move_to_end(prefix)
        return pace

    def settled(self, prefix: str | None) -> None:
        """A handshake has ended, well or not."""
        self._handshakes -= 1
        _less(self._handshaking, prefix)

    def left(self, prefix: str | None) -> None:
        """A connection has ended."""
        _less(self._open, prefix)


class Ticket:
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
