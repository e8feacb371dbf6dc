"""Addresses at which a peer can be dialled, as it tells others. Pure but for the interfaces.

what the user says ─ none ─▶ the interfaces' addresses, and what a router forwards here
        │                                        │
        └──────────────── or ────────────────────┴─▶ + those through relays
"""

from __future__ import annotations

from collections.abc import Iterable

from shoal_p2p.net.address import expand_unspecified, host_and_port, is_circuit, parse_transport
from shoal_p2p.net.inbound_gate import ip_of
from shoal_p2p.net.private_networks import NOWHERE, private_network_of


def parse_announced(text: str) -> str:
    """Return the transport address that a user wants told to others, in canonical form.

    Raises:
        ValueError: nobody could dial it; one line.
    """
    if "/p2p/" in text:
        raise ValueError(f"{text!r} is announced without a peer id: end it at the port")
    address = parse_transport(text)
    host, port = host_and_port(address)
    is_place = ip_of(host) is None or private_network_of(host) != NOWHERE
    if not port or not is_place or is_circuit(address):
        raise ValueError(
            f"{text!r} is not where others could connect: say the address and port that they see, "
            "e.g. /ip4/203.0.113.7/tcp/4001 or /dns4/host.example/tcp/4001"
        )
    return address


class AnnouncedAddresses:
    """The addresses of one host; all are transport addresses."""

    def __init__(self, given: tuple[str, ...] = ()) -> None:
        """`given` by the user take the place of what the machine knows of itself."""
        self.given = given
        self.forwarded: tuple[str, ...] = ()
        """Ports of a router that lead here, tried from outside."""
        self.relayed: tuple[str, ...] = ()
        """Addresses through relays that hold a place."""

    def beside(self, listening: Iterable[str]) -> tuple[str, ...]:
        """Return what others are told by a host that listens there; none if it does nowhere."""
        listening = tuple(listening)
        if not listening:
            return ()
        direct = self.given or (*interfaces_of(listening), *self.forwarded)
        return tuple(dict.fromkeys((*direct, *self.relayed)))


def interfaces_of(listening: Iterable[str]) -> tuple[str, ...]:
    """Return the addresses listened on, interfaces spelled out."""
    return tuple(dict.fromkeys(a for address in listening for a in expand_unspecified(address)))
