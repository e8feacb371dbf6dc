"""A peer list fits its bounds on both sides, and no entry can spoil the others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shoal_wire.envelope import peer_id_of
from shoal_wire.errors import RemoteError
from shoal_wire.limits import (
    MAX_ADDRS_PER_PEER,
    MAX_PEER_LIST_BYTES,
    MAX_PEERS_IN_LIST,
    MAX_SHARD_NUMBER,
    MAX_SHARDS_PER_PEER,
)
from shoal_wire.peers import (
    PeerAddresses,
    decode_peer_list,
    decode_peer_query,
    encode_peer_list,
    encode_peer_query,
)
from shoal_wire.types import PeerId
from shoal_wire.v1 import swarm_pb2 as pb
from tests.wire import wire_samples as sample

ME = peer_id_of(sample.PUBLIC_1)


def test_shards_travel_with_a_peer_within_their_bounds() -> None:
    announced = PeerAddresses(
        peer_id=ME, addresses=("/dns4/x/tcp/1",), shards=(3, 0, 3, MAX_SHARD_NUMBER, *range(100))
    )
    (read,) = decode_peer_list(encode_peer_list([announced]))
    assert len(read.shards) == MAX_SHARDS_PER_PEER
    assert read.shards[:4] == (3, 0, 1, 2)


def test_a_query_names_shards_and_an_empty_one_none() -> None:
    assert decode_peer_query(b"") == () == decode_peer_query(encode_peer_query())
    assert decode_peer_query(encode_peer_query((7, 2))) == (7, 2)
    assert len(decode_peer_query(encode_peer_query(range(4000)))) == MAX_SHARDS_PER_PEER


TEXT = st.text(st.characters(codec="utf-8"), max_size=60)
ANY_PEER = st.builds(
    PeerAddresses,
    peer_id=TEXT,
    addresses=st.lists(
        st.sampled_from(["/ip4/192.0.2.1/tcp/1", f"/dns4/{'x' * 430}", "x" * 505]) | TEXT,
        max_size=12,
    ).map(tuple),
)


LONG_PEER = PeerAddresses(peer_id=ME, addresses=(f"/dns4/{'x' * 430}",) * MAX_ADDRS_PER_PEER)
SHORT_PEER = PeerAddresses(peer_id=ME, addresses=("/ip4/192.0.2.1/tcp/1",))


@example([LONG_PEER], 20)
@example([SHORT_PEER], MAX_PEERS_IN_LIST + 1)
@given(st.lists(ANY_PEER, max_size=8), st.integers(1, 20))
@settings(max_examples=60)
def test_whatever_is_known_encodes_to_the_plausible_ones_that_fit(
    peers: list[PeerAddresses], times: int
) -> None:
    raw = encode_peer_list(peers * times)
    read = decode_peer_list(raw)
    announced = [peer for peer in map(_announced, peers * times) if peer.peer_id and peer.addresses]
    assert read == tuple(announced[: len(read)])
    for left_out in announced[len(read) : MAX_PEERS_IN_LIST]:
        assert len(raw + encode_peer_list([left_out])) > MAX_PEER_LIST_BYTES
        break


def _announced(peer: PeerAddresses) -> PeerAddresses:
    """What a list says of a peer."""
    kept = [
        address
        for address in peer.addresses[:MAX_ADDRS_PER_PEER]
        if len(f"{address}/p2p/{peer.peer_id}") <= 512 and f"{address}{peer.peer_id}".isprintable()
    ]
    return replace(peer, addresses=tuple(kept))


@given(
    st.lists(
        st.builds(
            PeerAddresses,
            peer_id=st.sampled_from([PeerId("12D3a"), PeerId("12D3b")]),
            addresses=st.lists(st.sampled_from(["/ip4/192.0.2.1/tcp/1", "/dns4/x/tcp/2", ""])).map(
                tuple
            ),
            shards=st.lists(st.integers(-1, MAX_SHARD_NUMBER), max_size=3).map(tuple),
        ),
        max_size=70,
    )
)
@settings(max_examples=50)
def test_the_bytes_are_those_of_one_message(peers: list[PeerAddresses]) -> None:
    """Encoded entries are cached and joined: the second encoding equals the first."""
    encoded = encode_peer_list(peers)
    assert pb.PeerList.FromString(encoded).SerializeToString(deterministic=True) == encoded
    assert encode_peer_list(peers) == encoded
    assert decode_peer_list(encoded) == decode_peer_list(encoded)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "/ip4/192.0.2.1/tcp/1",
        "/ip4/192.0.2.1/tcp/1/p2p/another",
        f"/ip4/192.0.2.1/tcp/1/p2p/{ME}/p2p-circuit",
        f"/ip4/192.0.2.1\n/tcp/1/p2p/{ME}",
        f"/dns4/{'x' * 512}/tcp/1/p2p/{ME}",
    ],
)
def test_an_address_of_the_wrong_form_is_left_out_alone(address: str) -> None:
    good = "/ip4/192.0.2.1/tcp/4001"
    message = pb.PeerList()
    message.peers.add(peer_id=ME, addresses=[address, f"{good}/p2p/{ME}"])
    message.peers.add(peer_id="only bad ones", addresses=[address])
    expected = (PeerAddresses(peer_id=ME, addresses=(good,)),)
    assert decode_peer_list(message.SerializeToString()) == expected


def test_a_list_over_the_bounds_is_refused_whole() -> None:
    message = pb.PeerList(peers=[pb.PeerAddresses()] * (MAX_PEERS_IN_LIST + 1))
    with pytest.raises(RemoteError, match="65 peers"):
        decode_peer_list(message.SerializeToString())
    with pytest.raises(RemoteError, match="65537 bytes"):
        decode_peer_list(bytes(MAX_PEER_LIST_BYTES + 1))


def test_bytes_that_are_no_list_are_refused() -> None:
    with pytest.raises(RemoteError, match="does not parse"):
        decode_peer_list(b"\xff")
