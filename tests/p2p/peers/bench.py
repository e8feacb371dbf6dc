"""Discovery on a host without a network, whose peers tell of others what the test says."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from shoal_lab.simulation.parts import at_once
from shoal_p2p.disk import KeptState
from shoal_p2p.net.identity import identity_from_seed
from shoal_p2p.peers.address_policy import AddressPolicy
from shoal_p2p.peers.discovery import Discovery
from shoal_wire.peers import PeerAddresses
from shoal_wire.types import PeerId
from tests.support.doubles.host import FakeHost
from tests.support.running import running

IDENTITY = identity_from_seed(bytes([99]) * 32)
ME = IDENTITY.peer_id


def peer(number: int) -> PeerAddresses:
    """Return a peer that listens at an address of its own."""
    peer_id = identity_from_seed(number.to_bytes(32, "big")).peer_id
    return reported(peer_id, f"/ip4/10.0.0.1/tcp/{1000 + number}")


def reported(peer_id: PeerId, *addresses: str) -> PeerAddresses:
    """Return the addresses reported for a peer."""
    return PeerAddresses(peer_id=peer_id, addresses=addresses)


def full(address: PeerAddresses) -> str:
    """Return a peer's first address, with its name."""
    return f"{address.addresses[0]}/p2p/{address.peer_id}"


class Net(FakeHost):
    """A host whose peers answer at their true addresses only, and tell it of others."""

    def __init__(self, *up: PeerAddresses, **more: Any) -> None:
        super().__init__(identity=IDENTITY, up=set(map(full, up)), **more)
        self.lists: dict[PeerId, list[PeerAddresses]] = {}
        """The peers that each peer tells of."""
        self.exchanges: list[tuple[float, PeerId]] = []
        """When which peer was asked for its list."""

    async def fetch(self, peer_id: PeerId) -> list[PeerAddresses]:
        """Request a peer's list of peers."""
        await trio.lowlevel.checkpoint()
        self.exchanges.append((trio.current_time(), peer_id))
        return self.lists.get(peer_id, [])

    def dialled(self) -> list[str]:
        """Return the transport addresses dialled, in order."""
        return [dial.address.rpartition("/p2p/")[0] for dial in self.dials]


@asynccontextmanager
async def discovering(
    net: Net, *bootstrap: PeerAddresses, book_path: Path | None = None, **more: Any
) -> AsyncIterator[Discovery]:
    """Run discovery over `net`."""
    discovery = Discovery(
        host=net,
        address_policy=AddressPolicy(net),
        bootstrap=tuple(map(full, bootstrap)),
        fetch_peers=net.fetch,
        file=KeptState(book_path, "peers", in_thread=at_once) if book_path is not None else None,
        rng=random.Random(3),
        wall_ms=lambda: 1_700_000_000_000,
        **more,
    )
    async with running(discovery):
        yield discovery
