"""Hostile gossip messages: batches in every state, its own and other peers' messages."""

from __future__ import annotations

import random

from libp2p.pubsub.pb import rpc_pb2

from shoal_tasks.turns import join_messages
from shoal_wire.digests import batch_id
from tests.redteam import hostile_content
from tests.redteam.peer import AttackerPeer
from tests.support import factories as make
from tests.support.simulated_node import RIGHT


def _rpc(*messages: rpc_pb2.Message) -> rpc_pb2.RPC:
    return rpc_pb2.RPC(publish=messages)


async def batches(attacker: AttackerPeer, rng: random.Random) -> None:
    """Valid batches, perhaps too many."""
    author = attacker.own()
    for _ in range(rng.choice((1, 1, 5, 40))):
        raw = attacker.register(hostile_content.envelope(rng, author), author)
        await attacker.say(attacker.targets(rng), _rpc(hostile_content.message(rng, author, raw)))


async def shifted(attacker: AttackerPeer, rng: random.Random) -> None:
    """Valid batches with a wrong clock, within and beyond the tolerance, or running backwards."""
    author = attacker.own()
    for _ in range(rng.choice((1, 8))):
        author.now_ms = attacker.world.wall_ms() + rng.choice(
            (-3_500_000, -60_000, 9_000, 29_000, 31_000)
        )
        raw = attacker.register(hostile_content.envelope(rng, author), author)
        await attacker.say(attacker.targets(rng), _rpc(hostile_content.message(rng, author, raw)))


async def odd_batches(attacker: AttackerPeer, rng: random.Random) -> None:
    """Batches with an error, under a valid gossip signature."""
    author = attacker.own()
    for _ in range(rng.choice((1, 3))):
        raw = attacker.register(hostile_content.odd_envelope(rng, author), author)
        await attacker.say(attacker.targets(rng), _rpc(hostile_content.message(rng, author, raw)))


async def many_names(attacker: AttackerPeer, rng: random.Random) -> None:
    """One batch from each of many names, over one connection."""
    now_ms = attacker.world.wall_ms()
    made = []
    for _ in range(rng.choice((1, 10, 100))):
        author = hostile_content.author_of(rng, attacker.world.manifest, now_ms)
        raw = (
            hostile_content.envelope(rng, author)
            if rng.random() < 0.8
            else hostile_content.odd_envelope(rng, author)
        )
        made.append(hostile_content.message(rng, author, attacker.register(raw, author)))
    targets = attacker.targets(rng)
    for start in range(0, len(made), 20):
        await attacker.say(targets, _rpc(*made[start : start + 20]))


async def right_answers(attacker: AttackerPeer, rng: random.Random) -> None:
    """Correct groups, with words before the answer or 64 at a time, under one or many names."""
    now_ms = attacker.world.wall_ms()
    names = [attacker.own()]
    for _ in range(rng.choice((0, 10, 100))):
        names.append(hostile_content.author_of(rng, attacker.world.manifest, now_ms))
    preface, count = rng.choice(("", "", " " * 40, "so ")), rng.choice((2, 8, 64))
    made = []
    for author in names:
        texts = [preface + RIGHT, *(f"{n}{rng.randrange(10**6)}" for n in range(1, count))]
        start = rng.randrange(1 << 28)
        groups = [make.group(start + n, texts) for n in range(rng.choice((1, 4, 16)))]
        raw = attacker.register(author.envelope(author.batch(groups)), author)
        made.append(hostile_content.message(rng, author, raw))
    targets = attacker.targets(rng)
    for start in range(0, len(made), 20):
        await attacker.say(targets, _rpc(*made[start : start + 20]))


async def names_behind_neighbours(attacker: AttackerPeer, rng: random.Random) -> None:
    """Correct groups under many names, for nodes that receive them only from their neighbours."""
    peers = sorted(attacker.host.connected_peers())
    hidden_from = set(rng.sample(peers, len(peers) // 2))
    for peer in hidden_from:
        await attacker.host.disconnect(peer)
    names = [
        hostile_content.author_of(rng, attacker.world.manifest, attacker.world.wall_ms())
        for _ in range(40)
    ]
    made = []
    for author in names:
        texts = [RIGHT, *(f"{n}{rng.randrange(10**6)}" for n in range(1, 8))]
        raw = author.envelope(author.batch([make.group(rng.randrange(1 << 28), texts)]))
        made.append(hostile_content.message(rng, author, attacker.register(raw, author)))
    for peer in set(peers) - hidden_from:
        await attacker.say([peer], _rpc(*rng.sample(made, len(made) // 2)))


async def unread_text_in_games(attacker: AttackerPeer, rng: random.Random) -> None:
    """Games of one or many messages, each move surrounded by white space, brackets or words."""
    author = attacker.own()
    planted = rng.choice(("\t\t\t{}", "buy [{}] now", '{{"move": {}}} buy', "{}" + " " * 200))
    made = []
    for _ in range(rng.choice((1, 8))):
        games = [
            join_messages(planted.format(rng.randrange(100)) for _ in range(rng.choice((1, 5, 64))))
            for _ in range(8)
        ]
        raw = author.envelope(author.batch([make.group(rng.randrange(1 << 28), games)]))
        made.append(hostile_content.message(rng, author, attacker.register(raw, author)))
    await attacker.say(attacker.targets(rng), _rpc(*made))


async def duplicates(attacker: AttackerPeer, rng: random.Random) -> None:
    """One batch in several gossip messages, a different one to each peer."""
    author = attacker.own()
    raw = attacker.register(hostile_content.envelope(rng, author), author)
    for target in attacker.targets(rng):
        made = [hostile_content.message(rng, author, raw) for _ in range(rng.choice((1, 8)))]
        await attacker.say([target], _rpc(*made))


async def two_words(attacker: AttackerPeer, rng: random.Random) -> None:
    """Two batches with the same sequence number, each to a part of the peers."""
    author, targets = attacker.own(), attacker.targets(rng)
    for part in (targets[::2], targets[1::2]):
        raw = attacker.register(hostile_content.envelope(rng, author), author)
        author.sequence -= 1
        await attacker.say(part, _rpc(hostile_content.message(rng, author, raw)))
    author.sequence += 1


async def copies(attacker: AttackerPeer, rng: random.Random) -> None:
    """The same message again and again, its own or another peer's."""
    author = attacker.own()
    message = hostile_content.message(
        rng, author, attacker.register(hostile_content.envelope(rng, author), author)
    )
    if attacker.captured.messages and rng.random() < 0.6:
        message = rng.choice(attacker.captured.messages)
    await attacker.say(attacker.targets(rng), *[_rpc(message)] * rng.choice((2, 20, 80)))


async def replays(attacker: AttackerPeer, rng: random.Random) -> None:
    """Honest peers' messages again, delayed and reordered."""
    kept = list(attacker.captured.messages)
    rng.shuffle(kept)
    if kept:
        await attacker.say(attacker.targets(rng), *map(_rpc, kept[: rng.choice((1, 20, 100))]))


async def stolen(attacker: AttackerPeer, rng: random.Random) -> None:
    """Other peers' envelopes, unchanged or re-encoded, in its own gossip messages."""
    author = attacker.own()
    for _ in range(rng.choice((1, 5)) if attacker.captured.messages else 0):
        raw = rng.choice(attacker.captured.messages).data
        if rng.random() < 0.6:
            raw = hostile_content.respelled(rng, raw)
        await attacker.say(attacker.targets(rng), _rpc(hostile_content.message(rng, author, raw)))


async def odd_messages(attacker: AttackerPeer, rng: random.Random) -> None:
    """Messages with an invalid gossip signature, or with unknown fields."""
    author = attacker.own()
    for _ in range(rng.choice((1, 4))):
        raw = attacker.register(hostile_content.envelope(rng, author), author)
        message = hostile_content.message(rng, author, raw)
        if attacker.captured.messages and rng.random() < 0.7:
            message = rng.choice(attacker.captured.messages)
        await attacker.say(attacker.targets(rng), _rpc(hostile_content.odd_message(rng, message)))


async def gaps(attacker: AttackerPeer, rng: random.Random) -> None:
    """Batches that refer to others that do not exist."""
    author = attacker.own()
    if rng.random() < 0.3:
        author = hostile_content.author_of(rng, attacker.world.manifest, attacker.world.wall_ms())
    for _ in range(rng.choice((4, 30))):
        author.sequence += rng.randint(1, 3)
        named = rng.randint(1, author.sequence)
        raw = author.envelope(author.batch(previous_sequence=named))
        message = hostile_content.message(rng, author, attacker.register(raw, author))
        await attacker.say(attacker.targets(rng), _rpc(message))


async def announcements(attacker: AttackerPeer, rng: random.Random) -> None:
    """Announcements of big batches: served, never served, or another peer's."""
    author = attacker.own()
    for _ in range(rng.choice((1, 6, 40))):
        if rng.random() < 0.2:
            word, raw = hostile_content.big_batch(rng, author)
            attacker.register(raw, author)
        else:
            taken = (
                rng.choice(attacker.captured.messages).data if attacker.captured.messages else b""
            )
            word = hostile_content.announcement(rng, author, batch_id(taken) if taken else None)
        await attacker.say(attacker.targets(rng), _rpc(hostile_content.message(rng, author, word)))


async def elsewhere(attacker: AttackerPeer, rng: random.Random) -> None:
    """Messages on unknown topics, on the swarm's other shards, or in another swarm."""
    author = attacker.own()
    topic = rng.choice(("/x", "", "/shoal/1/00/rollouts/0", "t" * 400, "\x1b[2J"))
    raw = attacker.register(hostile_content.envelope(rng, author), author)
    message = hostile_content.message(rng, author, raw, topic)
    await attacker.say(attacker.targets(rng), *[_rpc(message)] * rng.choice((1, 50)))


async def crammed(attacker: AttackerPeer, rng: random.Random) -> None:
    """Tens of thousands of parts in one RPC."""
    rpc = rpc_pb2.RPC()
    for _ in range(rng.choice((1500, 17_000))):
        rpc.publish.add()
    if rng.random() < 0.5 and attacker.captured.messages:
        rpc = _rpc(*[rng.choice(attacker.captured.messages)] * 1200)
    await attacker.say(attacker.targets(rng), rpc)


async def large(attacker: AttackerPeer, rng: random.Random) -> None:
    """A message of about a megabyte that is not a batch."""
    author = attacker.own()
    data = rng.randbytes(1) * rng.choice((300_000, 990_000, 1_040_000))
    await attacker.say(attacker.targets(rng), _rpc(hostile_content.message(rng, author, data)))
