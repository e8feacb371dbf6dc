"""Real nodes in a swarm of several shards: each hears its shards, all of them and no others."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from shoal_p2p.intake.intake import BatchAccepted
from shoal_p2p.intake.validation import Source
from shoal_p2p.net.identity import identity_from_seed
from shoal_p2p.parts import wall_ms
from shoal_p2p.shards.keeper import ShardTraffic
from shoal_wire.shard_tree import first_of
from shoal_wire.types import PeerId
from shoal_wire.verdict import Reason
from tests.support import factories as make
from tests.support.node_swarm import SwarmNode, open_node_swarm
from tests.support.nodes import join, open_test_swarm, until

PATIENCE_S = 60.0


def expected_of(listener: SwarmNode, nodes: list[SwarmNode]) -> set[int]:
    return {
        number
        for other in nodes
        if other is not listener and other.shard in listener.shards
        for number in other.published
    }


def knows_its_listeners(node: SwarmNode, nodes: list[SwarmNode]) -> bool:
    member = node.node.member
    listeners = {o.node.member.peer_id for o in nodes if o is not node and node.shard in o.shards}
    return listeners <= set(member.gossip.topic_peers(member.manifest.topic(node.shard)))


@pytest.mark.slow
async def test_each_node_hears_all_of_its_shards_and_nothing_else(tmp_path: Path) -> None:
    async with open_node_swarm(tmp_path, 6, shards=3, subscribe_shards="1") as swarm:
        nodes = swarm.nodes
        assert swarm.bootstrap.member.shards.shards == ()
        await until(
            lambda: all(len(n.node.member.host.connected_peers()) == len(nodes) for n in nodes),
            patience_s=PATIENCE_S,
        )
        # A connection comes before the word of what its peer listens to.
        await until(
            lambda: all(knows_its_listeners(node, nodes) for node in nodes), patience_s=PATIENCE_S
        )
        for index, node in enumerate(nodes):
            await node.publish(index)
        await until(
            lambda: all(node.heard() >= expected_of(node, nodes) for node in nodes),
            patience_s=PATIENCE_S,
        )
        for node in nodes:
            assert node.heard() == expected_of(node, nodes)
            # No copy of another shard came over the wire at all.
            assert not node.node.member.gossip.stats().pubsub.get("unknown_topic")
        assert swarm.bootstrap.groups_relayed == 0
        assert not swarm.bootstrap.member.gossip.stats().pubsub.get("received")
        # It is on nobody's shards, and publishes all the same.
        served = {shard for node in nodes for shard in node.shards}
        unheard = [n for n in nodes if n.shard not in n.shards and n.shard in served]
        await until(
            lambda: not any(n.node.outbox.num_unsent for n in unheard), patience_s=PATIENCE_S
        )


@pytest.mark.slow
async def test_peers_of_a_shard_are_found_through_others(tmp_path: Path) -> None:
    """Discovery is content with one connection: whoever else serves the shard is asked for."""
    async with open_node_swarm(
        tmp_path, 6, shards=2, subscribe_shards="2", target_peers=1, bootstrap={"target_peers": 64}
    ) as swarm:
        nodes = swarm.nodes
        for index, node in enumerate(nodes):
            await node.publish(index)
        numbers = set(range(len(nodes)))
        await until(
            lambda: all(node.heard() == numbers - node.published for node in nodes),
            patience_s=PATIENCE_S,
        )
        await until(
            lambda: all(len(node.node.member.host.connected_peers()) >= 5 for node in nodes),
            patience_s=PATIENCE_S,
        )


async def test_a_batch_on_a_shard_not_its_publishers_is_rejected(tmp_path: Path) -> None:
    async with open_node_swarm(tmp_path, 2, shards=2, subscribe_shards="2") as swarm:
        liar, victim = swarm.nodes
        member = victim.node.member
        await until(
            lambda: liar.node.member.peer_id in member.host.connected_peers(), patience_s=PATIENCE_S
        )
        manifest = member.manifest
        author = make.Author(manifest, identity=liar.node.member.host.identity, now_ms=wall_ms())
        wrong = manifest.topic(1 - liar.shard)
        await until(
            lambda: victim.node.member.peer_id in liar.node.member.gossip.topic_peers(wrong),
            patience_s=PATIENCE_S,
        )
        await liar.node.member.gossip.publish(wrong, author.envelope())
        await until(
            lambda: member.guard.score(liar.node.member.peer_id) < 0,
            patience_s=PATIENCE_S,
        )
        assert member.guard.verdicts.totals().reject == {Reason.WRONG_SWARM: 1}
        assert victim.heard() == set()


async def test_nodes_of_different_depths_hear_each_other(tmp_path: Path) -> None:
    async with open_node_swarm(tmp_path, 2) as swarm:
        deep, shallow = swarm.nodes
        keeper = deep.node.member.shards
        keeper._division.depth = 2
        keeper._plan._renumber(4, [0, 1, 2, 3], trio.current_time())
        await until(lambda: keeper.shards == (3, 4, 5, 6), patience_s=PATIENCE_S)
        topics = {keeper._manifest.topic(shard) for shard in range(7)}
        await until(lambda: topics <= set(deep.node.member.gossip.topics()), patience_s=PATIENCE_S)
        await until(lambda: knows_its_listeners(deep, swarm.nodes), patience_s=PATIENCE_S)
        for number in range(3):
            await shallow.publish(number)
            await deep.publish(10 + number)
        await until(lambda: deep.heard() == {0, 1, 2}, patience_s=PATIENCE_S)
        await until(lambda: shallow.heard() == {10, 11, 12}, patience_s=PATIENCE_S)
        assert shallow.node.member.shards.shards == (0,)
        assert keeper.shards == (3, 4, 5, 6)


TOPIC = "/shoal/test"


async def test_a_message_whose_topic_was_left_meanwhile_costs_nobody_anything() -> None:
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

    def heard(peers: list[PeerId]) -> None:
        for peer_id in peers:
            traffic.accepted(batch_of(peer_id))

    def of(depth: int, *leaves: int) -> int:
        return traffic.publishers(leaves, depth, trio.current_time())

    heard(names)
    await trio.sleep(400)
    heard(names[:20])
    for depth in (0, 3, 1):
        counts = [of(depth, one) for one in range(1 << depth)]
        assert counts == [
            sum(manifest.is_of(name, {first_of(depth) + one}) for name in names)
            for one in range(1 << depth)
        ]
        assert of(depth, *range(1 << depth)) == len(names)
    await trio.sleep(201)
    assert of(1, 0, 1) == 20
    heard(names[30:32])
    assert of(0, 0) == 22


def batch_of(publisher: PeerId) -> BatchAccepted:
    return BatchAccepted(
        publisher=publisher,
        sequence=1,
        previous_sequence=0,
        num_groups=1,
        source=Source.GOSSIP,
    )
