"""Whole nodes: a newcomer holds what came before it; one that ends has handed its batches on."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import trio

from shoal_p2p.live_node import LiveNode
from shoal_p2p.node import Node
from shoal_p2p.parts import Tuning
from shoal_wire.types import RolloutGroup
from tests.support import factories as make
from tests.support.exchange_nodes import big_groups
from tests.support.nodes import until
from tests.support.peers import INSTANT, address_of, open_peer
from tests.support.running_node import quiet_settings


def running(data_dir: Path, *bootstrap: LiveNode) -> AbstractAsyncContextManager[LiveNode]:
    """Run a node; on leaving it ends in order."""
    addresses = tuple(map(address_of, bootstrap))
    tuning = Tuning.of(quiet_settings(data_dir, bootstrap=addresses))
    return open_peer(
        Node,
        data_dir,
        parts=INSTANT,
        tuning=replace(tuning, bootstrap_s=0.4),
        bootstrap=addresses,
    )


async def share(node: LiveNode, groups: list[RolloutGroup], key: bytes) -> None:
    own = await node.outbox.accept(make.publish(groups, key=key))
    assert own.signed is not None
    node.pool.keep_own(own.signed)


def external(node: LiveNode) -> int:
    return node.buffer.stats(trio.current_time()).groups


async def test_a_node_that_ends_at_once_has_handed_on_its_last_big_batch(tmp_path: Path) -> None:
    async with running(tmp_path / "stays") as stays:
        big = big_groups(0, 600_000)
        async with running(tmp_path / "leaves", stays) as leaves:
            topic = leaves.member.manifest.topic(0)
            await until(lambda: leaves.member.gossip.mesh().get(topic))
            await share(leaves, big, b"last")
        await until(lambda: external(stays) == len(big))
