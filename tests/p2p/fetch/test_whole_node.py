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


async def test_a_newcomer_holds_what_was_shared_before_it_came(tmp_path: Path) -> None:
    big = big_groups(10, 150_000)
    async with running(tmp_path / "old") as old, running(tmp_path / "other", old) as other:
        for number in range(5):
            await share(old, [make.group(number)], b"%d" % number)
        await share(old, big, b"big")
        await until(lambda: external(other) == 5 + len(big))
        async with running(tmp_path / "new", other) as new:
            await until(lambda: external(new) == 5 + len(big))
            view = await new.views.fetch({})
            # Gossip still remembers some of them; whichever way they came, it was once.
            assert sum(view.batches.values()) == 6
            # Its trainer draws them, and it gives them on.
            leased = new.pool.lease("trainer", 99, lease_seconds=60.0)
            assert len(leased) == 5 + len(big)
            await until(lambda: len(new.exchange.shelf) == 6)


async def test_a_node_that_ends_at_once_has_handed_on_its_last_big_batch(tmp_path: Path) -> None:
    async with running(tmp_path / "stays") as stays:
        big = big_groups(0, 600_000)
        async with running(tmp_path / "leaves", stays) as leaves:
            topic = leaves.member.manifest.topic(0)
            await until(lambda: leaves.member.gossip.mesh().get(topic))
            await share(leaves, big, b"last")
        await until(lambda: external(stays) == len(big))
