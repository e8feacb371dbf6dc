"""Whose stream waits for the work that it makes, and who pays for it."""

from __future__ import annotations

from dataclasses import replace

import trio
from libp2p.peer.id import ID
from libp2p.pubsub.pb import rpc_pb2

from shoal_p2p.gossip.flood_gate import FloodLimits
from shoal_p2p.gossip.messages import sign_message
from shoal_p2p.gossip.settings import GossipLimits, GossipSettings
from shoal_p2p.net.identity import Identity
from shoal_p2p.standing.scoring import Cause
from shoal_wire.verdict import ACCEPT
from tests.support.network import HostilePeer
from tests.support.nodes import fresh_identity, open_test_host, open_test_node, until

WORK_S = 0.1
COUNT = 60
LIMITS = GossipLimits(flood=FloodLimits(work_per_second=2.0, grace_s=0.2))
SETTINGS = GossipSettings(limits=LIMITS)


def message(author: Identity, number: int) -> rpc_pb2.Message:
    raw_id = ID.from_base58(author.peer_id).to_bytes()
    return sign_message(author, raw_id, "/t", b"%d" % number, number + 1)


async def bring(*, own: bool) -> tuple[int, float, list[Cause]]:
    """Send dear messages; return how many were judged, the seconds that took, and the charges."""
    async with open_test_node(settings=SETTINGS) as victim, open_test_host() as host:
        victim.judge = replace(ACCEPT, work_s=WORK_S)
        await victim.subscribe("/t")
        await host.dial(victim.address)
        peer = HostilePeer(host, victim.peer_id)
        stream = await peer.open_stream()
        begun = trio.current_time()
        for number in range(COUNT):
            author = host.identity if own else fresh_identity()
            await stream.write(_frame(message(author, number)))
        await until(lambda: victim.gossip.stats().pubsub.get("held_back", 0) > 0)
        judged = len(victim.received("/t"))
        seconds = trio.current_time() - begun
        await until(lambda: len(victim.received("/t")) == COUNT, patience_s=60)
        return judged, seconds, victim.watch.charged


def _frame(message: rpc_pb2.Message) -> bytes:
    body = rpc_pb2.RPC(publish=[message]).SerializeToString()
    assert 0x80 <= len(body) < 0x4000
    return bytes([len(body) & 0x7F | 0x80, len(body) >> 7]) + body


def most_at_once(seconds: float) -> float:
    """How many may have been judged before the stream waited for the first time."""
    limits = LIMITS.flood
    return (
        limits.work_burst + limits.work_per_second * seconds
    ) / WORK_S + LIMITS.max_validating_per_peer


async def test_who_forwards_dear_messages_is_read_more_slowly_and_does_not_pay() -> None:
    judged, seconds, charged = await bring(own=False)
    assert judged <= most_at_once(seconds) + 1
    assert charged == []


async def test_who_makes_them_itself_pays_like_any_flood() -> None:
    judged, seconds, charged = await bring(own=True)
    assert judged <= most_at_once(seconds) + 1
    assert set(charged) == {Cause.FLOOD}
