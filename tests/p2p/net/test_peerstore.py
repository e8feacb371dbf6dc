"""py-libp2p's own memory of peers: nothing that they push, and not for long."""

from __future__ import annotations

import tracemalloc
from typing import Any, cast

import pytest
from libp2p.custom_types import TProtocol
from libp2p.host.exceptions import StreamFailure
from libp2p.identity.identify.pb.identify_pb2 import Identify
from libp2p.peer.id import ID
from libp2p.utils.varint import encode_varint_prefixed

from shoal_p2p.net.host import Libp2pHost
from tests.support.nodes import open_test_host, protocols_of, until

PUSH = TProtocol("/ipfs/id/push/1.0.0")
NAMES = [f"/{number:07}" for number in range(100_000)]


def store_of(host: Libp2pHost) -> Any:
    return cast("Any", host.libp2p_host).get_peerstore()


async def test_identify_push_is_ignored() -> None:
    """A megabyte of protocol names, pushed by each of several peer ids, is stored nowhere."""
    pushed = encode_varint_prefixed(Identify(protocols=NAMES).SerializeToString())
    async with open_test_host() as victim, open_test_host() as attacker:
        await attacker.dial(victim.listen_addrs()[0])
        await until(lambda: victim.is_connected(attacker.peer_id))
        library: Any = attacker.libp2p_host
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            with pytest.raises(StreamFailure):
                stream = await library.new_stream(ID.from_base58(victim.peer_id), [PUSH])
                await stream.write(pushed)
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert after - before < 1 << 20
        assert PUSH not in await protocols_of(victim.listen_addrs()[0])


async def test_claims_of_a_peer_do_not_enter_the_librarys_peerstore() -> None:
    async with open_test_host() as one:
        alone = set(store_of(one).peer_ids())
        async with open_test_host() as two:
            await two.dial(one.listen_addrs()[0])
            await until(lambda: one.connections() and one.connections()[0].agent)
            await one.ping(two.peer_id)
            assert set(store_of(one).peer_ids()) == alone
            assert not store_of(one).peer_record_map
