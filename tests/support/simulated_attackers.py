"""Attackers on the simulated network, one behaviour each."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import trio

from shoal_lab.simulation.gossip import SimulatedGossip
from shoal_lab.simulation.host import SimulatedHost
from shoal_lab.simulation.message import forged, say
from shoal_p2p.gossip.rpc import Message
from shoal_p2p.net.host import DialError
from shoal_p2p.net.identity import Identity, identity_from_seed
from shoal_wire.digests import batch_id
from shoal_wire.limits import MAX_REQUEST_BYTES, ROLLOUTS_PROTOCOL
from shoal_wire.rollout_codec import decode_query, encode_answer
from shoal_wire.types import Digest, PeerId
from tests.support import factories as make
from tests.support.doubles.gossip import RecordingWatch
from tests.support.rollout_answers import answer_from, ref_of_copy
from tests.support.simulated_node import host_of
from tests.wire.envelope_mutations import fields_of, other_spellings, spelled

if TYPE_CHECKING:
    from tests.support.simulated_swarm import World

_PEERS = 6


@dataclass(slots=True, eq=False)
class Attacker:
    """A raw peer with a key that sends arbitrary messages to chosen peers."""

    world: World
    name: str
    rng: random.Random
    identity: Identity
    host: SimulatedHost
    author: make.Author
    gossip: SimulatedGossip
    sequence: int = 0
    served: Counter[PeerId] = field(default_factory=Counter)
    """Number of requests answered, by requester."""

    @property
    def peer_id(self) -> PeerId:
        """Its id."""
        return self.identity.peer_id

    @property
    def topic(self) -> str:
        """The topic of its batches."""
        manifest = self.world.manifest
        return manifest.topic(manifest.shard_of(self.peer_id))

    async def run(self, every_s: float) -> None:
        """Attack until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.host.run)
            while True:
                await self._connect()
                self.author.now_ms = self.world.wall_ms()
                ATTACKS[self.name](self)
                await trio.sleep(every_s * self.rng.uniform(0.5, 1.5))

    async def _connect(self) -> None:
        nodes = self.world.up("honest", "liar")
        wanted = self.rng.sample(nodes, min(_PEERS, len(nodes)))
        for node in wanted[: max(0, _PEERS - len(self.host.connected_peers()))]:
            try:
                await self.host.dial(host_of(node).listen_addrs()[0], timeout=1.0)
            except DialError:
                continue
        await trio.sleep(1.0)

    def message(self, data: bytes, *, author: PeerId | None = None) -> Message:
        """Return a new message."""
        self.sequence += 1
        author = author or self.peer_id
        topic = self.world.manifest.topic(self.world.manifest.shard_of(author))
        return say(author, self.sequence, topic, data)

    def envelope(self, *, num_groups: int = 1, valid: bool = True) -> bytes:
        """Return its own batch under the next sequence number; a valid one is registered."""
        groups = [make.group(self.rng.randrange(1 << 28), ("x",) * 2) for _ in range(num_groups)]
        raw = self.author.envelope(self.author.batch(groups))
        if valid:
            self.world.valid[batch_id(raw)] = self.peer_id
        return raw

    def serve(self, offered: Sequence[tuple[bytes, Mapping[str, Any]]]) -> None:
        """From now on, list these envelopes, with changed fields in the listing, and return them to
        every requester."""
        by_id = {batch_id(raw): raw for raw, _ in offered}
        refs = [replace(ref_of_copy(raw), **changes) for raw, changes in offered]

        async def answer(peer_id: PeerId, raw: bytes) -> bytes:
            self.served[peer_id] += 1
            return encode_answer(answer_from(decode_query(raw), by_id, refs))

        self.host.set_request_handler(
            ROLLOUTS_PROTOCOL, answer, max_request_bytes=MAX_REQUEST_BYTES
        )

    def send_apart(self, messages: list[Message]) -> None:
        """Send each message to a different part of the peers."""
        peers = list(self.gossip.topic_peers(messages[0].topics[0]))
        for index, peer in enumerate(peers):
            self.gossip.pass_on(peer, messages[index % len(messages)])


def attacker(world: World, name: str, number: int) -> Attacker:
    """Return an attacker that is not running yet."""
    rng = random.Random(f"{world.seed}/{name}{number}")
    identity = identity_from_seed(rng.randbytes(32))
    address = "/ip4/172.16.{}.{}/tcp/4001".format(*rng.randbytes(2))
    host = SimulatedHost(world.network, identity, address)
    return Attacker(
        world=world,
        name=name,
        rng=rng,
        identity=identity,
        host=host,
        gossip=SimulatedGossip(host, rng, scorer=RecordingWatch()),
        author=make.Author(world.manifest, identity=identity),
    )


def _garbage(one: Attacker) -> None:
    one.gossip.send(one.message(one.rng.randbytes(200)))


def _forge(one: Attacker) -> None:
    victim = one.rng.choice(one.world.of_kind("honest")).peer_id
    one.gossip.send(forged(one.message(b"forged", author=victim)))


def _steal(one: Attacker) -> None:
    """Publish another peer's batch as its own."""
    if one.world.envelopes:
        one.gossip.send(one.message(one.rng.choice(list(one.world.envelopes))))


def _mismatch(one: Attacker) -> None:
    """State a question that the coordinates do not give."""
    task = make.task(one.rng.randrange(1 << 28), question_digest=Digest(b"q" * 16))
    one.gossip.send(one.message(one.author.envelope(one.author.batch([make.group(of=task)]))))


def _equivocate(one: Attacker) -> None:
    """Sign two batches under one sequence number, and send each to half of the peers."""
    first = one.envelope()
    one.author.sequence -= 1
    one.send_apart([one.message(first), one.message(one.envelope())])


def _flood(one: Attacker) -> None:
    """Send valid, useless batches, far beyond any quota."""
    for _ in range(4):
        one.gossip.send(one.message(one.envelope(num_groups=16)))


def _old(one: Attacker) -> None:
    """Replay batches that were valid, long ago and recently."""
    one.author.now_ms = one.world.wall_ms() - 2 * 3600 * 1000
    one.gossip.send(one.message(one.envelope(valid=False)))


def _respell(one: Attacker) -> None:
    """Serve honest batches in another encoding, which only a lenient parser opens."""

    def copy_of(envelope: bytes) -> bytes:
        copies = other_spellings(envelope)
        unknown = replace(
            fields_of(envelope)[0], number=one.rng.randint(6, 99), value=one.rng.randbytes(4)
        )
        return one.rng.choice([*copies.values(), envelope + spelled([unknown])])

    one.serve([(copy_of(raw), {}) for raw in one.world.envelopes])


def _slander(one: Attacker) -> None:
    """List honest batches with false fields: another publisher, sequence number or size."""
    names = [member.peer_id for member in one.world.of_kind("honest")]

    def lie() -> dict[str, Any]:
        sequence = one.world.wall_ms() + one.rng.randrange(-9, 9)
        return one.rng.choice(
            [{"publisher": one.rng.choice(names)}, {"sequence": sequence}, {"num_bytes": 100_000}]
        )

    one.serve([(raw, lie()) for raw in one.world.envelopes])


ATTACKS: Mapping[str, Callable[[Attacker], None]] = {
    "garbage": _garbage,
    "forge": _forge,
    "steal": _steal,
    "mismatch": _mismatch,
    "equivocate": _equivocate,
    "flood": _flood,
    "old": _old,
    "respell": _respell,
    "slander": _slander,
}
BANNED = ("garbage", "forge", "steal", "mismatch", "equivocate")
"""Attacks whose author must be banned by its direct peers."""
