"""Hostile replies: false, copied, malformed, missing, delayed or oversized ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import trio

from shoal_p2p.net.request import read_frame
from shoal_wire.digests import batch_id
from shoal_wire.errors import RemoteError
from shoal_wire.limits import (
    FULL_PROTOCOL,
    MANIFEST_PROTOCOL,
    PEERS_PROTOCOL,
    ROLLOUTS_PROTOCOL,
)
from shoal_wire.peers import PeerAddresses, encode_peer_list
from shoal_wire.rollout_codec import decode_query, encode_answer
from shoal_wire.rollout_messages import (
    BatchRef,
    BatchRefusalReason,
    Chunk,
    ChunkQuery,
    Envelopes,
    Listing,
    RecentQuery,
    Refusal,
    SinceQuery,
    WholeQuery,
)
from shoal_wire.types import BatchId, PeerId
from tests.fuzz.mutate import mutate
from tests.redteam import hostile_content
from tests.redteam.peer import BROKEN, AttackerPeer
from tests.support.rollout_answers import ref_of_copy
from tests.support.simulated_streams import Stream

ReplyKind = Callable[[AttackerPeer, random.Random, bytes], bytes]


def _ref(attacker: AttackerPeer, rng: random.Random, raw: bytes) -> BatchRef | None:
    """Describe an envelope in a listing, correctly or not."""
    try:
        right = ref_of_copy(raw)
        honest = rng.choice(attacker.world.of_kind("honest")).peer_id
        lies: list[dict[str, object]] = [
            {},
            {},
            {"batch_id": BatchId(rng.randbytes(32))},
            {"publisher": honest},
            {"publisher": PeerId("unknown")},
            {"sequence": rng.randrange(1, 1 << 50)},
            {"num_bytes": rng.choice((1, 1 << 21, 1 << 40))},
            {"num_groups": 1024},
        ]
        return replace(right, **rng.choice(lies))  # type: ignore[arg-type]
    except Exception:  # noqa: BLE001 - its own malformed envelopes: not all can be listed
        return None


def _envelopes(attacker: AttackerPeer, rng: random.Random) -> list[bytes]:
    """Return some of its own and of other peers' envelopes, unchanged or re-encoded."""
    pool = [message.data for message in attacker.captured.messages] + list(
        attacker.captured.shown.values()
    )[-50:]
    some = rng.sample(pool, min(len(pool), rng.choice((1, 8, 30))))
    return [hostile_content.respelled(rng, raw) if rng.random() < 0.2 else raw for raw in some]


def _listing(attacker: AttackerPeer, rng: random.Random) -> bytes:
    made = []
    for raw in _envelopes(attacker, rng):
        attacker.captured.shown[batch_id(raw)] = raw
        made.append(_ref(attacker, rng, raw))
    return encode_answer(Listing(batches=tuple(ref for ref in made if ref is not None)))


def _cut(raws: list[bytes]) -> tuple[bytes, ...]:
    kept, left = [], 900_000
    for raw in raws[:64]:
        left -= len(raw)
        if left > 0:
            kept.append(raw)
    return tuple(kept)


def _fitting(attacker: AttackerPeer, rng: random.Random, raw: bytes) -> bytes:
    """Reply to the request from what is there, with slight changes."""
    query = decode_query(raw)
    match query:
        case WholeQuery():
            held = [
                attacker.captured.shown[i] for i in query.batch_ids if i in attacker.captured.shown
            ]
            others = _envelopes(attacker, rng) if rng.random() < 0.3 else []
            return encode_answer(Envelopes(envelopes=_cut([*held, *others])))
        case ChunkQuery():
            whole = attacker.captured.shown.get(query.batch_id, rng.randbytes(500))
            data = whole[query.offset :][: min(query.length, 1 << 20)]
            size = rng.choice((len(whole), len(whole), len(whole) + 1, 0))
            return encode_answer(Chunk(num_bytes=size, data=data))
        case RecentQuery() | SinceQuery():
            return _listing(attacker, rng)


def _misfit(attacker: AttackerPeer, rng: random.Random, _raw: bytes) -> bytes:
    """Reply with a message of another kind."""
    answers: list[Callable[[], bytes]] = [
        lambda: encode_answer(
            Refusal(reason=rng.choice(list(BatchRefusalReason)), retry_after_ms=rng.choice((0, 1)))
        ),
        lambda: encode_answer(Refusal(reason=BatchRefusalReason.BUSY, retry_after_ms=60_000)),
        lambda: encode_answer(Envelopes(envelopes=_cut(_envelopes(attacker, rng)))),
        lambda: encode_answer(Envelopes(envelopes=())),
        lambda: encode_answer(Chunk(num_bytes=100, data=rng.randbytes(rng.choice((0, 99, 500))))),
        lambda: _listing(attacker, rng),
        lambda: mutate(rng, [_listing(attacker, rng)]),
        lambda: rng.randbytes(60),
        lambda: b"",
        lambda: b"\x00" * (1 << 21),
    ]
    return rng.choice(answers)()


def _peers(attacker: AttackerPeer, rng: random.Random, _raw: bytes) -> bytes:
    """Name honest peers at wrong addresses, and unknown peers everywhere."""
    members = attacker.world.of_kind("honest", "bootstrap")
    places = [member.address for member in members] + [
        "/ip4/192.0.2.9/tcp/443",
        "/ip4/127.0.0.1/tcp/22",
        "/ip4/10.0.0.1/tcp/80",
        "/dns4/evil.example/tcp/1",
        attacker.host.address,
    ]
    ids = [member.peer_id for member in members] * 2
    ids += [
        hostile_content.author_of(rng, attacker.world.manifest, 0).peer_id
        for _ in range(rng.choice((0, 40)))
    ]
    named = rng.sample(ids, min(len(ids), rng.choice((1, 5, 60))))
    found = [
        PeerAddresses(
            peer_id=peer_id,
            addresses=tuple(rng.sample(places, rng.randint(1, 5))),
            shards=tuple(rng.sample(range(64), rng.choice((0, 1, 5)))),
        )
        for peer_id in dict.fromkeys(named)
    ]
    made = encode_peer_list(found)
    return made if rng.random() < 0.7 else mutate(rng, [made])


def _oneself(attacker: AttackerPeer, rng: random.Random, raw: bytes) -> bytes:
    """Name only chosen peers, and honest addresses under wrong names."""
    members = attacker.world.of_kind("honest", "bootstrap")
    place = rng.choice(members).address
    made_up = [
        hostile_content.author_of(rng, attacker.world.manifest, 0).peer_id for _ in range(60)
    ]
    names = rng.choice(([member.peer_id for member in members], made_up))
    return encode_peer_list(
        PeerAddresses(peer_id=name, addresses=(place,) * rng.choice((1, 8))) for name in names
    )


def _manifest(attacker: AttackerPeer, rng: random.Random, _raw: bytes) -> bytes:
    return rng.choice(
        (b"", attacker.world.manifest.raw, mutate(rng, [attacker.world.manifest.raw]))
    )


def _set_reply_kind(attacker: AttackerPeer, rng: random.Random, say: ReplyKind) -> None:
    wait_s = rng.choice((0.0, 0.0, 0.3, 5.0, 60.0))
    own = random.Random(rng.random())

    async def answer(_asker: PeerId, raw: bytes) -> bytes:
        await trio.sleep(wait_s)
        try:
            return say(attacker, own, raw)
        except (RemoteError, ValueError, OverflowError):
            return b"\xff"

    for protocol in {
        _fitting: (ROLLOUTS_PROTOCOL,),
        _misfit: (ROLLOUTS_PROTOCOL, PEERS_PROTOCOL, MANIFEST_PROTOCOL, FULL_PROTOCOL),
        _peers: (PEERS_PROTOCOL,),
        _oneself: (PEERS_PROTOCOL,),
        _manifest: (MANIFEST_PROTOCOL,),
    }[say]:  # type: ignore[index]
        attacker.serve(protocol, answer)


async def answers_in_kind(attacker: AttackerPeer, rng: random.Random) -> None:
    """From now on, reply to batch requests with plausible but false data."""
    _set_reply_kind(attacker, rng, _fitting)


async def answers_anything(attacker: AttackerPeer, rng: random.Random) -> None:
    """From now on, reply to all protocols with messages of the wrong kind."""
    _set_reply_kind(attacker, rng, _misfit)


async def answers_with_peers(attacker: AttackerPeer, rng: random.Random) -> None:
    """From now on, report wrong addresses."""
    _set_reply_kind(attacker, rng, _peers)


async def answers_with_manifests(attacker: AttackerPeer, rng: random.Random) -> None:
    """From now on, return the manifest of another swarm."""
    _set_reply_kind(attacker, rng, _manifest)


async def answers_with_one_place(attacker: AttackerPeer, rng: random.Random) -> None:
    """From now on, report all peers, and many unknown ones, at one honest peer's address."""
    _set_reply_kind(attacker, rng, _oneself)


async def answers_by_the_byte(attacker: AttackerPeer, rng: random.Random) -> None:
    """From now on, reply slowly, incompletely, or with trailing bytes."""
    own, wait_s = random.Random(rng.random()), rng.choice((0.01, 0.3, 2.0))
    end = rng.choice((None, -1, b"more"))

    async def trickle(stream: Stream) -> None:
        raw = await read_frame(stream, 1 << 20)
        with suppress(RemoteError, ValueError, OverflowError, *BROKEN), trio.move_on_after(60.0):
            reply = _fitting(attacker, own, raw) if end is None else _misfit(attacker, own, raw)
            whole = len(reply).to_bytes(4, "big") + reply
            whole = whole + end if isinstance(end, bytes) else whole[:end]
            for at in (*range(40), 40):
                await stream.write(whole[at : at + 1] if at < 40 else whole[40:])
                await trio.sleep(wait_s)
            await trio.sleep(own.choice((0.0, 40.0)))
        await stream.reset()

    for protocol in (ROLLOUTS_PROTOCOL, PEERS_PROTOCOL, MANIFEST_PROTOCOL):
        attacker.host.handlers[protocol] = trickle
