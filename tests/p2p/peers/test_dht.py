"""The DHT's own rules, between two real hosts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from libp2p.peer.peerinfo import PeerInfo
from multiaddr import Multiaddr  # type: ignore[import-untyped]

from p2p.net.address import to_libp2p_id
from p2p.net.host import Libp2pHost
from p2p.peers.dht import Dht, swarm_key
from shoal_wire.peers import PeerAddresses
from shoal_wire.types import Digest
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


def test_keys_are_multihashes_and_differ_by_swarm() -> None:
    key = swarm_key(DIGEST)
    assert bytes.fromhex(key)[:2] == b"\x12\x20"
    assert len(bytes.fromhex(key)) == 34
    assert key != swarm_key(Digest(b"e" * 32))
