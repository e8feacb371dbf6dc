"""Peer lists: how a newcomer learns of others (`/shoal/peers/1`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from shoal_wire.errors import RemoteError
from shoal_wire.limits import (
    MAX_ADDRS_PER_PEER,
    MAX_PEER_LIST_BYTES,
    MAX_PEERS_IN_LIST,
    MAX_SHARDS,
    MAX_SHARDS_PER_PEER,
)
from shoal_wire.types import PeerId
from shoal_wire.v1 import swarm_pb2 as pb

_MAX_ADDRESS_CHARS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerAddresses:
    """Where a peer says, or was seen, to listen."""

    peer_id: PeerId
    addresses: tuple[str, ...]
    """Multiaddresses as text, ending in ``/p2p/<peer_id>``."""
    shards: tuple[int, ...] = ()
    """Shards to which the teller last saw it subscribed; a hint."""


def encode_peer_list(peers: Iterable[PeerAddresses]) -> bytes:
    """Return a `PeerList` that `decode_peer_list` takes: the first peers that fit its bounds.

    What a receiver would leave out is left out here, so that no peer's addresses can push the
    list over its size and take it from everybody else.
    """
    message = pb.PeerList()
    for peer in peers:
        if len(message.peers) == MAX_PEERS_IN_LIST:
            break
        addresses = _plausible(peer.peer_id, peer.addresses)
        if not (peer.peer_id and addresses):
            continue
        message.peers.add(
            peer_id=peer.peer_id, addresses=addresses, shards=_plausible_shards(peer.shards)
        )
        if message.ByteSize() > MAX_PEER_LIST_BYTES:
            del message.peers[-1]
            break
    return message.SerializeToString()


def decode_peer_list(raw: bytes) -> tuple[PeerAddresses, ...]:
    """Decode a peer list; entries with addresses of the wrong form are left out.

    Raises:
        RemoteError: not a peer list, or longer than the contract allows.
    """
    if len(raw) > MAX_PEER_LIST_BYTES:
        raise RemoteError(f"peer list of {len(raw)} bytes")
    try:
        message = pb.PeerList.FromString(raw)
    except DecodeError:
        raise RemoteError("peer list does not parse") from None
    if len(message.peers) > MAX_PEERS_IN_LIST:
        raise RemoteError(f"peer list of {len(message.peers)} peers")
    return tuple(
        PeerAddresses(
            peer_id=PeerId(peer.peer_id),
            addresses=addresses,
            shards=_plausible_shards(peer.shards),
        )
        for peer in message.peers
        if peer.peer_id and (addresses := _plausible(peer.peer_id, peer.addresses))
    )


def encode_peer_query(shards: Iterable[int] = ()) -> bytes:
    """Return a request for peers, first those of `shards`; empty bytes where none is named."""
    return pb.PeerQuery(shards=_plausible_shards(shards)).SerializeToString()


def decode_peer_query(raw: bytes) -> tuple[int, ...]:
    """Return the shards that a request for peers names; at most `MAX_SHARDS_PER_PEER`.

    Raises:
        RemoteError: not a request for peers.
    """
    try:
        return _plausible_shards(pb.PeerQuery.FromString(raw).shards)
    except DecodeError:
        raise RemoteError("peer query does not parse") from None


def _plausible_shards(shards: Iterable[int]) -> tuple[int, ...]:
    """Return the first distinct shards that a swarm could have."""
    possible = dict.fromkeys(shard for shard in shards if 0 <= shard < MAX_SHARDS)
    return tuple(possible)[:MAX_SHARDS_PER_PEER]


def _plausible(peer_id: str, addresses: Sequence[str]) -> tuple[str, ...]:
    ending = f"/p2p/{peer_id}"
    return tuple(
        address
        for address in addresses[:MAX_ADDRS_PER_PEER]
        if len(address) <= _MAX_ADDRESS_CHARS and address.endswith(ending) and address.isprintable()
    )
