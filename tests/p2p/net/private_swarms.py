"""What the tests of private swarms share."""

from __future__ import annotations

from shoal_p2p.net.host import Libp2pHost


def num_refused(host: Libp2pHost) -> int:
    """Return the connections refused because of the swarm's key or its list of peers."""
    count: int = host._host.get_network().refusals.counts.total()
    return count
