"""Addresses for joining this peer's swarm, the most likely to work first. No I/O of its own.

own listening addresses, relays' ─┐
observed by peers, who tried it  ─┼─▶ public before private before loopback,
bootstraps that answer, relays   ─┘   tried before untried, direct before relayed
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import get_args

from shoal_ipc.answers.doctor import BootstrapSeen
from shoal_ipc.answers.peer import JoinAddress, Scope, Tried, Whose
from shoal_p2p.net.address import host_and_port, is_circuit
from shoal_p2p.net.inbound_gate import ip_of
from shoal_p2p.net.private_networks import LOOPBACK, private_network_of
from shoal_p2p.peers.outside import ReachabilityReport
from shoal_wire.types import PeerId


def join_addresses(
    me: PeerId,
    listens: Iterable[str],
    *,
    outside: Iterable[ReachabilityReport] = (),
    ports: Collection[int] = (),
    bootstraps: Iterable[BootstrapSeen] = (),
) -> tuple[JoinAddress, ...]:
    """Return this peer's addresses and those of its bootstraps that answer, the best first.

    A relay of this peer is included: it may be up while this peer is not. `ports` are those that
    the peers of `outside` were asked to try.
    """
    tried = _tried(outside, ports)
    found: dict[str, JoinAddress] = {}
    for transport, outcome in tried.items():
        if outcome == "reached":  # also a router's port that is forwarded to another one
            _add(found, f"{transport}/p2p/{me}", "self", outcome)
    for address in listens:
        transport = address.rpartition("/p2p/")[0]
        _add(found, address, "self", tried.get(transport, "untried"))
        if is_circuit(transport):
            _add(found, transport.removesuffix("/p2p-circuit"), "relay", "reached")
    for seen in bootstraps:
        if seen.latency_ms is not None or seen.full_backoff_s is not None:
            _add(found, seen.address, "bootstrap", "reached")
    return tuple(sorted(found.values(), key=_rank))


def _add(found: dict[str, JoinAddress], address: str, whose: Whose, tried: Tried) -> None:
    transport = address.rpartition("/p2p/")[0]
    way = JoinAddress(
        address=address,
        via=whose,
        scope=_scope(host_and_port(transport)[0]),
        dial_result=tried,
        relayed=is_circuit(transport),
    )
    found.setdefault(address, way)


def _tried(outside: Iterable[ReachabilityReport], ports: Collection[int]) -> dict[str, Tried]:
    """Return the outcome by transport: peers dialled the addresses at which they see this one."""
    found: dict[str, Tried] = {}
    for seen in outside:
        address = ip_of(host_and_port(seen.observed)[0]) if seen.observed else None
        if address is None or not seen.dialled or is_circuit(seen.observed):
            continue
        for port in {*ports, *seen.open_ports}:
            transport = f"/ip{address.version}/{address}/tcp/{port}"
            if port in seen.open_ports:
                found[transport] = "reached"
            found.setdefault(transport, "failed")
    return found


def _scope(host: str) -> Scope:
    if ip_of(host) is None:  # a DNS name was announced on purpose
        return "public"
    network = private_network_of(host)
    if network is None:
        return "public"
    return "loopback" if network == LOOPBACK else "private"


def _rank(way: JoinAddress) -> tuple[int, int, bool, bool]:
    return (
        get_args(Scope).index(way.scope),
        get_args(Tried).index(way.dial_result),
        way.relayed,
        way.via != "self",
    )
