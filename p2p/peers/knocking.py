"""What hole punching does on a real host: see `p2p.peers.hole_punch`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import trio
from libp2p.abc import INetStream

from p2p.net.address import host_and_port, is_circuit, to_libp2p_id
from p2p.net.connections import ConnectionInfo
from p2p.net.dcutr import DCUTR
from p2p.net.homes import home_of
from p2p.net.host import Libp2pHost
from p2p.peers.doors import Sighting, doors_of, has_many_doors
from p2p.peers.hole_punch import KnockFailedError
from p2p.peers.outside import tcp_ports
from shoal_wire.types import PeerId


class Knocking:
    """One host's end of it."""

    def __init__(self, host: Libp2pHost) -> None:
        self._host = host
        self._inner = host.libp2p_host
        self._come = trio.Event()
        host.add_peer_callbacks(connected=lambda _peer_id: self._come.set())

    def serve(self, follow: Callable[[INetStream], Awaitable[None]]) -> None:
        """Let others lead the talk."""
        self._inner.set_stream_handler(DCUTR, follow)

    def connections(self) -> tuple[ConnectionInfo, ...]:
        """Every live connection, one a peer."""
        return self._host.connections()

    async def somebody_comes(self) -> None:
        """Wait for the next peer, or return at once for one that has come meanwhile."""
        await self._come.wait()
        self._come = trio.Event()

    def addresses_of(self, peer_id: PeerId) -> tuple[str, ...]:
        """Transport addresses at which a peer says it listens."""
        return self._host.peer_addresses(peer_id)

    def doors(self) -> tuple[str, ...]:
        """Transport addresses at which this node may be knocked at, the surest first."""
        own = [address.rpartition("/p2p/")[0] for address in self._host.interface_addrs()]
        public = [address for address in own if home_of(host_and_port(address)[0]) is None]
        told = (*self._host.announced.given, *self._host.announced.forwarded, *public)
        return tuple(dict.fromkeys((*told, *doors_of(self._sightings(), tcp_ports(own)))))

    def has_many_doors(self) -> bool:
        """True if this node's router is known to show each place outside another port."""
        return has_many_doors(self._sightings())

    def _sightings(self) -> list[Sighting]:
        return [
            Sighting(local_port=c.local_port, observed=self._host.observed_address(c.peer_id))
            for c in self._host.connections()
            if not is_circuit(c.address)
        ]

    async def open_talk(self, peer_id: PeerId) -> INetStream:
        """Open a stream of the protocol. May raise anything."""
        return await self._inner.new_stream(to_libp2p_id(peer_id), [DCUTR])

    async def knock(self, address: str, peer_id: PeerId, *, as_client: bool) -> None:
        """Dial from the port listened on; the connection appears among the others.

        Raises:
            KnockFailedError: nobody is there, or somebody else.
        """
        swarm = self._inner.get_network()
        try:
            stream = await swarm.knock(address)
            if as_client:
                await swarm.greet_punched(stream, to_libp2p_id(peer_id))
                return
        except Exception as error:  # whoever is there is a stranger
            raise KnockFailedError(repr(error)) from error
        self._host.start_soon(partial(swarm.serve_punched, stream, address))
