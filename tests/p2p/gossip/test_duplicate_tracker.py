"""Nobody pays for what an honest node does: waste is charged to whoever could have known of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import Any

import trio
from libp2p.pubsub.pb import rpc_pb2

from shoal_p2p.gossip.rate_limiter import FloodLimits
from shoal_p2p.gossip.settings import GossipLimits, GossipSettings
from shoal_p2p.reputation.scoring import Cause
from shoal_wire.types import PeerId
from shoal_wire.verdict import ACCEPT, Reason, Verdict, verdict
from tests.support.network import HostilePeer, signed_by
from tests.support.nodes import TestNode, join, open_test_host, open_test_swarm, until

TOPIC = "/shoal/test"
TIGHT = GossipSettings(
    limits=GossipLimits(
        flood=FloodLimits(waste_per_second=5.0, waste_burst=20.0, grace_s=0.2),
        max_validating_per_peer=64,
    )
)
"""A hundredth of what the node allows: what wastes anything at all shows at once."""


@asynccontextmanager
async def swarm(count: int) -> AsyncIterator[list[TestNode]]:
    """Nodes in one mesh, whose validators know a batch again."""
    async with open_test_swarm(count, settings=TIGHT) as nodes:
        await join(nodes, TOPIC)
        for node in nodes:
            await node.gossip.subscribe(TOPIC, _once())
        yield nodes


def _once():
    heard: set[bytes] = set()

    async def validate(data: bytes, _author: PeerId, _forwarder: PeerId) -> Verdict:
        if data in heard:
            return verdict(Reason.DUPLICATE)
        heard.add(data)
        return ACCEPT

    return validate


def charged(nodes: list[TestNode]) -> set[tuple[PeerId, Cause]]:
    return {charge for node in nodes for charge in node.watch.charged}


async def test_busy_valid_traffic_is_no_offence_of_who_forwards_it() -> None:
    async with swarm(4) as nodes:
        for number in range(80):
            for node in nodes:
                await node.gossip.publish(TOPIC, b"%d of %s" % (number, node.peer_id.encode()))
        await until(
            lambda: all(node.gossip.stats().pubsub.get("forwarded", 0) == 240 for node in nodes)
        )
        await trio.sleep(0.5)
        copies = [node.gossip.stats().pubsub.get("duplicate", 0) for node in nodes]
        assert min(copies) > 80, "the mesh brings copies, or this shows nothing"
        assert not any(node.gossip.stats().pubsub.get("held_back") for node in nodes)
        assert not charged(nodes)


async def say(mouth: HostilePeer, data: list[bytes], first_number: int) -> None:
    """Send one node messages of the mouth's own."""
    author = mouth.host.identity
    messages = [signed_by(author, TOPIC, each, first_number + at) for at, each in enumerate(data)]
    await mouth.send_rpc(rpc_pb2.RPC(publish=messages))


async def test_one_batch_in_many_messages_is_its_authors_doing_and_no_forwarders() -> None:
    async with swarm(3) as nodes, AsyncExitStack() as stack:
        host = await stack.enter_async_context(open_test_host())
        for node in nodes:
            await host.dial(node.address)
        mouths = [HostilePeer(host, node.peer_id) for node in nodes]
        for turn in range(1, 25):
            data = [b"%d/%d" % (turn, number) for number in range(4)]
            async with trio.open_nursery() as nursery:
                for at, mouth in enumerate(mouths):
                    nursery.start_soon(say, mouth, data, (turn * 10 + at) * 1000)
            await trio.sleep(0.1)
        await until(lambda: charged(nodes))
        await trio.sleep(1.0)  # whoever else is blamed may be so later
        assert charged(nodes) == {(host.peer_id, Cause.FLOOD)}
        found = [node.gossip.stats().verdicts.get(Reason.DUPLICATE, 0) for node in nodes]
        assert sum(found) > 10


async def test_who_waits_for_us_to_judge_what_it_brought_breaks_no_promise() -> None:
    few = GossipSettings(limits=GossipLimits(max_validating_per_peer=2))
    async with open_test_swarm(1, settings=few) as (node,), open_test_host() as other:

        async def never(_data: bytes, _author: PeerId, _forwarder: PeerId) -> Verdict:
            await trio.sleep_forever()
            raise AssertionError

        await node.gossip.subscribe(TOPIC, never)
        await other.dial(node.address)
        wants, promised = node.gossip._mesh._wants, other.peer_id
        knows_nothing: Any = SimpleNamespace(knows=lambda _key, _now: False)
        wants.asked(promised, [b"asked for before"], trio.current_time())
        mouth = HostilePeer(other, node.peer_id)
        await say(mouth, [b"%d" % number for number in range(3)], 1)
        await until(lambda: promised in wants._unread)
        seconds, at = wants._unread[promised]
        wants._unread[promised] = (seconds, at + 60.0)
        later = at + 60.0
        assert wants.broken({promised}, knows_nothing, later) == []
