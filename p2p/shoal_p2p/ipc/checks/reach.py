"""Checks of how peers reach this one: directly, through routers, over which transports. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Final

from shoal_ipc.answers.doctor import Finding
from shoal_p2p.ipc.checks.seen import Seen, found, host_of


def reachable(seen: Seen) -> Iterator[Finding]:
    """Check whether peers could open a connection to this one."""
    facts = seen.facts
    tried = [one for one in facts.reachability if one.dialled]
    reached, relays = sum(one.reached for one in tried), len(seen.status.relays)
    if not tried:
        why = "no connected peer could be asked" if facts.reachability else "no peer is connected"
        yield found("reachable", f"not known yet: {why}")
    elif reached:
        announced = ", ".join(facts.reach.announced)
        yield found(
            "reachable",
            f"{reached} of {len(tried)} peers that tried could connect to this node"
            + (f", announced as {announced}" if announced else ""),
        )
    elif relays:
        yield found(
            "reachable",
            f"through relays ({relays}); directly by none of {len(tried)} that tried",
        )
    else:
        yield found(
            "reachable",
            f"none of {len(tried)} peers that tried could connect to this node",
            "warn",
            "it works through the connections that it opens itself; so that peers can connect to "
            "it, fix the port with --listen, forward that TCP port and open the firewall; or start "
            "the bootstrap with --relay (docs/reach.md)",
        )


def port_mapping(seen: Seen) -> Iterator[Finding]:
    """The outcome of asking the router for a port."""
    mapping = seen.facts.reach.mapping
    if mapping is None:
        return
    forwards = f"the router forwards {mapping.address} to this node"
    if mapping.state == "reached":
        yield found("port mapping", f"{forwards}, and peers can connect through it")
    elif mapping.state == "untried":
        yield found("port mapping", f"{forwards}; no peer has tried it yet")
    elif mapping.state == "shut":
        yield found(
            "port mapping",
            f"{forwards}, but peers cannot connect through it",
            "warn",
            "another router or a firewall is in front of it: forward the port there too, or rely "
            "on relays",
        )
    else:
        is_reached = any(one.reached for one in seen.facts.reachability)
        remedy = "turn UPnP on in the router, or forward the port by hand"
        yield found(
            "port mapping",
            f"no router forwards a port when asked ({mapping.error or 'not asked yet'})",
            remedy="" if is_reached else remedy,
        )


def direct(seen: Seen) -> Iterator[Finding]:
    """Count the peers met through a relay that are reached directly."""
    reach = seen.facts.reach
    if not (reach.direct_attempts or reach.relayed):
        return
    nat = (
        "; this node's router shows each peer another port (symmetric NAT)"
        if reach.is_symmetric_nat
        else ""
    )
    remedy = "forward a port at one of the two peers: then they can connect directly"
    yield found(
        "direct",
        f"{reach.direct_successes} of {reach.direct_attempts} peers met through a relay are "
        "reached directly since; "
        f"{reach.relayed} go through one now{nat}",
        remedy=remedy if reach.direct_successes < reach.direct_attempts else "",
    )


def observed(seen: Seen) -> Iterator[Finding]:
    """The address at which peers see this one, and whether it is one of its own."""
    hosts = sorted({host_of(one.observed) for one in seen.facts.reachability if one.observed})
    own = {host_of(address) for address in seen.facts.listen_addresses}
    foreign = ", ".join(host for host in hosts if host not in own)
    message = f"peers see this node's address as {foreign or ', '.join(hosts)}"
    if foreign:
        remedy = "it is behind address translation (NAT): see `reachable`"
        yield found("observed", f"{message}, which is not one of its own addresses", remedy=remedy)
    elif hosts:
        yield found("observed", message)


_LISTEN_REMEDY: Final = (
    "if they should, start it with --listen /ip4/0.0.0.0/tcp/4001 (without IPv4: /ip6/::/tcp/4001)"
)


def transports(seen: Seen) -> Iterator[Finding]:
    """The transport addresses that it listens on."""
    facts = seen.facts
    if not facts.listen_addresses:
        yield found("transports", "listens nowhere", "bad", "give an address with --listen")
        return
    yield found("transports", f"listens on {', '.join(facts.listen_addresses)}")
    if all(_is_loopback(host_of(address)) for address in facts.listen_addresses):
        yield found(
            "transports",
            "listens on loopback only: peers on other machines cannot connect to this node"
            if facts.has_network
            else "this machine has only a loopback network: it reaches no peer on another machine",
            remedy=_LISTEN_REMEDY if facts.has_network else "",
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
