"""The doors of a router, as peers see them: where this node may be knocked at. No I/O of its own.

A router has a door for each port behind it.  One that has another door for each place outside
(symmetric) cannot be told where to knock: the door that peers see is theirs alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shoal_p2p.net.address import host_and_port
from shoal_p2p.net.inbound_gate import ip_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedAddress:
    """One peer's word on where this node's connection comes from."""

    local_port: int
    """This end's port of that connection."""
    observed: str
    """Transport address at the other end; a claim."""


def punch_candidates(sightings: Iterable[ObservedAddress], ports: Sequence[int]) -> tuple[str, ...]:
    """Return the addresses at which a host that listens on `ports` may be knocked at, surest first.

    First what is seen of those ports; then the same numbers at the hosts that were seen, since many
    routers keep a port's number.
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
    """Return whether one port was seen at two ports of one host: the router is symmetric."""
    seen: dict[tuple[int, str], str] = {}
    for sighting in sightings:
        if not sighting.observed or not sighting.local_port:
            continue
        host, port = sighting.observed.rpartition("/")[::2]
        if seen.setdefault((sighting.local_port, host), port) != port:
            return True
    return False
