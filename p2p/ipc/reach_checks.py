"""What the doctor says of routers: ports that they forward, holes that were punched. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from p2p.ipc.finding import Finding, State


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingSeen:
    """What became of asking the router to forward a port."""

    state: str
    """A `p2p.peers.port_mapping.Mapping`."""
    place: str
    """Transport address that the router says leads here; empty for none."""
    error: str
    """Why it forwards none; empty if it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachSeen:
    """How routers are crossed."""

    mapping: MappingSeen | None = None
    """None where no router was asked."""
    punched: tuple[int, int] = (0, 0)
    """Peers met through a relay that are reached directly since, and all with whom it was tried."""
    relayed: int = 0
    """Connections through a relay, now."""
    many_doors: bool = False
    """The router shows each place outside another port of it (symmetric)."""
    announced: tuple[str, ...] = ()
    """Addresses that the user has told to others in place of the machine's own."""


def port_mapping(reach: ReachSeen, *, is_reached: bool) -> Iterator[Finding]:
    """Say what became of asking the router; `is_reached` if peers get in now."""
    seen = reach.mapping
    if seen is None:
        return
    says, do = {
        "reached": (f"the router forwards {seen.place} to this node, and peers get in by it", ""),
        "untried": (f"the router forwards {seen.place} to this node; no peer has tried it yet", ""),
        "shut": (
            f"the router forwards {seen.place} to this node, but peers do not get in by it",
            "there is another router above it, or a firewall: forward the port there too, or leave "
            "it to relays",
        ),
    }.get(
        seen.state,
        (
            f"no router forwards a port when asked ({seen.error or 'not asked yet'})",
            ""
            if is_reached
            else "turn NAT-PMP or UPnP on in the router, or forward the port by hand",
        ),
    )
    yield Finding(
        check="port mapping",
        state=State.WARN if seen.state == "shut" else State.OK,
        says=says,
        do=do,
    )


def direct(reach: ReachSeen) -> Iterator[Finding]:
    """Say how many peers met through a relay are reached directly."""
    num_direct, num_tried = reach.punched
    if not (num_tried or reach.relayed):
        return
    doors = "; this node's router shows each place another port" if reach.many_doors else ""
    yield Finding(
        check="direct",
        state=State.OK,
        says=f"{num_direct} of {num_tried} peers met through a relay are reached directly since; "
        f"{reach.relayed} go through one now{doors}",
        do="a forwarded port of one of the two makes the others direct"
        if num_direct < num_tried
        else "",
    )
