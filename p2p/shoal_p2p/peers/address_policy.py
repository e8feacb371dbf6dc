"""Decides which third-party addresses are dialled, and how often.

    received ─▶ public, or in a private network of its source? ─▶ kept behind proven addresses
    due ─▶ dials left for its source, that address and that network? ─▶ dialled, otherwise later
    configured, or from an invitation ─▶ dials left for that address? ─▶ dialled, otherwise later

A peer can name a third party's address, under any number of peer ids. So limits do not go by peer
id, except where all peers share loopback.
"""

from __future__ import annotations

from dataclasses import dataclass

import trio

from shoal_base.bounded import MANY
from shoal_p2p.fair.buckets import KeyedBuckets, Rate, take_from_all
from shoal_p2p.net.address import expand_unspecified, host_and_port, is_circuit
from shoal_p2p.net.inbound_gate import prefix_of
from shoal_p2p.net.interface import Host
from shoal_p2p.net.private_networks import LOOPBACK, UNROUTABLE, private_network_of
from shoal_wire.types import PeerId

DIALS_PER_ADDRESS = Rate(burst=4.0, per_second=4 / 60)
"""Dials of one host and port that this node has not reached yet, for all peers named there: few
enough that a hundred nodes do not harm a third party. Third-party and configured addresses are
counted separately, or a peer could use up the dials of a bootstrap by naming its address."""
DIALS_PER_NETWORK = Rate(burst=32.0, per_second=32 / 60)
"""Dials of one network (`prefix_of`; loopback is exempt), and of all addresses from one source: a
network, a peer of this machine, or mDNS. Half of what a peer list holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressSource:
    """A source of addresses."""

    source: str
    """The key by which its dials are counted: its network, or its peer id on this machine."""
    networks: frozenset[str] | None
    """The private networks whose addresses it may report; None for mDNS, which reaches all of
    them."""

    def is_allowed(self, transport: str) -> bool:
        """Return whether an address is public, or in a private network of the source."""
        network = private_network_of(host_and_port(transport)[0])
        if network == UNROUTABLE:
            return False
        return network is None or self.networks is None or network in self.networks


def private_networks_of(transports: list[str]) -> frozenset[str]:
    """Return the private networks of these addresses."""
    found = {private_network_of(host_and_port(transport)[0]) for transport in transports}
    return frozenset(network for network in found if network is not None and network != UNROUTABLE)


class AddressPolicy:
    """Knows the sources of addresses, and counts the dials of addresses that have not answered yet.

    Discovery, shards and hole punching share one policy.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._by_source: KeyedBuckets[str] = KeyedBuckets(DIALS_PER_NETWORK, max_keys=MANY)
        self._by_address: KeyedBuckets[tuple[str, int]] = KeyedBuckets(
            DIALS_PER_ADDRESS, max_keys=MANY
        )
        self._by_configured: KeyedBuckets[tuple[str, int]] = KeyedBuckets(
            DIALS_PER_ADDRESS, max_keys=MANY
        )
        self._by_network: KeyedBuckets[str] = KeyedBuckets(DIALS_PER_NETWORK, max_keys=MANY)

    def speaker(self, peer_id: PeerId) -> AddressSource:
        """Return a peer as a source of addresses; without private networks once it is disconnected.

        A peer over loopback belongs to all networks of this machine, a relayed peer to its relay's.
        """
        transport = self._host.remote_address(peer_id)
        if not transport:
            return AddressSource(source=peer_id, networks=frozenset())
        host = host_and_port(transport)[0]
        networks = private_networks_of([transport])
        if private_network_of(host) == LOOPBACK:
            networks |= own_private_networks()
        return AddressSource(source=prefix_of(host) or peer_id, networks=networks)

    def may_dial(self, address: str, source: str | None) -> bool:
        """Charge one dial of a third-party address, and return whether it was within the limits."""
        return self.wait_s(address, source) == 0

    def wait_s(self, address: str, source: str | None) -> float:
        """Charge one dial and return 0, or charge nothing and return the seconds to wait.

        `source` is None for addresses that this node knows itself. A circuit through a connected
        relay is not charged to the relay's network.
        """
        now = trio.current_time()
        buckets = [] if source is None else [self._by_source.get(source, now)]
        if not self._uses_connected_relay(address):
            place = host_and_port(address)
            network = prefix_of(place[0])
            buckets.append(self._by_address.get(place, now))
            if network is not None:
                buckets.append(self._by_network.get(network, now))
        return take_from_all(buckets, now)

    def configured_wait_s(self, address: str) -> float:
        """Do the same for an address from the user or an invitation."""
        if self._uses_connected_relay(address):
            return 0.0
        now = trio.current_time()
        return take_from_all([self._by_configured.get(host_and_port(address), now)], now)

    def _uses_connected_relay(self, address: str) -> bool:
        """Return whether an address is a circuit through a connected relay."""
        relay = address.partition("/p2p/")[2].partition("/")[0] if is_circuit(address) else ""
        return relay in self._host.connected_peers()


def own_private_networks() -> frozenset[str]:
    """Return the private networks of this machine."""
    anywhere = ("/ip4/0.0.0.0/tcp/0", "/ip6/::/tcp/0")
    return private_networks_of([own for address in anywhere for own in expand_unspecified(address)])
