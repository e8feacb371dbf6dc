"""The DHT's own rules, between two real hosts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from libp2p.custom_types import TProtocol
from libp2p.host.exceptions import HostException
from libp2p.peer.peerinfo import PeerInfo
from multiaddr import Multiaddr  # type: ignore[import-untyped]

from p2p.net.address import to_libp2p_id
from p2p.net.host import Libp2pHost
from p2p.peers.dht import Dht, _DhtHost, swarm_key
from shoal_wire.peers import PeerAddresses
from shoal_wire.types import Digest, PeerId
from tests.support.nodes import fresh_identity, open_test_host, until

DIGEST = Digest(b"d" * 32)


@asynccontextmanager
async def taking_part(host: Libp2pHost, found: list[PeerAddresses]) -> AsyncIterator[Dht]:
    dht = Dht(host=host, digest=DIGEST, on_found=found.append, wanted=lambda: False, round_s=3600.0)
    async with trio.open_nursery() as nursery:
        await nursery.start(dht.run)
        await until(lambda: dht._dht is not None)
        yield dht
        nursery.cancel_scope.cancel()


async def test_a_node_that_has_announced_itself_still_asks_the_others() -> None:
    somebody = fresh_identity().peer_id
    transport = "/ip4/192.0.2.7/tcp/4001"
    found: list[PeerAddresses] = []
    async with (
        open_test_host() as one,
        open_test_host() as two,
        taking_part(one, []) as theirs,
        taking_part(two, found) as mine,
    ):
        theirs._dht.provider_store.add_provider(
            bytes.fromhex(swarm_key(DIGEST)),
            PeerInfo(to_libp2p_id(somebody), [Multiaddr(transport)]),
        )
        await two.dial(one.listen_addrs()[0])
        await until(lambda: two.peer_addresses(one.peer_id))
        assert await mine._learn_peers(mine._dht) == 1
        assert await mine._announce(mine._dht)
        await mine._look(mine._dht)
        assert found == [PeerAddresses(peer_id=somebody, addresses=(transport,))]
        await mine._look(mine._dht)
        assert found[1:] == found[:1], "what is remembered is told again, never oneself"


async def test_names_of_one_network_take_a_share_of_the_places_of_a_key() -> None:
    networks: dict[PeerId, str | None] = {}
    key = bytes.fromhex(swarm_key(DIGEST))
    async with open_test_host() as host, taking_part(host, []) as dht:
        store = dht._dht.provider_store  # type: ignore[union-attr]
        store._network_of = lambda peer_id: networks[peer_id]
        for number in range(40):
            name = fresh_identity().peer_id
            networks[name] = "198.51.100.0/24"
            at = Multiaddr(f"/ip4/198.51.100.1/tcp/{number + 1}")
            store.add_provider(key, PeerInfo(to_libp2p_id(name), [at]))
            store.add_provider(key, PeerInfo(to_libp2p_id(name), [at]))
        assert len(store.get_providers(key)) == 5
        friend, neighbour = fresh_identity().peer_id, fresh_identity().peer_id
        networks |= {friend: "203.0.113.0/24", neighbour: None}
        for name in (friend, neighbour):
            store.add_provider(key, PeerInfo(to_libp2p_id(name), [Multiaddr("/ip4/1.2.3.4/tcp/1")]))
        assert len(store.get_providers(key)) == 7, "another network's, and one of this machine"
        await dht._look(dht._dht)  # type: ignore[arg-type]
        name = fresh_identity().peer_id
        networks[name] = "198.51.100.0/24"
        store.add_provider(key, PeerInfo(to_libp2p_id(name), [Multiaddr("/ip4/1.2.3.4/tcp/1")]))
        assert len(store.get_providers(key)) == 7, "a look forgets nobody's network"


async def test_a_lookup_dials_only_what_it_may() -> None:
    asked: list[str] = []

    def may_dial(address: str) -> bool:
        asked.append(address)
        return False

    third = fresh_identity().peer_id
    async with open_test_host() as host:
        facade = _DhtHost(host, may_dial)
        facade.learn(to_libp2p_id(third), [Multiaddr("/ip4/127.0.0.1/tcp/9")])
        with pytest.raises(HostException):
            await facade.new_stream(to_libp2p_id(third), [TProtocol("/x/1")])
    assert asked == ["/ip4/127.0.0.1/tcp/9"]


def test_keys_are_multihashes_and_differ_by_swarm() -> None:
    key = swarm_key(DIGEST)
    assert bytes.fromhex(key)[:2] == b"\x12\x20"
    assert len(bytes.fromhex(key)) == 34
    assert key != swarm_key(Digest(b"e" * 32))
