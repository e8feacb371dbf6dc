"""Whole nodes whose swarm takes a new task while it runs."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

from shoal_ipc import messages as m
from shoal_ipc.answers.tasks import OfferedTask
from shoal_p2p.bundles import offer_exchange
from shoal_p2p.live_node import NodeComponents
from shoal_p2p.node import Node
from shoal_p2p.parts import Dependencies
from shoal_tasks.families import coordinates
from shoal_tasks.spec import FamilySpec
from shoal_wire.types import RolloutGroup
from tests.p2p.bundles.cases import author_spec
from tests.support import factories as make
from tests.support.doubles.worker import InstantWorker, fake_question
from tests.support.nodes import until
from tests.support.peers import address_of, open_peer

PARTS = Dependencies(worker=lambda families, _patience_s: InstantWorker(families))
_keys = itertools.count(1)


class Swarm:
    """A founder, and a node that brings a task of its own to the founder's swarm."""

    def __init__(self, founder: NodeComponents, author: NodeComponents, spec: FamilySpec) -> None:
        self.founder, self.author, self.spec = founder, author, spec

    async def share(self, node: NodeComponents) -> None:
        """Publish a group of the author's task."""
        at = coordinates(self.spec, (1 << 21) + next(_keys))
        group = make.group(of=make.task_of(self.spec, at.seed, fake_question(at)))
        request = make.publish([group], key=b"r%d" % next(_keys))
        reply = await node.service.handle("h", m.Role.PUBLISHER, request)
        assert isinstance(reply, m.PublishReply)

    def received(self, node: NodeComponents) -> list[RolloutGroup]:
        """Return the groups of the author's task in a node's buffer."""
        entries = node.buffer.external_groups()
        groups = [one.group.group for one in entries]
        return [one for one in groups if one.task.config_digest == self.spec.digest]

    async def row(self, node: NodeComponents) -> OfferedTask | None:
        """Return the author's task in the view of a node."""
        return next(iter((await node.tasks.desk.tasks({})).tasks), None)

    async def order(self, node: NodeComponents, action: m.TaskAction, task: str) -> m.Body:
        """Send an order as a command does."""
        order = m.TaskOrder(action=action, task=task, rule="1MB,sums")
        return await node.service.handle("h", m.Role.INSPECTOR, order)

    async def until_state(self, node: NodeComponents, state: str) -> OfferedTask:
        with trio.fail_after(30.0):
            while True:
                row = await self.row(node)
                if row is not None and row.state == state:
                    return row
                await trio.sleep(0.05)


@pytest.fixture
async def swarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Swarm]:
    monkeypatch.setattr(offer_exchange, "_ASK_EVERY_S", 0.05)
    spec = author_spec(tmp_path / "a", num_rows=30, reward="reward.py", title="Small sums")
    async with AsyncExitStack() as stack:
        founder = await stack.enter_async_context(
            open_peer(Node, tmp_path / "founder", parts=PARTS)
        )
        author = await stack.enter_async_context(
            open_peer(
                Node,
                tmp_path / "author",
                parts=PARTS,
                bootstrap=(address_of(founder),),
                tasks=str(tmp_path / "a" / "sums.toml"),
            )
        )
        yield Swarm(founder, author, spec)


async def test_a_running_node_hears_of_a_task_adds_it_and_ends_it(swarm: Swarm) -> None:
    founder, author = swarm.founder, swarm.author
    assert [one.name for one in author.member.added] == ["sums"]
    assert author.manifest.digest == founder.manifest.digest
    row = await swarm.until_state(founder, "offered")
    assert (row.name, row.title, row.questions, row.has_code) == ("sums", "Small sums", 30, True)
    assert (row.offered_by, row.nodes) == ((author.peer.peer_id,), 0)
    await swarm.share(author)
    await trio.sleep(0.3)
    assert not swarm.received(founder), "an offer alone costs nothing"
    began = [one.opened_s for one in founder.peer.host.connections()]
    assert isinstance(await swarm.order(founder, m.TaskAction.ADD, "sums"), m.Ok)
    row = await swarm.until_state(founder, "accepted")
    assert row.nodes == 1 and founder.member.added == (swarm.spec,)
    await until(lambda: author.peer.peer_id in founder.peer.gossip.subscriptions())
    topic = founder.manifest.topic(founder.member.shards.own_shard(_key(swarm)) or 0)
    await until(lambda: founder.peer.peer_id in author.peer.gossip.topic_peers(topic))
    await swarm.share(author)
    await swarm.share(founder)
    await until(lambda: swarm.received(founder) and swarm.received(author))
    now = [one.opened_s for one in founder.peer.host.connections()]
    assert len(now) == len(began) and min(now) >= max(began), "the node was not restarted"
    assert isinstance(await swarm.order(founder, m.TaskAction.REMOVE, "sums"), m.Ok)
    assert not founder.member.added and topic not in founder.peer.gossip.topics()
    assert not founder.tasks.shared.bundle(swarm.spec.digest)
    row = await swarm.until_state(founder, "offered")
    answer = await swarm.order(founder, m.TaskAction.REMOVE, "sums")
    assert isinstance(answer, m.Failure) and "no task 'sums'" in answer.reason


def _key(swarm: Swarm) -> int:
    return int.from_bytes(swarm.spec.digest[:6], "big")


async def test_a_task_of_another_node_is_ignored_and_costs_its_sender_nothing(
    swarm: Swarm,
) -> None:
    await until(swarm.founder.peer.host.connections)
    await swarm.share(swarm.author)
    await trio.sleep(0.5)
    assert not swarm.founder.peer.guard.verdicts.totals().ignore
    assert swarm.founder.peer.guard.score(swarm.author.peer.peer_id) >= 0
