"""What others say of a peer's addresses: which of it is dialled, and how often. Pure.

    said ─▶ public, or in a private network that the speaker is in? ─▶ kept behind what is proven
    due  ─▶ dials left of who said it, of that place and of that network? ─▶ dialled, else later

Whoever names an address may name a third party's, under as many peer ids as it likes; so nothing
here goes by peer id but where all share loopback.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from p2p.fair.buckets import KeyedBuckets, Rate
from p2p.net.address import host_and_port
from p2p.net.homes import LOOPBACK, NOWHERE, home_of
from p2p.net.inbound_gate import prefix_of
from shoal_wire.types import PeerId

DIALS_A_PLACE = Rate(burst=4.0, per_second=4 / 60)
"""Of one host and port that this node has not reached yet, whatever names are said to be there."""
DIALS_A_NETWORK = Rate(burst=32.0, per_second=32 / 60)
"""Of one network (`prefix_of`); loopback is free."""
DIALS_A_SPEAKER = Rate(burst=32.0, per_second=32 / 60)
"""Of what one network has said, or one peer of this machine, or mDNS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """Who has said something of addresses."""

    source: str
    """What it shares its dials with: its network, or itself on this machine."""
    homes: frozenset[str] | None
    """The private networks that it may tell of; None where that is not known."""

    def may_tell(self, transport: str) -> bool:
        """Return whether an address is public or of a network that the speaker is in."""
        home = home_of(host_and_port(transport)[0])
        if home == NOWHERE:
            return False
        return home is None or self.homes is None or home in self.homes


def speaker_at(peer_id: PeerId, transport: str, own_homes: Callable[[], frozenset[str]]) -> Speaker:
    """Return the speaker at the other end of a connection; "" where that is not known any more.

    One over loopback is of this machine, and so of all networks that this machine is in. One
    through a relay is where the relay is.
    """
    host = host_and_port(transport)[0] if transport else ""
    home = home_of(host)
    homes = homes_of([transport]) if transport else frozenset()
    if home == LOOPBACK:
        homes |= own_homes()
    return Speaker(source=prefix_of(host) or peer_id, homes=homes)


def homes_of(transports: list[str]) -> frozenset[str]:
    """Return the private networks that these addresses are in."""
    found = {home_of(host_and_port(transport)[0]) for transport in transports}
    return frozenset(home for home in found if home is not None and home != NOWHERE)


class DialBudget:
    """Dials left of addresses that nobody has answered at yet."""

    def __init__(self) -> None:
        self._of_speaker: KeyedBuckets[str] = KeyedBuckets(DIALS_A_SPEAKER, max_keys=4096)
        self._of_place: KeyedBuckets[tuple[str, int]] = KeyedBuckets(DIALS_A_PLACE, max_keys=4096)
        self._of_network: KeyedBuckets[str] = KeyedBuckets(DIALS_A_NETWORK, max_keys=4096)

    def take(
        self, transport: str, source: str | None, now: float, *, is_reached: bool = False
    ) -> float:
        """Take one dial and return 0, or take nothing and return the seconds to wait.

        `source` is None for what this node knows by itself; `is_reached` is a circuit through a
        relay that is connected already.
        """
        place = host_and_port(transport)
        network = prefix_of(place[0])
        buckets = [] if source is None else [self._of_speaker.of(source, now)]
        if not is_reached:
            buckets.append(self._of_place.of(place, now))
            if network is not None:
                buckets.append(self._of_network.of(network, now))
        wait_s = max((bucket.wait_s(1.0, now) for bucket in buckets), default=0.0)
        if wait_s > 0:
            return wait_s
        for bucket in buckets:
            bucket.take(1.0, now)
        return 0.0
