"""Whole nodes and a bootstrap peer, many in one Trio loop: real libp2p and store, no trainers.

async with open_node_swarm(tmp_path, 5, shards=3) as swarm:
    await swarm.nodes[0].publish(7)
    await until(lambda: swarm.nodes[1].heard() == {7})

The task worker is the session's shared one: patch `p2p.peer.TaskWorker` with `SharedWorker`,
or with `InstantWorker` where question digests need not be real.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from bootstrap.peer import BootstrapPeer
from p2p.net.identity import load_or_create_identity
from p2p.node import Node
from shoal_settings.schema import Settings
from shoal_tasks.types import TaskCoordinates
from shoal_wire.digests import question_digest
from shoal_wire.types import Digest
from tests.support import factories as make
from tests.support.running_node import quiet_settings

if TYPE_CHECKING:
    from trio_typing import TaskStatus

START_SECONDS = 60.0
_keys = itertools.count(1)


class InstantWorker:
    """A task worker whose questions are `factories.fake_question`."""

    report = None

    def __init__(self, *_specs: object, **_limits: object) -> None:
        pass

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Be there until cancelled."""
        task_status.started()
        await trio.sleep_forever()

    async def question_digests(self, tasks: list[TaskCoordinates]) -> list[Digest]:
        """Return one digest a task."""
        await trio.lowlevel.checkpoint()
        return [question_digest(make.fake_question(task)) for task in tasks]


@dataclass(slots=True, kw_only=True, eq=False)
class SwarmNode:
    """One node of the swarm."""

    node: Node
    published: set[int] = field(default_factory=set)

    @property
    def shard(self) -> int:
        """The shard on which it publishes."""
        shard = self.node.core.shards.own_shard
        assert shard is not None
        return shard

    @property
    def shards(self) -> tuple[int, ...]:
        """The shards it listens to."""
        return self.node.core.shards.shards

    async def publish(self, *numbers: int) -> None:
        """Share a batch with one group for each of these tasks; it is on disk on return."""
        request = make.publish([make.group(n) for n in numbers], key=b"k%d" % next(_keys))
        own = await self.node.outbox.accept(request)
        assert own.envelope is not None
        self.node.pool.keep_own(own.envelope)
        self.published |= set(numbers)

    def heard(self) -> set[int]:
        """Return the tasks of other nodes' groups that have entered its buffer."""
        return {
            view.entry.group.group.task.seed - make.coordinates_at(0).seed
            for view in self.node.buffer.residents()
            if not view.entry.own
        }


@dataclass(slots=True, kw_only=True)
class NodeSwarm:
    """A running swarm."""

    bootstrap: BootstrapPeer
    nodes: list[SwarmNode]


@asynccontextmanager
async def open_node_swarm(
    folder: Path, count: int, *, bootstrap: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[NodeSwarm]:
    """Run a bootstrap peer and `count` nodes that know its address; on leaving all end in order.

    `settings` are everybody's, but for `subscribe_shards`, which is the nodes'; `bootstrap` has
    those in which the bootstrap peer differs.
    """
    shared = {key: value for key, value in settings.items() if key != "subscribe_shards"}
    async with trio.open_nursery() as nursery:
        meeting = await _start_bootstrap(
            nursery, quiet_settings(_made(folder / "b"), **{**shared, **(bootstrap or {})})
        )
        address = meeting.core.host.listen_addrs()[0]
        nodes: list[SwarmNode] = []
        for number in range(count):
            changed = quiet_settings(_made(folder / f"n{number}"), bootstrap=(address,), **settings)
            nodes.append(SwarmNode(node=await _start_node(nursery, changed)))
        try:
            yield NodeSwarm(bootstrap=meeting, nodes=nodes)
        finally:
            for member in nodes:
                member.node.stop()
            meeting.stop()


async def _start_node(nursery: trio.Nursery, settings: Settings) -> Node:
    ready = trio.Event()
    node = Node(
        identity=load_or_create_identity(settings.data_dir / "identity.key"),
        settings=settings,
        on_ready=lambda _node: ready.set(),
    )
    nursery.start_soon(node.run)
    with trio.fail_after(START_SECONDS):
        await ready.wait()
    return node


async def _start_bootstrap(nursery: trio.Nursery, settings: Settings) -> BootstrapPeer:
    ready = trio.Event()
    peer = BootstrapPeer(
        identity=load_or_create_identity(settings.data_dir / "identity.key"),
        settings=settings,
        on_ready=lambda _peer: ready.set(),
    )
    nursery.start_soon(peer.run)
    with trio.fail_after(START_SECONDS):
        await ready.wait()
    return peer


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
