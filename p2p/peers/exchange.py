"""Request/response protocols every peer serves: the manifest, and whom it knows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import trio

from p2p.net.address import parse_peer_address
from p2p.net.host import RequestError
from p2p.net.interface import Host
from p2p.peers.peer_book import PeerAddr, PeerBook
from p2p.shards.directory import ShardDirectory, ShardPeer
from shoal_wire.errors import RemoteError
from shoal_wire.limits import (
    MANIFEST_PROTOCOL,
    MAX_MANIFEST_BYTES,
    MAX_PEER_LIST_BYTES,
    MAX_PEERS_IN_LIST,
    PEERS_PROTOCOL,
)
from shoal_wire.manifest import Manifest, decode_manifest
from shoal_wire.peers import (
    PeerAddresses,
    decode_peer_list,
    decode_peer_query,
    encode_peer_list,
    encode_peer_query,
)
from shoal_wire.types import PeerId

log = logging.getLogger(__name__)

_MAX_REQUEST_BYTES = 1024
_MAX_DIRECT = 6
_MAX_RELAYED = 2
_TIMEOUT_SECONDS = 5.0


def serve_manifest(host: Host, manifest: Manifest) -> None:
    """Answer newcomers with the manifest's exact bytes."""

    async def answer(_peer_id: PeerId, _request: bytes) -> bytes:
        return manifest.raw

    host.set_request_handler(MANIFEST_PROTOCOL, answer, max_request_bytes=_MAX_REQUEST_BYTES)


def serve_peers(
    host: Host,
    book: Callable[[], PeerBook],
    directory: ShardDirectory | None = None,
    relayed: Callable[[PeerId], tuple[str, ...]] = lambda _peer: (),
) -> None:
    """Answer with peers of the shards asked for, then connected peers, then remembered ones.

    `relayed` are more transport addresses of a connected peer, through this one as its relay.
    Never with the asker itself. A malformed query resets the stream.
    """

    async def answer(peer_id: PeerId, request: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        shards = decode_peer_query(request)
        on_shards = (
            directory.find(shards, trio.current_time(), limit=MAX_PEERS_IN_LIST, exclude={peer_id})
            if directory is not None
            else []
        )
        others = _known_peers(host, book(), relayed, exclude=peer_id)
        return encode_peer_list(_with_shards(on_shards, others))

    host.set_request_handler(PEERS_PROTOCOL, answer, max_request_bytes=_MAX_REQUEST_BYTES)


async def fetch_manifest(host: Host, peer_id: PeerId) -> Manifest:
    """Ask one peer for its manifest.

    Raises:
        RequestError: no answer in time.
        ManifestError: an answer that cannot be used.
    """
    raw = await host.request(
        peer_id,
        MANIFEST_PROTOCOL,
        b"",
        max_response_bytes=MAX_MANIFEST_BYTES,
        timeout=_TIMEOUT_SECONDS,
    )
    return decode_manifest(raw)


async def fetch_peers(host: Host, peer_id: PeerId) -> list[PeerAddr]:
    """Ask one peer whom it knows; empty where it does not answer or answers nonsense."""
    return [item.peer for item in await fetch_shard_peers(host, peer_id, ())]


async def fetch_shard_peers(host: Host, peer_id: PeerId, shards: Sequence[int]) -> list[ShardPeer]:
    """Ask one peer whom it knows, those of `shards` first; as `fetch_peers`."""
    try:
        raw = await host.request(
            peer_id,
            PEERS_PROTOCOL,
            encode_peer_query(shards),
            max_response_bytes=MAX_PEER_LIST_BYTES,
            timeout=_TIMEOUT_SECONDS,
        )
        return [_split(peer) for peer in decode_peer_list(raw)]
    except (RequestError, RemoteError, ValueError) as error:
        log.debug("no peers from %s: %s", peer_id, error)
        return []


def _split(peer: PeerAddresses) -> ShardPeer:
    addresses = tuple(parse_peer_address(address).transport for address in peer.addresses)
    return ShardPeer(peer=PeerAddr(peer_id=peer.peer_id, addresses=addresses), shards=peer.shards)


def _with_shards(
    on_shards: Sequence[ShardPeer], others: Sequence[PeerAddresses]
) -> list[PeerAddresses]:
    first = {
        item.peer.peer_id: PeerAddresses(
            peer_id=item.peer.peer_id,
            addresses=tuple(f"{a}/p2p/{item.peer.peer_id}" for a in item.peer.addresses),
            shards=item.shards,
        )
        for item in on_shards
    }
    return [*first.values(), *(peer for peer in others if peer.peer_id not in first)]


def _known_peers(
    host: Host,
    book: PeerBook,
    relayed: Callable[[PeerId], tuple[str, ...]],
    *,
    exclude: PeerId,
) -> list[PeerAddresses]:
    found: dict[PeerId, tuple[str, ...]] = {
        peer_id: (*host.peer_addresses(peer_id)[:_MAX_DIRECT], *relayed(peer_id)[:_MAX_RELAYED])
        for peer_id in sorted(host.connected_peers())
    }
    for entry in book.ranked():
        found.setdefault(entry.peer_id, entry.addresses)
    known = [
        PeerAddresses(
            peer_id=peer_id, addresses=tuple(f"{address}/p2p/{peer_id}" for address in addresses)
        )
        for peer_id, addresses in found.items()
        if addresses and peer_id not in (exclude, host.peer_id)
    ]
    return known[:MAX_PEERS_IN_LIST]
