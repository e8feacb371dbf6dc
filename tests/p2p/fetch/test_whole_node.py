"""A whole node that ends has handed its batches on."""

from __future__ import annotations

from pathlib import Path

import trio

from shoal_p2p.node import Node
from tests.support import factories as make
from tests.support.exchange_nodes import big_groups
from tests.support.nodes import until
from tests.support.peers import INSTANT, address_of, open_peer


async def test_a_node_that_ends_at_once_has_handed_on_its_last_big_batch(tmp_path: Path) -> None:
    big = big_groups(0, 600_000)
    async with open_peer(Node, tmp_path / "stays", parts=INSTANT) as stays:
        at = (address_of(stays),)
        async with open_peer(Node, tmp_path / "leaves", parts=INSTANT, bootstrap=at) as leaves:
            topic = leaves.member.manifest.topic(0)
            await until(lambda: leaves.member.gossip.mesh().get(topic))
            own = await leaves.outbox.accept(make.publish(big, key=b"last"))
            assert own.signed is not None
            leaves.pool.keep_own(own.signed)
        await until(lambda: stays.buffer.stats(trio.current_time()).groups == len(big))
