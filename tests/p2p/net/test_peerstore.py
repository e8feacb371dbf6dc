"""What is kept of a peer by py-libp2p's own memory: nothing that it pushes, and not for long."""

from __future__ import annotations

import tracemalloc
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from libp2p.custom_types import TProtocol
from libp2p.host.exceptions import StreamFailure
from libp2p.identity.identify.pb.identify_pb2 import Identify
from libp2p.peer.id import ID
from libp2p.utils.varint import encode_varint_prefixed
from multiaddr import Multiaddr  # type: ignore[import-untyped]

from shoal_p2p.net.host import Libp2pHost
from shoal_p2p.net.peerstore import (
    MAX_ADDRESSES,
    MAX_PROTOCOL_CHARS,
    MAX_PROTOCOLS,
    BoundedPeerStore,
)
from tests.support.nodes import open_test_host, protocols_of, until

PUSH = TProtocol("/ipfs/id/push/1.0.0")
NAMES = [f"/{number:07}" for number in range(100_000)]


def store_of(host: Libp2pHost) -> Any:
    return cast("Any", host.libp2p_host).get_peerstore()


async def test_nobody_takes_what_is_pushed() -> None:
    """A megabyte of protocol names, pushed by each of some names, stays nowhere."""
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


async def test_with_its_connection_a_peer_is_forgotten() -> None:
    async with open_test_host() as one:
        alone = set(store_of(one).peer_ids())
        async with open_test_host() as two:
            await two.dial(one.listen_addrs()[0])
            await until(lambda: one.connections() and one.connections()[0].agent)
        await until(lambda: not one.connected_peers())
        assert set(store_of(one).peer_ids()) == alone
        assert not store_of(one).peer_record_map


CALLS = st.lists(
    st.tuples(
        st.sampled_from(["add_protocols", "set_protocols", "add_addrs"]),
        st.integers(0, 3),
        st.integers(0, 300),
        st.integers(1, 3 * MAX_PROTOCOL_CHARS),
    ),
    max_size=20,
)


@settings(max_examples=100)
@given(calls=CALLS)
def test_no_calls_make_it_keep_more_of_a_peer(calls: list[tuple[str, int, int, int]]) -> None:
    store = BoundedPeerStore()
    for call, peer, count, length in calls:
        peer_id = ID(f"peer {peer}".encode())
        if call == "add_addrs":
            store.add_addrs(peer_id, [Multiaddr(f"/unix/{'a' * length}{n}") for n in range(count)])
        else:
            getattr(store, call)(peer_id, [f"{n:0{length}}" for n in range(count)])
    for data in store.peer_data_map.values():
        assert len(data.get_addrs()) <= MAX_ADDRESSES
        assert len(data.get_protocols()) <= MAX_PROTOCOLS
        assert all(len(name) <= MAX_PROTOCOL_CHARS for name in data.get_protocols())
        assert len(set(data.get_protocols())) == len(data.get_protocols())
