"""The addresses that a host announces to peers. Pure except for listing the interfaces.

configured by the user ─ none ─▶ interface addresses, and ports that a router forwards
        │                                        │
        └──────────────── or ────────────────────┴─▶ + addresses through relays
"""

from __future__ import annotations

from collections.abc import Iterable

from shoal_p2p.net.address import expand_unspecified, host_and_port, is_circuit, parse_transport
from shoal_p2p.net.inbound_gate import ip_of
from shoal_p2p.net.private_networks import UNROUTABLE, private_network_of


def parse_announced(text: str) -> str:
    """Return a transport address that the user wants announced, in canonical form.

    Raises:
        ValueError: no peer could dial it. One line.
    """
    if "/p2p/" in text:
        raise ValueError(f"{text!r} must be announced without a peer id: end it at the port")
    address = parse_transport(text)
    host, port = host_and_port(address)
    is_routable = ip_of(host) is None or private_network_of(host) != UNROUTABLE
    if not port or not is_routable or is_circuit(address):
        raise ValueError(
            f"{text!r} cannot be dialled by peers: give the address and port that they see, "
            "e.g. /ip4/203.0.113.7/tcp/4001 or /dns4/host.example/tcp/4001"
        )
    return address


class AnnouncedAddresses:
    """The transport addresses that one host announces."""

    def __init__(self, configured: tuple[str, ...] = ()) -> None:
        """Addresses `configured` by the user replace those of the machine."""
        self.configured = configured
        self.forwarded: tuple[str, ...] = ()
        """Ports of a router that lead here, verified from outside."""
        self.relayed: tuple[str, ...] = ()
        """Addresses through relays with a reservation."""

    def to_announce(self, listening: Iterable[str]) -> tuple[str, ...]:
        """Return the addresses to announce for a host that listens on `listening`; empty if it does
        not."""
        listening = tuple(listening)
        if not listening:
            return ()
        direct = self.configured or (*interface_addresses(listening), *self.forwarded)
        return tuple(dict.fromkeys((*direct, *self.relayed)))


def interface_addresses(listening: Iterable[str]) -> tuple[str, ...]:
    """Return the listening addresses, with unspecified hosts expanded to the interfaces."""
    return tuple(dict.fromkeys(a for address in listening for a in expand_unspecified(address)))
