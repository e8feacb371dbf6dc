"""Remembers the network of each peer that this node has been connected to.

A peer id says nothing about location, and a claimed address proves nothing. A connection proves
both that the peer has the key of its id and that it is in that network.
"""

from __future__ import annotations

from typing import Final

from shoal_base.bounded import MANY, BoundedDict
from shoal_p2p.net.interface import Host
from shoal_wire.types import PeerId

UNKNOWN_NETWORK: Final = ""
"""The network of a peer that this node has never been connected to."""


class MetNetworks:
    """Networks of at most `MANY` peers; the least recently used is forgotten.

    A peer is used with each group that it delivers, so one network that opens ten connections a
    second cannot make this node forget it.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._networks: BoundedDict[PeerId, str] = BoundedDict(MANY)
        host.add_peer_callbacks(connected=self._on_connected)

    def network_of(self, peer_id: PeerId) -> str:
        """Return a peer's network (`Host.source_of`); `UNKNOWN_NETWORK` if it has never been
        connected."""
        network = self._host.source_of(peer_id) or self._networks.get(peer_id, UNKNOWN_NETWORK)
        if network:
            self._networks[peer_id] = network
        return network

    def _on_connected(self, peer_id: PeerId) -> None:
        self.network_of(peer_id)
