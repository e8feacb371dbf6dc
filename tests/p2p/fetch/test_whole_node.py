"""Whole nodes: a newcomer holds what came before it; one that ends has handed its batches on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from p2p import peer as peer_core
from p2p.buffer.types import Strategy
from p2p.net.identity import load_or_create_identity
from p2p.node import Node
from p2p.peers import manifest_source
from shoal_wire.types import RolloutGroup
from tests.support import factories as make
from tests.support.exchange_nodes import big_groups
from tests.support.node_swarm import InstantWorker
from tests.support.nodes import until
from tests.support.running_node import quiet_settings


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_core, "TaskWorker", InstantWorker)
    monkeypatch.setattr(manifest_source, "BOOTSTRAP_SECONDS", 0.4)


@asynccontextmanager
async def running(data_dir: Path, *bootstrap: Node) -> AsyncIterator[Node]:
    """Run a node; on leaving it ends in order."""
    await trio.Path(data_dir).mkdir(exist_ok=True)
    ready, ended = trio.Event(), trio.Event()
    addresses = tuple(node.core.host.listen_addrs()[0] for node in bootstrap)
    node = Node(
        identity=load_or_create_identity(data_dir / "identity.key"),
        settings=quiet_settings(data_dir, bootstrap=addresses),
        on_ready=lambda _node: ready.set(),
    )

    async def run() -> None:
        await node.run()
        ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        with trio.fail_after(40):
            await ready.wait()
        yield node
        node.stop()
        with trio.fail_after(40):
            await ended.wait()


async def share(node: Node, groups: list[RolloutGroup], key: bytes) -> None:
    own = await node.outbox.accept(make.publish(groups, key=key))
    node.pool.keep_own(own.envelope or b"")


def external(node: Node) -> int:
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
            assert sum(view["batches"].values()) == 6
            # Its trainer draws them, and it gives them on.
            leased = new.pool.lease(
                "trainer",
                num_local=0,
                num_external=99,
                strategy=Strategy.UNIFORM_PUBLISHERS,
                lease_seconds=60.0,
                exclude=(),
            )
            assert len(leased) == 5 + len(big)
            await until(lambda: len(new.exchange.shelf) == 6)


async def test_a_node_that_ends_at_once_has_handed_on_its_last_big_batch(tmp_path: Path) -> None:
    async with running(tmp_path / "stays") as stays:
        big = big_groups(0, 600_000)
        async with running(tmp_path / "leaves", stays) as leaves:
            topic = leaves.core.manifest.topic(0)
            await until(lambda: leaves.core.gossip.mesh().get(topic))
            await share(leaves, big, b"last")
        await until(lambda: external(stays) == len(big))
