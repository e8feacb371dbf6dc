"""Whole nodes and a bootstrap peer, many in one Trio loop: real libp2p and store, no trainers.

async with open_node_swarm(tmp_path, 5, shards=3) as swarm:
    await swarm.nodes[0].publish(7)
    await until(lambda: swarm.nodes[1].heard() == {7})

Their task worker answers at once, `factories.fake_question` of each task.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal_bootstrap.peer import BootstrapPeer, MeetingPoint
from shoal_p2p.live_node import LiveNode
from shoal_p2p.node import Node
from tests.support import factories as make
from tests.support.peers import INSTANT, address_of, open_peer

if TYPE_CHECKING:
    pass

_keys = itertools.count(1)


@dataclass(slots=True, kw_only=True, eq=False)
class SwarmNode:
    """One node of the swarm."""

    node: LiveNode
    published: set[int] = field(default_factory=set)

    @property
    def shard(self) -> int:
        """The shard on which it publishes."""
        shard = self.node.member.shards.own_shard
        assert shard is not None
        return shard

    @property
    def shards(self) -> tuple[int, ...]:
        """The shards it listens to."""
        return self.node.member.shards.shards

    async def publish(self, *numbers: int) -> None:
        """Share a batch with one group for each of these tasks; it is on disk on return."""
        request = make.publish([make.group(n) for n in numbers], key=b"k%d" % next(_keys))
        own = await self.node.outbox.accept(request)
        assert own.signed is not None
        self.node.pool.keep_own(own.signed)
        self.published |= set(numbers)

    def heard(self) -> set[int]:
        """Return the tasks of other nodes' groups that have entered its buffer."""
        return {
            entry.group.group.task.seed - make.coordinates_at(0).seed
            for entry in self.node.buffer.residents()
        }


@dataclass(slots=True, kw_only=True)
class NodeSwarm:
    """A running swarm."""

    bootstrap: MeetingPoint
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
    async with AsyncExitStack() as stack:
        meeting = await stack.enter_async_context(
            open_peer(BootstrapPeer, folder / "b", parts=INSTANT, **{**shared, **(bootstrap or {})})
        )
        nodes = [
            await stack.enter_async_context(
                open_peer(
                    Node,
                    folder / f"n{number}",
                    parts=INSTANT,
                    bootstrap=(address_of(meeting),),
                    **settings,
                )
            )
            for number in range(count)
        ]
        yield NodeSwarm(bootstrap=meeting, nodes=[SwarmNode(node=node) for node in nodes])
