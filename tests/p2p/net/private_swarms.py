"""What the tests of private swarms share."""

from __future__ import annotations

from p2p.net.host import Libp2pHost


def format_swarm_key(key: bytes) -> str:
    """Return the text of a key file, as other libp2ps write it, for 32 bytes of key."""
    return f"/key/swarm/psk/1.0.0/\n/base16/\n{key.hex()}\n"


def num_refused(host: Libp2pHost) -> int:
    """Return the connections refused because of the swarm's key or its list of peers."""
    count: int = host._host.get_network().refusals.counts.total()
    return count
