"""Checks of how a peer is reached: from outside, through routers, over which transports. Pure."""

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
        why = "no connected peer could be asked" if facts.reachability else "nobody is there to ask"
        yield found("reachable", f"not known: {why}", "warn", "ask again later")
    elif reached:
        announced = ", ".join(facts.reach.announced)
        yield found(
            "reachable",
            f"{reached} of {len(tried)} peers that tried could connect to this node"
            + (f", told to others as {announced}" if announced else ""),
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
            "it works by the connections that it opens itself; to be found by others too, "
            "forward its TCP port, fix the port with --listen, and open the firewall; or have the "
            "bootstrap started with --relay (docs/reach.md)",
        )


def port_mapping(seen: Seen) -> Iterator[Finding]:
    """The outcome of asking the router for a port."""
    mapping = seen.facts.reach.mapping
    if mapping is None:
        return
    forwards = f"the router forwards {mapping.address} to this node"
    if mapping.state == "reached":
        yield found("port mapping", f"{forwards}, and peers get in by it")
    elif mapping.state == "untried":
        yield found("port mapping", f"{forwards}; no peer has tried it yet")
    elif mapping.state == "shut":
        yield found(
            "port mapping",
            f"{forwards}, but peers do not get in by it",
            "warn",
            "there is another router above it, or a firewall: forward the port there too, or leave "
            "it to relays",
        )
    else:
        is_reached = any(one.reached for one in seen.facts.reachability)
        do = "turn UPnP on in the router, or forward the port by hand"
        yield found(
            "port mapping",
            f"no router forwards a port when asked ({mapping.error or 'not asked yet'})",
            do="" if is_reached else do,
        )


def direct(seen: Seen) -> Iterator[Finding]:
    """Count the peers met through a relay that are reached directly."""
    reach = seen.facts.reach
    if not (reach.direct_attempts or reach.relayed):
        return
    doors = "; this node's router shows each place another port" if reach.is_symmetric_nat else ""
    do = "a forwarded port of one of the two makes the others direct"
    yield found(
        "direct",
        f"{reach.direct_successes} of {reach.direct_attempts} peers met through a relay are "
        "reached directly since; "
        f"{reach.relayed} go through one now{doors}",
        do=do if reach.direct_successes < reach.direct_attempts else "",
    )


def observed(seen: Seen) -> Iterator[Finding]:
    """The address at which peers see this one, and whether it is one of its own."""
    hosts = sorted({host_of(one.observed) for one in seen.facts.reachability if one.observed})
    own = {host_of(address) for address in seen.facts.listen_addresses}
    foreign = ", ".join(host for host in hosts if host not in own)
    says = f"peers see this node's address as {foreign or ', '.join(hosts)}"
    if foreign:
        do = "it is behind address translation: see reachable"
        yield found("observed", f"{says}, which is not one of its own addresses", do=do)
    elif hosts:
        yield found("observed", says)


_LISTEN_DO: Final = (
    "--listen /ip4/0.0.0.0/tcp/4001, if they should; /ip6/::/tcp/4001 where there is no IPv4"
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
            else "this machine has no network but loopback: no peer on another machine is reached",
            do=_LISTEN_DO if facts.has_network else "",
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
