"""The network of each peer that this node has been connected to, now or earlier.

A name says nothing of where it is, and an address that a peer claims proves nothing. A connection
proves both: that the peer has the key of its name, and that it is in that network.
"""

from __future__ import annotations

from typing import Final

from shoal_base.bounded import MANY, BoundedDict
from shoal_p2p.net.interface import Host
from shoal_wire.types import PeerId

NEVER_MET: Final = ""
"""The network of a peer that this node has never been connected to."""


class MetNetworks:
    """Remembers the networks of at most `MANY` peers; the one used longest ago is forgotten.

    A peer whose groups arrive is used with each: one network, which may open ten connections a
    second, cannot make this node forget it.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._networks: BoundedDict[PeerId, str] = BoundedDict(MANY)
        host.add_peer_callbacks(connected=self._on_connected)

    def network_of(self, peer_id: PeerId) -> str:
        """Return a peer's network (`Host.source_of`); `NEVER_MET` without a connection so far."""
        network = self._host.source_of(peer_id) or self._networks.get(peer_id, NEVER_MET)
        if network:
            self._networks[peer_id] = network
        return network

    def _on_connected(self, peer_id: PeerId) -> None:
        self.network_of(peer_id)
