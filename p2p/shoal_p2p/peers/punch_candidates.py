"""Candidate addresses for hole punching: NAT mappings as peers observe them. No I/O of its own.

A NAT maps each local port to an external port. A symmetric NAT uses another mapping for each remote
endpoint, so the port that a peer observes is valid for that peer only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shoal_p2p.net.address import host_and_port
from shoal_p2p.net.inbound_gate import ip_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedAddress:
    """This node's address as one peer observes it."""

    local_port: int
    """The local port of that connection."""
    observed: str
    """Transport address as the peer reports it; not verified."""


def punch_candidates(sightings: Iterable[ObservedAddress], ports: Sequence[int]) -> tuple[str, ...]:
    """Return candidate addresses of a host that listens on `ports`, the most likely first.

    First the mappings observed for those ports; then the same port numbers at the observed hosts,
    since many routers keep the number.
    """
    hosts: dict[str, None] = {}
    seen: dict[str, None] = {}
    for sighting in sightings:
        if not sighting.observed or ip_of(host_and_port(sighting.observed)[0]) is None:
            continue
        hosts[sighting.observed.rpartition("/")[0]] = None
        if sighting.local_port in ports:
            seen[sighting.observed] = None
    return tuple(dict.fromkeys((*seen, *(f"{host}/{port}" for host in hosts for port in ports))))


def is_symmetric_nat(sightings: Iterable[ObservedAddress]) -> bool:
    """Return whether one local port was observed at two ports of one host."""
    seen: dict[tuple[int, str], str] = {}
    for sighting in sightings:
        if not sighting.observed or not sighting.local_port:
            continue
        host, port = sighting.observed.rpartition("/")[::2]
        if seen.setdefault((sighting.local_port, host), port) != port:
            return True
    return False
