"""Peer lists: how a newcomer discovers other peers (`/shoal/peers/1`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from google.protobuf.message import DecodeError

from shoal_wire.errors import RemoteError
from shoal_wire.limits import (
    KEPT,
    MAX_ADDRS_PER_PEER,
    MAX_PEER_LIST_BYTES,
    MAX_PEERS_IN_LIST,
    MAX_SHARD_NUMBER,
    MAX_SHARDS_PER_PEER,
)
from shoal_wire.types import PeerId
from shoal_wire.v1 import swarm_pb2 as pb

_MAX_ADDRESS_CHARS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerAddresses:
    """A peer and its candidate transport addresses."""

    peer_id: PeerId
    addresses: tuple[str, ...]
    """Addresses without the peer id, e.g. ``/ip4/127.0.0.1/tcp/4001``; the likeliest first."""
    shards: tuple[int, ...] = ()
    """Shards to which it was last seen subscribed; a hint."""


def encode_peer_list(peers: Iterable[PeerAddresses]) -> bytes:
    """Return a `PeerList` that `decode_peer_list` accepts: the first peers within its bounds.

    Entries that a receiver would skip are skipped here, so that no peer's addresses can push the
    list over its size limit and make it useless.
    """
    entries: list[bytes] = []
    num_bytes = 0
    for entry in filter(None, map(_entry, peers)):
        num_bytes += len(entry)
        if len(entries) == MAX_PEERS_IN_LIST or num_bytes > MAX_PEER_LIST_BYTES:
            break
        entries.append(entry)
    return b"".join(entries)


@lru_cache(maxsize=KEPT)
def _entry(peer: PeerAddresses) -> bytes:
    """Encode a list of one peer; empty without a plausible address. Such lists concatenate."""
    ending = _ending(peer.peer_id)
    addresses = _plausible([address + ending for address in peer.addresses], ending)
    if not (peer.peer_id and addresses):
        return b""
    entry = pb.PeerAddresses(
        peer_id=peer.peer_id, addresses=addresses, shards=_plausible_shards(peer.shards)
    )
    return pb.PeerList(peers=[entry]).SerializeToString()


def decode_peer_list(raw: bytes) -> tuple[PeerAddresses, ...]:
    """Decode a peer list, and skip entries with malformed addresses.

    Raises:
        RemoteError: not a peer list, or longer than the protocol allows.
    """
    if len(raw) > MAX_PEER_LIST_BYTES:
        raise RemoteError(f"peer list of {len(raw)} bytes")
    try:
        message = pb.PeerList.FromString(raw)
    except DecodeError:
        raise RemoteError("peer list does not parse") from None
    if len(message.peers) > MAX_PEERS_IN_LIST:
        raise RemoteError(f"peer list of {len(message.peers)} peers")
    peers = map(_peer_from_pb, message.peers)
    return tuple(peer for peer in peers if peer.peer_id and peer.addresses)


def encode_peer_query(shards: Iterable[int] = ()) -> bytes:
    """Encode a request for peers, those of `shards` preferred; empty bytes without any."""
    return pb.PeerQuery(shards=_plausible_shards(shards)).SerializeToString()


def decode_peer_query(raw: bytes) -> tuple[int, ...]:
    """Decode a request for peers to its preferred shards, at most `MAX_SHARDS_PER_PEER`.

    Raises:
        RemoteError: not a request for peers.
    """
    try:
        return _plausible_shards(pb.PeerQuery.FromString(raw).shards)
    except DecodeError:
        raise RemoteError("peer query does not parse") from None


def _peer_from_pb(message: pb.PeerAddresses) -> PeerAddresses:
    return _peer(message.peer_id, tuple(message.addresses), tuple(message.shards))


# A peer names the same peers in each of its replies.
@lru_cache(maxsize=KEPT)
def _peer(peer_id: str, addresses: tuple[str, ...], shards: tuple[int, ...]) -> PeerAddresses:
    ending = _ending(peer_id)
    return PeerAddresses(
        peer_id=PeerId(peer_id),
        addresses=tuple(a.removesuffix(ending) for a in _plausible(addresses, ending)),
        shards=_plausible_shards(shards),
    )


def _plausible_shards(shards: Iterable[int]) -> tuple[int, ...]:
    """Return the first distinct shards that a swarm could have."""
    possible = dict.fromkeys(shard for shard in shards if 0 <= shard < MAX_SHARD_NUMBER)
    return tuple(possible)[:MAX_SHARDS_PER_PEER]


def _ending(peer_id: str) -> str:
    """Return the suffix of each of a peer's addresses on the wire."""
    return f"/p2p/{peer_id}"


def _plausible(addresses: Sequence[str], ending: str) -> tuple[str, ...]:
    return tuple(
        address
        for address in addresses[:MAX_ADDRS_PER_PEER]
        if len(address) <= _MAX_ADDRESS_CHARS and address.endswith(ending) and address.isprintable()
    )
