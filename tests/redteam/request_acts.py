"""Hostile requests: too many, malformed, incomplete, or with an unread reply."""

from __future__ import annotations

import random

from shoal_wire.digests import batch_id
from shoal_wire.limits import (
    FULL_PROTOCOL,
    MANIFEST_PROTOCOL,
    MAX_REQUEST_BYTES,
    PEERS_PROTOCOL,
    ROLLOUTS_PROTOCOL,
)
from shoal_wire.peers import encode_peer_query
from shoal_wire.reach import REACH_PROTOCOL
from shoal_wire.rollout_codec import encode_query
from shoal_wire.rollout_messages import ChunkQuery, Query, RecentQuery, SinceQuery, WholeQuery
from shoal_wire.types import BatchId, PeerId
from tests.fuzz.mutate import mutate
from tests.redteam.peer import AttackerPeer

PROTOCOLS = (ROLLOUTS_PROTOCOL,) * 4 + (
    MANIFEST_PROTOCOL,
    PEERS_PROTOCOL,
    PEERS_PROTOCOL,
    FULL_PROTOCOL,
    REACH_PROTOCOL,
)


def query(attacker: AttackerPeer, rng: random.Random) -> bytes:
    """Return a query for batches, sensible or not."""
    honest = rng.choice(attacker.world.of_kind("honest")).peer_id
    ids = [batch_id(message.data) for message in attacker.captured.messages][-40:]
    ids += [BatchId(rng.randbytes(32)) for _ in range(3)]
    high = rng.choice((0, 1, 99, (1 << 62) - 1))
    questions: list[Query] = [
        SinceQuery(
            publisher=rng.choice((honest, attacker.peer_id, PeerId("x" * 200))),
            after_sequence=high,
            max_batches=rng.choice((1, 512)),
        ),
        RecentQuery(
            shards=tuple(rng.sample(range(4096), rng.choice((1, 64)))) if high == 1 else (0,),
            max_batches=512,
            max_bytes=rng.choice((0, 1 << 30, 1 << 62)),
            max_age_seconds=rng.choice((0, 1, 3600, (1 << 31) - 1)),
        ),
        ChunkQuery(batch_id=rng.choice(ids), offset=high, length=rng.choice((1, 1 << 20))),
        WholeQuery(batch_ids=tuple(dict.fromkeys(ids))),
    ]
    return encode_query(rng.choice(questions))


def request(attacker: AttackerPeer, rng: random.Random, protocol: str) -> bytes:
    """Return a request of that protocol: valid, damaged, or of another kind."""
    right = {
        ROLLOUTS_PROTOCOL: lambda: query(attacker, rng),
        PEERS_PROTOCOL: lambda: encode_peer_query(rng.sample(range(64), rng.choice((0, 1, 40)))),
    }.get(protocol, lambda: b"")()
    kind = rng.random()
    if protocol == REACH_PROTOCOL:  # with ports, a node would dial outside the simulation
        return rng.choice((b"", b"\xff", b"x" * 3000))
    if kind < 0.6:
        return right
    if kind < 0.8:
        return mutate(rng, [right or b"\x08\x01"])
    return rng.randbytes(rng.choice((0, 1, 30, MAX_REQUEST_BYTES, MAX_REQUEST_BYTES + 1)))


async def asks(attacker: AttackerPeer, rng: random.Random) -> None:
    """Send a few requests, one after the other."""
    for target in attacker.targets(rng):
        for _ in range(rng.choice((1, 5))):
            protocol = rng.choice(PROTOCOLS)
            await attacker.ask(target, protocol, request(attacker, rng, protocol))


async def storms(attacker: AttackerPeer, rng: random.Random) -> None:
    """Send many requests of one protocol at once."""
    protocol = rng.choice(PROTOCOLS)
    payload = request(attacker, rng, protocol)
    for target in attacker.targets(rng):
        for _ in range(rng.choice((10, 100))):
            attacker.host.start_soon(attacker.ask, target, protocol, payload)


async def halves(attacker: AttackerPeer, rng: random.Random) -> None:
    """Requests that never end: half a length, a length alone, a byte a second, or 4 GiB to come."""
    protocol = rng.choice(PROTOCOLS)
    payload = request(attacker, rng, protocol)
    length = len(payload).to_bytes(4, "big")
    kinds = (
        [length[:2]],
        [length],
        [b"\xff\xff\xff\xff", b"x" * 1000],
        [bytes([byte]) for byte in length + payload[:6]],
        [length + payload[: len(payload) // 2]],
        [length + payload],
    )
    pieces, wait_s = rng.choice(kinds), rng.choice((0.0, 0.5, 1.5))
    for target in attacker.targets(rng):
        for _ in range(rng.choice((1, 8, 40))):
            attacker.host.start_soon(attacker.write_slowly, target, protocol, pieces, wait_s)
