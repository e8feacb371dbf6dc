"""Real nodes in a swarm of several shards: each hears its shards, all of them and no others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from shoal_bootstrap.peer import BootstrapPeer, MeetingPoint
from shoal_p2p.events import BatchAccepted, Source
from shoal_p2p.live_node import NodeComponents
from shoal_p2p.net.identity import identity_from_seed
from shoal_p2p.node import Node
from shoal_p2p.peers.outside import wall_ms
from shoal_p2p.shards.traffic import ShardTraffic
from shoal_wire.shard_tree import first_of
from shoal_wire.topic_keys import COMMON_KEY
from shoal_wire.types import PeerId
from shoal_wire.verdict import Reason
from tests.support import factories as make
from tests.support.exchange_nodes import ExchangeNode
from tests.support.nodes import join, open_test_swarm, until
from tests.support.peers import INSTANT, address_of, open_peer

long_until = partial(until, patience_s=60.0)


class ShardNode(ExchangeNode):
    """A node of a swarm of shards, and the tasks whose groups it has published."""

    def __init__(self, live: NodeComponents) -> None:
        super().__init__(live)
        self.published: set[int] = set()

    @property
    def shard(self) -> int:
        """The shard on which it publishes."""
        shard = self.live.member.shards.own_shard()
        assert shard is not None
        return shard

    @property
    def shards(self) -> tuple[int, ...]:
        """The shards it listens to."""
        return self.live.member.shards.shards

    async def publish(self, number: int) -> None:
        await self.share(number)
        self.published.add(number)

    def expected(self, nodes: list[ShardNode]) -> set[int]:
        """Return what it is to hear of these nodes: all on its shards, and nothing else."""
        sources = [one for one in nodes if one is not self and one.shard in self.shards]
        return {number for one in sources for number in one.published}

    def knows_its_listeners(self, nodes: list[ShardNode]) -> bool:
        listeners = {o.peer_id for o in nodes if o is not self and self.shard in o.shards}
        return listeners <= set(self.gossip.topic_peers(self.manifest.topic(self.shard)))


@asynccontextmanager
async def open_swarm(
    folder: Path, count: int, *, of_bootstrap: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[tuple[MeetingPoint, list[ShardNode]]]:
    """Run a bootstrap peer and nodes that know its address.

    `settings` are those of all, but for `subscribe_shards`, which is the nodes', and for those of
    `of_bootstrap`.
    """
    shared = {key: value for key, value in settings.items() if key != "subscribe_shards"}
    async with AsyncExitStack() as stack:
        open_one = partial(open_peer, parts=INSTANT)
        bootstrap = await stack.enter_async_context(
            open_one(BootstrapPeer, folder / "b", **{**shared, **(of_bootstrap or {})})
        )
        at = (address_of(bootstrap),)
        yield (
            bootstrap,
            [
                ShardNode(
                    await stack.enter_async_context(
                        open_one(Node, folder / f"n{number}", bootstrap=at, **settings)
                    )
                )
                for number in range(count)
            ],
        )


@pytest.mark.slow
async def test_each_node_hears_all_of_its_shards_and_nothing_else(tmp_path: Path) -> None:
    async with open_swarm(tmp_path, 6, shards=3, subscribe_shards="1") as (bootstrap, nodes):
        assert bootstrap.member.shards.shards == ()
        await long_until(lambda: all(len(n.host.connected_peers()) == len(nodes) for n in nodes))
        # A connection comes before the word of what its peer listens to.
        await long_until(lambda: all(node.knows_its_listeners(nodes) for node in nodes))
        for index, node in enumerate(nodes):
            await node.publish(index)
        await long_until(
            lambda: all(node.received_numbers() >= node.expected(nodes) for node in nodes)
        )
        for node in nodes:
            assert node.received_numbers() == node.expected(nodes)
            # No copy of another shard came over the wire at all.
            assert not node.gossip.stats().pubsub.get("unknown_topic")
        assert bootstrap.groups_relayed == 0
        assert not bootstrap.member.gossip.stats().pubsub.get("received")
        # It is on no peer's shards, and publishes all the same.
        served = {shard for node in nodes for shard in node.shards}
        unheard = [n for n in nodes if n.shard not in n.shards and n.shard in served]
        await long_until(lambda: not any(n.outbox.num_unsent for n in unheard))


@pytest.mark.slow
async def test_peers_of_a_shard_are_found_through_others(tmp_path: Path) -> None:
    """Discovery is content with one connection; other peers of the shard are looked for."""
    of_all: dict[str, Any] = {"shards": 2, "subscribe_shards": "2", "target_peers": 1}
    many = {"target_peers": 64}
    async with open_swarm(tmp_path, 6, of_bootstrap=many, **of_all) as (_, nodes):
        for index, node in enumerate(nodes):
            await node.publish(index)
        numbers = set(range(len(nodes)))
        await long_until(
            lambda: all(node.received_numbers() == numbers - node.published for node in nodes)
        )
        await long_until(lambda: all(len(n.host.connected_peers()) >= 5 for n in nodes))


async def test_a_batch_on_a_shard_not_its_publishers_is_rejected(tmp_path: Path) -> None:
    async with open_swarm(tmp_path, 2, shards=2, subscribe_shards="2") as (_, (liar, victim)):
        await long_until(lambda: victim.host.is_connected(liar.peer_id))
        author = make.Author(victim.manifest, identity=liar.identity, now_ms=wall_ms())
        wrong = victim.manifest.topic(1 - liar.shard)
        await long_until(lambda: victim.peer_id in liar.gossip.topic_peers(wrong))
        await liar.gossip.publish(wrong, author.envelope())
        guard = victim.live.member.guard
        await long_until(lambda: guard.score(liar.peer_id) < 0)
        assert guard.verdicts.totals().reject == {Reason.WRONG_SWARM: 1}
        assert victim.received_numbers() == set()


async def test_nodes_of_different_depths_hear_each_other(tmp_path: Path) -> None:
    async with open_swarm(tmp_path, 2) as (_, nodes):
        deep, shallow = nodes
        keeper = deep.live.member.shards
        keeper._keys[COMMON_KEY].depth.depth = 2
        keeper._keys[COMMON_KEY].plan._renumber(4, [0, 1, 2, 3], trio.current_time())
        await long_until(lambda: deep.shards == (3, 4, 5, 6))
        topics = {deep.manifest.topic(shard) for shard in range(7)}
        await long_until(lambda: topics <= set(deep.gossip.topics()))
        await long_until(lambda: deep.knows_its_listeners(nodes))
        for number in range(3):
            await shallow.publish(number)
            await deep.publish(10 + number)
        await long_until(lambda: deep.received_numbers() == {0, 1, 2})
        await long_until(lambda: shallow.received_numbers() == {10, 11, 12})
        assert (shallow.shards, deep.shards) == ((0,), (3, 4, 5, 6))


TOPIC = "/shoal/test"


async def test_a_message_of_a_topic_left_meanwhile_has_no_cost() -> None:
    async with open_test_swarm(2) as nodes:
        one, other = nodes
        await join(nodes, TOPIC)
        # The message is on its way when the validator goes, before the peers learn of it.
        other.gossip._validators.pop(TOPIC)
        await one.gossip.publish(TOPIC, b"late")
        await until(lambda: other.verdicts)
        assert [judged.reason for _, _, judged in other.verdicts] == [Reason.LEFT_TOPIC]


async def test_publishers_are_counted_by_shard_at_any_depth_and_forgotten(
    autojump_clock: trio.testing.MockClock,
) -> None:
    manifest = make.swarm()
    traffic = ShardTraffic(manifest)
    names = [identity_from_seed(number.to_bytes(32, "big")).peer_id for number in range(1, 60)]

    def accept(peers: list[PeerId]) -> None:
        for peer_id in peers:
            traffic.add(
                BatchAccepted(
                    publisher=peer_id,
                    sequence=1,
                    previous_sequence=0,
                    num_groups=1,
                    source=Source.GOSSIP,
                )
            )

    def of(depth: int, *leaves: int) -> int:
        return traffic.publishers(leaves, depth, trio.current_time())

    accept(names)
    await trio.sleep(400)
    accept(names[:20])
    for depth in (0, 3, 1):
        counts = [of(depth, one) for one in range(1 << depth)]
        assert counts == [
            sum(manifest.is_of(name, {first_of(depth) + one}) for name in names)
            for one in range(1 << depth)
        ]
        assert of(depth, *range(1 << depth)) == len(names)
    await trio.sleep(201)
    assert of(1, 0, 1) == 20
    accept(names[30:32])
    assert of(0, 0) == 22
