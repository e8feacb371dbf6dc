"""Hearsay, what peers say of others' addresses: which of it is dialled, and how often.

    said ─▶ public, or in a private network that the speaker is in? ─▶ kept behind what is proven
    due  ─▶ dials left of who said it, of that place and of that network? ─▶ dialled, else later
    given by the user or an invitation ─▶ dials left of that place? ─▶ dialled, else later

Whoever names an address may name a third party's, under as many peer ids as it likes; so nothing
here goes by peer id but where all share loopback.
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

DIALS_A_PLACE = Rate(burst=4.0, per_second=4 / 60)
"""Dials of one host and port that this node has not reached, whatever peers are said to be there:
few enough that a hundred nodes do not harm a third party. What hearsay names and what was given are
counted apart: or whoever names a bootstrap's place could use up the dials of the bootstrap."""
DIALS_A_NETWORK = Rate(burst=32.0, per_second=32 / 60)
"""Dials of one network (`prefix_of`; loopback is free), and of what one network has said, or one
peer of this machine, or mDNS. Half of what a peer list names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressSource:
    """A source of addresses."""

    source: str
    """The key that its dials are counted by: its network, or on this machine its peer id."""
    homes: frozenset[str] | None
    """The private networks that it may tell of; None for mDNS, which is heard in all of them."""

    def may_tell(self, transport: str) -> bool:
        """Return whether an address is public or of a network that the speaker is in."""
        home = private_network_of(host_and_port(transport)[0])
        if home == UNROUTABLE:
            return False
        return home is None or self.homes is None or home in self.homes


def homes_of(transports: list[str]) -> frozenset[str]:
    """Return the private networks that these addresses are in."""
    found = {private_network_of(host_and_port(transport)[0]) for transport in transports}
    return frozenset(home for home in found if home is not None and home != UNROUTABLE)


class AddressPolicy:
    """Knows the speakers, and counts the dials left for addresses that nobody has answered at.

    All that dials by what peers say shares one: discovery, shards, hole punching.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._of_speaker: KeyedBuckets[str] = KeyedBuckets(DIALS_A_NETWORK, max_keys=MANY)
        self._of_place: KeyedBuckets[tuple[str, int]] = KeyedBuckets(DIALS_A_PLACE, max_keys=MANY)
        self._of_given: KeyedBuckets[tuple[str, int]] = KeyedBuckets(DIALS_A_PLACE, max_keys=MANY)
        self._of_network: KeyedBuckets[str] = KeyedBuckets(DIALS_A_NETWORK, max_keys=MANY)

    def speaker(self, peer_id: PeerId) -> AddressSource:
        """Return a peer as a speaker: of no private network once it is not connected any more.

        One over loopback is of this machine, and so of all networks that this machine is in. One
        through a relay is where the relay is.
        """
        transport = self._host.remote_address(peer_id)
        if not transport:
            return AddressSource(source=peer_id, homes=frozenset())
        host = host_and_port(transport)[0]
        homes = homes_of([transport])
        if private_network_of(host) == LOOPBACK:
            homes |= own_homes()
        return AddressSource(source=prefix_of(host) or peer_id, homes=homes)

    def may_dial(self, address: str, source: str | None) -> bool:
        """Take one of the dials left for an address of which this node has only heard."""
        return self.wait_s(address, source) == 0

    def wait_s(self, address: str, source: str | None) -> float:
        """Take one dial and return 0, or take nothing and return the seconds to wait.

        `source` is None for what this node knows by itself. A circuit through a connected relay
        costs its network nothing.
        """
        now = trio.current_time()
        buckets = [] if source is None else [self._of_speaker.get(source, now)]
        if not self._is_through_a_friend(address):
            place = host_and_port(address)
            network = prefix_of(place[0])
            buckets.append(self._of_place.get(place, now))
            if network is not None:
                buckets.append(self._of_network.get(network, now))
        return take_from_all(buckets, now)

    def given_wait_s(self, address: str) -> float:
        """Return the same for an address that the user or an invitation gave."""
        if self._is_through_a_friend(address):
            return 0.0
        now = trio.current_time()
        return take_from_all([self._of_given.get(host_and_port(address), now)], now)

    def _is_through_a_friend(self, address: str) -> bool:
        """Return whether an address is a circuit through a relay that is connected."""
        relay = address.partition("/p2p/")[2].partition("/")[0] if is_circuit(address) else ""
        return relay in self._host.connected_peers()


def own_homes() -> frozenset[str]:
    """Return the private networks that this machine is in."""
    anywhere = ("/ip4/0.0.0.0/tcp/0", "/ip6/::/tcp/0")
    return homes_of([own for address in anywhere for own in expand_unspecified(address)])
