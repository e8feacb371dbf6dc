"""Hostile peers that say anything the messages can say, in an order drawn from a seed.

Each act is a sentence of a small grammar: whose name, which batch, under which number of gossip, to
whom, how often; or a question, or an answer. What honest nodes have signed they may keep, withhold
and show again; what nobody has signed they can only sign themselves.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from shoal.simulation.message import forged, say
from shoal_p2p.gossip.rpc import Message, Rpc
from shoal_p2p.net.host import RequestError
from shoal_p2p.net.identity import identity_from_seed
from shoal_wire.announcement import Announcement, encode_announcement
from shoal_wire.digests import batch_id
from shoal_wire.envelope import seal
from shoal_wire.limits import ANNOUNCEMENT_PAYLOAD_TYPE, MAX_REQUEST_BYTES, ROLLOUTS_PROTOCOL
from shoal_wire.rollout_codec import encode_answer, encode_query
from shoal_wire.rollout_messages import (
    BatchRef,
    BatchRefusalReason,
    Chunk,
    ChunkQuery,
    Envelopes,
    Listing,
    Query,
    RecentQuery,
    Refusal,
    SinceQuery,
    WholeQuery,
)
from shoal_wire.types import BatchId, PeerId
from tests.support import factories as make
from tests.support.simulated_attackers import Attacker, attacker

if TYPE_CHECKING:
    from tests.support.simulated_swarm import World

_NAMES = 4
_KEPT = 100
_HOUR_MS = 3_600_000


class Hostile:
    """One connection of a hostile peer, with a few names to speak under."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.raw: Attacker = attacker(world, "hostile", number)
        self.rng = self.raw.rng
        others = [identity_from_seed(self.rng.randbytes(32)) for _ in range(_NAMES - 1)]
        self.names = [
            self.raw.author,
            *(make.Author(world.manifest, identity=one) for one in others),
        ]
        self.kept: deque[Message] = deque(maxlen=_KEPT)
        """Messages of others, as they signed them."""
        self.temper = self.rng.sample(_ACTS, self.rng.randint(1, 4))
        """What it does at all: who tells a plain lie is soon cut off, and could do no more."""
        self.counter = 0
        self.acts = 0
        self.raw.gossip.take = self._keep  # type: ignore[assignment, method-assign]

    async def run(self, every_s: float) -> None:
        """Act until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.raw.host.run)
            self.raw.host.set_request_handler(
                ROLLOUTS_PROTOCOL, self._answer, max_request_bytes=MAX_REQUEST_BYTES
            )
            for topic in self.world.manifest.topics():
                await self.raw.gossip.subscribe(topic, None)  # type: ignore[arg-type]
            self.raw.gossip.start()
            while True:
                await self.raw._connect()
                for author in self.names:
                    author.now_ms = self.world.wall_ms()
                act = self.rng.choice(self.temper)
                for _ in range(self.rng.choice((1, 2, 5))):
                    self.acts += 1
                    await act(self, nursery)
                await trio.sleep(every_s * self.rng.uniform(0.2, 2.0))

    def _keep(self, rpc: Rpc, _peer: PeerId, _hops: int = 1) -> None:
        self.kept.extend(rpc.messages)

    # Words

    def batch(self, author: make.Author, **changes: object) -> bytes:
        """Sign a batch under a name, and register it as valid: that it may be taken is no fault."""
        count = self.rng.choice((1, 1, 2, 16))
        groups = [make.group(self.rng.randrange(1 << 28), ("x", "y")) for _ in range(count)]
        raw = author.envelope(author.batch(groups, **changes))
        self.world.valid[batch_id(raw)] = author.peer_id
        return raw

    def message(self, author: make.Author, data: bytes) -> Message:
        """Sign a message of gossip under a name."""
        self.counter += 1
        manifest = self.world.manifest
        topic = manifest.topic(manifest.shard_of(author.peer_id))
        return say(author.peer_id, self.counter, topic, data)

    def name(self) -> make.Author:
        """Draw a name."""
        return self.rng.choice(self.names)

    def targets(self) -> list[PeerId]:
        """Draw some of those it is connected to."""
        peers = sorted(self.raw.host.connected_peers())
        return self.rng.sample(peers, self.rng.randint(1, len(peers))) if peers else []

    def say(self, message: Message, targets: list[PeerId], times: int = 1) -> None:
        """Send a message to each of these."""
        for target in targets:
            for _ in range(times):
                self.raw.gossip.pass_on(target, message)

    # What it answers

    async def _answer(self, _asker: PeerId, _raw: bytes) -> bytes:
        await trio.sleep(self.rng.choice((0.0, 0.1, 2.0)))
        kept = [m for m in self.kept if m.author not in {a.peer_id for a in self.names}]
        some = self.rng.sample(kept, min(len(kept), self.rng.randint(0, 8)))
        answers: list[Callable[[], bytes]] = [
            lambda: encode_answer(Refusal(reason=BatchRefusalReason.BUSY, retry_after_ms=1)),
            lambda: encode_answer(Refusal(reason=BatchRefusalReason.PENDING)),
            lambda: encode_answer(Refusal(reason=BatchRefusalReason.NOT_HELD)),
            lambda: encode_answer(Envelopes(envelopes=tuple(m.data for m in some))),
            lambda: encode_answer(Chunk(num_bytes=100, data=self.rng.randbytes(100))),
            lambda: encode_answer(Listing(batches=tuple(self._ref(m) for m in some))),
            lambda: self.rng.randbytes(60),
        ]
        return self.rng.choice(answers)()

    def _ref(self, message: Message) -> BatchRef:
        """List a batch of another, right or wrong in any of its parts."""
        rng = self.rng
        wrong = rng.choice(("", "", "digest", "publisher", "number", "size"))
        honest = rng.choice(self.world.of_kind("honest")).peer_id
        return BatchRef(
            batch_id=BatchId(rng.randbytes(32)) if wrong == "digest" else batch_id(message.data),
            publisher=honest if wrong == "publisher" else message.author,
            sequence=rng.randrange(1, 1 << 50) if wrong == "number" else rng.randrange(1, 99),
            num_bytes=1 << 21 if wrong == "size" else len(message.data),
            num_groups=1,
        )


# Sentences


async def _batches(one: Hostile, _nursery: trio.Nursery) -> None:
    """Valid batches: to all, to some, too many."""
    one.say(one.message(author := one.name(), one.batch(author)), one.targets())


async def _twins(one: Hostile, _nursery: trio.Nursery) -> None:
    """One batch in several messages, another to each peer."""
    author = one.name()
    data = one.batch(author)
    for target in one.targets():
        one.say(one.message(author, data), [target])


async def _copies(one: Hostile, _nursery: trio.Nursery) -> None:
    """The same message over and over, its own or another's."""
    message = one.message(author := one.name(), one.batch(author))
    if one.kept and one.rng.random() < 0.5:
        message = one.rng.choice(one.kept)
    one.say(message, one.targets(), one.rng.choice((2, 20, 60)))


async def _replays(one: Hostile, _nursery: trio.Nursery) -> None:
    """What honest nodes have said, once more, late, in another order."""
    kept = list(one.kept)
    one.rng.shuffle(kept)
    targets = one.targets()
    for message in kept[: one.rng.choice((1, 20, 80))]:
        one.say(message, targets)


async def _gaps(one: Hostile, _nursery: trio.Nursery) -> None:
    """Batches that name others that never were."""
    author = one.name()
    for _ in range(4):
        author.sequence += one.rng.randint(1, 3)
        named = one.rng.randint(1, author.sequence)
        one.say(one.message(author, one.batch(author, previous_sequence=named)), one.targets())


async def _times(one: Hostile, _nursery: trio.Nursery) -> None:
    """Batches of other times, some of which some clocks allow."""
    author = one.name()
    ahead = (-2 * _HOUR_MS, -_HOUR_MS, 25_000, 40_000, 100_000, 30 * _HOUR_MS)
    author.now_ms = one.world.wall_ms() + one.rng.choice(ahead)
    one.say(one.message(author, one.batch(author)), one.targets())


async def _two_words(one: Hostile, _nursery: trio.Nursery) -> None:
    """Two batches under one number, each for another part of the peers."""
    author, targets = one.name(), one.targets()
    first = one.batch(author)
    author.sequence -= 1
    half = len(targets) // 2
    one.say(one.message(author, first), targets[:half])
    one.say(one.message(author, one.batch(author)), targets[half:])


async def _lies(one: Hostile, _nursery: trio.Nursery) -> None:
    """Garbage, forgeries, and others' batches under its own name."""
    message = one.message(one.name(), one.rng.randbytes(80))
    if one.kept:
        other = one.rng.choice(one.kept)
        message = one.rng.choice(
            (message, message._replace(data=other.data), forged(other)._replace(data=b"f"))
        )
    one.say(message, one.targets())


async def _announces(one: Hostile, _nursery: trio.Nursery) -> None:
    """A big batch that is another's, or nobody's."""
    author = one.name()
    author.sequence += 1
    digest = BatchId(one.rng.randbytes(32))
    if one.kept and one.rng.random() < 0.5:
        digest = batch_id(one.rng.choice(one.kept).data)
    told = Announcement(
        swarm_digest=one.world.manifest.digest,
        sequence=author.sequence,
        previous_sequence=author.sequence - 1,
        created_ms=author.now_ms,
        num_groups=one.rng.randint(1, 64),
        batch_id=digest,
        num_bytes=one.rng.choice((200, 100_000)),
        expires_ms=author.now_ms + 60_000,
    )
    raw = seal(
        encode_announcement(told),
        public_key=author.identity.public_key_bytes,
        sign=author.identity.sign,
        payload_type=ANNOUNCEMENT_PAYLOAD_TYPE,
    )
    one.say(one.message(author, raw), one.targets())


async def _asks(one: Hostile, nursery: trio.Nursery) -> None:
    """Questions: good ones, foolish ones, far too many."""
    rng = one.rng
    publisher = rng.choice(one.world.of_kind("honest")).peer_id
    ids = [batch_id(message.data) for message in one.kept][:20]
    questions: list[Query] = [
        SinceQuery(publisher=publisher, after_sequence=rng.randrange(99), max_batches=512),
        RecentQuery(shards=(0,), max_batches=512, max_bytes=1 << 30, max_age_seconds=3600),
        ChunkQuery(batch_id=BatchId(rng.randbytes(32)), offset=0, length=1 << 20),
    ]
    if ids:
        questions.append(WholeQuery(batch_ids=tuple(dict.fromkeys(ids))))
    raw = rng.choice([*map(encode_query, questions), rng.randbytes(30)])
    for target in one.targets():
        for _ in range(rng.choice((1, 4))):
            nursery.start_soon(_ask, one, target, raw)


async def _ask(one: Hostile, target: PeerId, raw: bytes) -> None:
    try:
        await one.raw.host.request(
            target, ROLLOUTS_PROTOCOL, raw, max_response_bytes=1 << 21, timeout=2.0
        )
    except RequestError:
        return


_ACTS = (
    _batches, _twins, _twins, _copies, _replays, _replays, _gaps, _times, _two_words, _lies,
    _announces, _asks,
)  # fmt: skip


def hostile_peers(world: World, count: int) -> list[Hostile]:
    """Return hostile peers that are not running yet."""
    return [Hostile(world, number) for number in range(count)]


def shuffled(seed: int) -> random.Random:
    """Return the die of a schedule."""
    return random.Random(f"schedule {seed}")
