"""Request/response protocols of every peer: the manifest and the peer list."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import trio

from shoal_base.bounded import REMEMBERED
from shoal_base.waits import SHORT_DEADLINE_S
from shoal_p2p.net.address import parse_peer_address
from shoal_p2p.net.host import RequestError
from shoal_p2p.net.interface import Host
from shoal_p2p.net.streams import SHORT_BYTES
from shoal_p2p.peers.peer_book import PeerBook
from shoal_p2p.shards.directory import ShardDirectory
from shoal_wire.errors import RemoteError
from shoal_wire.limits import (
    FULL_PROTOCOL,
    MANIFEST_PROTOCOL,
    MAX_ADDRS_PER_PEER,
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

_MAX_RELAYED = 2
_MAX_DIRECT = MAX_ADDRS_PER_PEER - _MAX_RELAYED
"""Most addresses per listed peer: direct ones, and those through this node as its relay."""


OnSent = Callable[[PeerId, bytes], None]


def serve_manifest(
    host: Host, manifest: Manifest, *, on_sent: OnSent = lambda _peer, _request: None
) -> None:
    """Answer newcomers with the manifest's exact bytes; `on_sent` is as `Host` has it."""

    async def answer(_peer_id: PeerId, _request: bytes) -> bytes:
        return manifest.raw

    host.set_request_handler(
        MANIFEST_PROTOCOL, answer, max_request_bytes=SHORT_BYTES, on_sent=on_sent
    )


def serve_peers(
    host: Host,
    book: Callable[[], PeerBook],
    directory: ShardDirectory | None = None,
    relayed: Callable[[PeerId], tuple[str, ...]] = lambda _peer: (),
    rng: random.Random | None = None,
    on_sent: OnSent = lambda _peer, _request: None,
) -> None:
    """Answer with peers of the shards asked for, then connected peers, then remembered ones.

    If more peers are connected than a reply holds, `rng` picks: otherwise all newcomers would get
    the same few. `relayed` returns further transport addresses of a connected peer, through this
    one as its relay. The requester itself is never listed. A malformed query resets the stream.
    """
    chance = rng or random.Random()

    async def answer(peer_id: PeerId, request: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        shards = decode_peer_query(request)
        on_shards = (
            directory.find(shards, trio.current_time(), limit=MAX_PEERS_IN_LIST, exclude={peer_id})
            if directory is not None
            else []
        )
        others = _known_peers(host, book(), relayed, exclude=peer_id, rng=chance)
        first = {peer.peer_id: peer for peer in on_shards}
        known = [peer for peer in others if peer.peer_id not in first]
        return encode_peer_list([*on_shards, *known])

    host.set_request_handler(PEERS_PROTOCOL, answer, max_request_bytes=SHORT_BYTES, on_sent=on_sent)


def serve_full(host: Host, on_full: Callable[[PeerId], None]) -> None:
    """Call ``on_full(peer)`` when a peer reports that it is full and disconnects this one."""

    async def answer(peer_id: PeerId, _request: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        on_full(peer_id)
        return b""

    host.set_request_handler(FULL_PROTOCOL, answer, max_request_bytes=SHORT_BYTES)


async def fetch_manifest(host: Host, peer_id: PeerId) -> Manifest:
    """Ask one peer for its manifest.

    Raises:
        RequestError: no reply in time.
        ManifestError: the reply is not a usable manifest.
    """
    raw = await host.request(
        peer_id,
        MANIFEST_PROTOCOL,
        b"",
        max_response_bytes=MAX_MANIFEST_BYTES,
        timeout=SHORT_DEADLINE_S,
    )
    return decode_manifest(raw)


async def fetch_peers(
    host: Host, peer_id: PeerId, shards: Sequence[int] = ()
) -> list[PeerAddresses]:
    """Ask one peer for its peer list, peers of `shards` first.

    Empty if it does not answer, or not validly.
    """
    try:
        raw = await host.request(
            peer_id,
            PEERS_PROTOCOL,
            encode_peer_query(shards),
            max_response_bytes=MAX_PEER_LIST_BYTES,
            timeout=SHORT_DEADLINE_S,
        )
        return [_canonical(peer) for peer in decode_peer_list(raw)]
    except (RequestError, RemoteError, ValueError) as error:
        log.debug("no peers from %s: %s", peer_id, error)
        return []


@lru_cache(maxsize=REMEMBERED)
def _canonical(peer: PeerAddresses) -> PeerAddresses:
    full = (f"{address}/p2p/{peer.peer_id}" for address in peer.addresses)
    return replace(peer, addresses=tuple(parse_peer_address(text).transport for text in full))


def _known_peers(
    host: Host,
    book: PeerBook,
    relayed: Callable[[PeerId], tuple[str, ...]],
    *,
    exclude: PeerId,
    rng: random.Random,
) -> list[PeerAddresses]:
    connected = sorted(host.connected_peers())
    if len(connected) > MAX_PEERS_IN_LIST:
        connected = rng.sample(connected, MAX_PEERS_IN_LIST)
    known: dict[PeerId, PeerAddresses] = {}
    excluded = {exclude, host.peer_id}
    for peer_id in connected:
        addresses = (
            *host.peer_addresses(peer_id)[:_MAX_DIRECT],
            *relayed(peer_id)[:_MAX_RELAYED],
        )
        if addresses and peer_id not in excluded:
            known[peer_id] = _peer_addresses(peer_id, addresses)
    excluded.update(connected)
    for entry in book.ranked():
        if len(known) >= MAX_PEERS_IN_LIST:
            break
        if entry.addresses and entry.peer_id not in excluded:
            known[entry.peer_id] = _peer_addresses(entry.peer_id, entry.addresses)
    return list(known.values())


@lru_cache(maxsize=REMEMBERED)
def _peer_addresses(peer_id: PeerId, addresses: tuple[str, ...]) -> PeerAddresses:
    return PeerAddresses(peer_id=peer_id, addresses=addresses)
