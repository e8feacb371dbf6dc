"""Valid batches that are a few kilobytes on the wire and tens of thousands of completions."""

from __future__ import annotations

from libp2p.peer.id import ID
from libp2p.pubsub.pb import rpc_pb2

from shoal_p2p.gossip.codec import encode_frame
from shoal_p2p.gossip.messages import sign_message
from shoal_p2p.parts import wall_ms
from tests.support import factories as make
from tests.support.nodes import until
from tests.support.victim import Victim, open_hostile, still_works

COUNT = 20
GROUPS = [make.group(of=make.task(1), texts=[f"{n}"] * 64) for n in range(200)]


def dear_message(victim: Victim) -> rpc_pb2.Message:
    """A batch of an author that nobody has heard of."""
    author = make.Author(victim.node.member.manifest, now_ms=wall_ms())
    raw_id = ID.from_base58(author.peer_id).to_bytes()
    data = author.envelope(author.batch(GROUPS))
    return sign_message(author.identity, raw_id, victim.topic, data, 1)


async def test_a_node_works_on_while_it_is_sent_dear_batches(victim: Victim) -> None:
    """Names are free: each batch is another author's, all come over one connection."""
    frames = [encode_frame(rpc_pb2.RPC(publish=[dear_message(victim)])) for _ in range(COUNT)]
    assert max(map(len, frames)) < 8 * 1024
    async with open_hostile(victim) as attacker:
        before = victim.node.pool.groups_received
        stream = await attacker.open_stream()
        for frame in frames:
            await stream.write(frame)
        await until(lambda: victim.node.pool.groups_received > before)
        await still_works(victim)
        assert victim.score(attacker.peer_id) == 0.0
