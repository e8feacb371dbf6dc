"""Valid batches that are a few kilobytes on the wire and tens of thousands of completions."""

from __future__ import annotations

from libp2p.peer.id import ID
from libp2p.pubsub.pb import rpc_pb2

from p2p.gossip.flood_gate import FloodLimits
from p2p.gossip.messages import sign_message
from p2p.gossip.outbound import encode_frame
from p2p.gossip.pubsub import PubsubLimits
from p2p.intake.weight import work_of
from p2p.parts import wall_ms
from tests.support import factories as make
from tests.support.nodes import until
from tests.support.victim import Victim, open_hostile, still_works

COUNT = 60
GROUPS = [make.group(of=make.task(1), texts=[f"{n}"] * 64) for n in range(200)]
WORK_S = work_of(make.Author().batch(GROUPS).groups)


def dear_message(victim: Victim) -> rpc_pb2.Message:
    """A batch of an author that nobody has heard of."""
    author = make.Author(victim.node.member.manifest, now_ms=wall_ms())
    raw_id = ID.from_base58(author.peer_id).to_bytes()
    data = author.envelope(author.batch(GROUPS))
    return sign_message(author.identity, raw_id, victim.topic, data, 1)


async def test_who_brings_much_work_is_read_more_slowly_and_a_forwarder_does_not_pay(
    victim: Victim,
) -> None:
    """Names are free: each batch is another author's, all come over one connection."""
    frames = [encode_frame(rpc_pb2.RPC(publish=[dear_message(victim)])) for _ in range(COUNT)]
    assert max(map(len, frames)) < 8 * 1024
    limits = FloodLimits()
    async with open_hostile(victim) as attacker:
        before = victim.node.pool.groups_received
        stream = await attacker.open_stream()
        held_before, begun = victim.counts()["held_back"], victim.now
        for frame in frames:
            await stream.write(frame)
        await until(lambda: victim.counts()["held_back"] > held_before)
        let_in = (victim.node.pool.groups_received - before) / len(GROUPS)
        at_once = PubsubLimits().max_validating_per_peer + 1
        allowed_s = limits.work_burst + limits.work_per_second * (victim.now - begun + 1)
        assert let_in <= allowed_s / WORK_S + at_once
        assert victim.score(attacker.peer_id) == 0.0
        await still_works(victim)
