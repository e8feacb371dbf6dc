"""Honest nodes are not charged: waste is charged to the peer that could have known of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
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
"""A hundredth of the node's limits, so that any waste shows at once."""


@asynccontextmanager
async def swarm(count: int) -> AsyncIterator[list[TestNode]]:
    """Nodes in one mesh, whose validators recognise duplicates."""
    async with open_test_swarm(count, settings=TIGHT) as nodes:
        await join(nodes, TOPIC)
        for node in nodes:
            await node.gossip.subscribe(TOPIC, _once())
        yield nodes


def _once():
    seen: set[bytes] = set()

    async def validate(data: bytes, _author: PeerId, _forwarder: PeerId) -> Verdict:
        if data in seen:
            return verdict(Reason.DUPLICATE)
        seen.add(data)
        return ACCEPT

    return validate


def charged(nodes: list[TestNode]) -> set[tuple[PeerId, Cause]]:
    return {charge for node in nodes for charge in node.watch.charged}


@pytest.mark.slow
async def test_busy_valid_traffic_is_not_charged() -> None:
    async with swarm(4) as nodes:
        for number in range(80):
            for node in nodes:
                await node.gossip.publish(TOPIC, b"%d of %s" % (number, node.peer_id.encode()))
        await until(
            lambda: all(node.gossip.stats().pubsub.get("forwarded", 0) == 240 for node in nodes)
        )
        await trio.sleep(0.5)
        copies = [node.gossip.stats().pubsub.get("duplicate", 0) for node in nodes]
        assert min(copies) > 80, "without copies the test would show nothing"
        assert not any(node.gossip.stats().pubsub.get("read_paused") for node in nodes)
        assert not charged(nodes)


async def send_messages(sender: HostilePeer, data: list[bytes], first_number: int) -> None:
    """Send a node messages signed by the sender's host."""
    author = sender.host.identity
    messages = [signed_by(author, TOPIC, each, first_number + at) for at, each in enumerate(data)]
    await sender.send_rpc(rpc_pb2.RPC(publish=messages))


async def test_one_batch_in_many_messages_is_charged_to_its_author_alone() -> None:
    async with swarm(3) as nodes, AsyncExitStack() as stack:
        host = await stack.enter_async_context(open_test_host())
        for node in nodes:
            await host.dial(node.address)
        senders = [HostilePeer(host, node.peer_id) for node in nodes]
        for turn in range(1, 25):
            data = [b"%d/%d" % (turn, number) for number in range(4)]
            async with trio.open_nursery() as nursery:
                for at, sender in enumerate(senders):
                    nursery.start_soon(send_messages, sender, data, (turn * 10 + at) * 1000)
            await trio.sleep(0.1)
        await until(lambda: charged(nodes))
        await trio.sleep(1.0)  # other peers might be charged later
        assert charged(nodes) == {(host.peer_id, Cause.FLOOD)}
        found = [node.gossip.stats().verdicts.get(Reason.DUPLICATE, 0) for node in nodes]
        assert sum(found) > 10


async def test_a_full_validation_queue_breaks_no_promise() -> None:
    few = GossipSettings(limits=GossipLimits(max_validating_per_peer=2))
    async with open_test_swarm(1, settings=few) as (node,), open_test_host() as other:

        async def never(_data: bytes, _author: PeerId, _forwarder: PeerId) -> Verdict:
            await trio.sleep_forever()
            raise AssertionError

        await node.gossip.subscribe(TOPIC, never)
        await other.dial(node.address)
        iwant, promised = node.gossip._mesh._iwant, other.peer_id
        knows_nothing: Any = SimpleNamespace(is_known=lambda _key, _now: False)
        iwant.on_iwant_sent(promised, [b"asked for before"], trio.current_time())
        sender = HostilePeer(other, node.peer_id)
        await send_messages(sender, [b"%d" % number for number in range(3)], 1)
        await until(lambda: promised in iwant._read_pauses)
        seconds, at = iwant._read_pauses[promised]
        iwant._read_pauses[promised] = (seconds, at + 60.0)
        later = at + 60.0
        assert iwant.broken_promises({promised}, knows_nothing, later) == []
