"""The trainer's books: what it owes the node survives the node's absence, within bounds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from shoal_ipc import messages as m
from shoal_ipc.client import Leases, NodeClient
from shoal_p2p.intake.validation import reopen_batch
from shoal_p2p.store.store import OwnBatch
from shoal_p2p.store.types import StoreError, StoreFault
from shoal_policy.node import send_queue
from shoal_policy.node.link import NodeLink
from shoal_wire.limits import MAX_BATCH_BYTES
from shoal_wire.types import GroupId
from tests.support import factories as make
from tests.support.local_node import LocalNode, NodeThread, wall_ms

IDS = tuple(GroupId(bytes([number]) * 16) for number in range(6))


@pytest.fixture
def away(tmp_path: Path) -> Iterator[NodeLink]:
    """A link with a node that is not there yet."""
    client = NodeClient(tmp_path / "node.sock", timeout_seconds=5.0)
    yield NodeLink(client)
    client.close()


def arrive(link: NodeLink) -> None:
    """Wait until the client has found its node."""
    assert link._client is not None
    assert link._client.wait(20.0)


def batch(number: int) -> m.Publish:
    return make.publish([make.group(number)], key=b"key %d" % number, round=number)


async def _receive(node: LocalNode, count: int) -> None:
    author = make.Author(node.manifest, now_ms=wall_ms())
    await node.receive(author.signed(author.batch([make.group(n) for n in range(count)])))


def test_without_a_node_everything_is_quietly_nothing() -> None:
    link = NodeLink(None)
    link.share(batch(1))
    assert link.flush()
    assert link.sample(3) == ()
    link.lease_ahead(3)
    link.end_leases(consumed=IDS)
    link.report([])
    link.send_status("{}")
    link.report_outcomes(1, ())
    link.hold_until_checkpoint(IDS)
    link.consume_held()
    assert not link.connected
    assert link.counts.batches_published == 0


def test_batches_wait_for_the_node_and_go_out_in_order(tmp_path: Path, away: NodeLink) -> None:
    for number in range(1, 4):
        away.share(batch(number))
    assert not away.flush()
    assert away.counts.batches_published == 0
    with NodeThread(tmp_path) as node:
        arrive(away)
        away.share(batch(4))
        assert away.flush()
        assert away.counts.batches_published == 4
        assert away.counts.groups_published == 4
        recent = node.node.recent.after(0, limit=9)
        assert [found.group.round for found in recent] == [1, 2, 3, 4]


def test_too_many_waiting_drop_the_oldest_and_count(
    tmp_path: Path, away: NodeLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_queue, "MAX_PENDING_BATCHES", 2)
    for number in range(1, 6):
        away.share(batch(number))
        assert len(away._send_queue._pending) <= 2
    assert away.counts.batches_dropped == 3
    with NodeThread(tmp_path) as node:
        arrive(away)
        assert away.flush()
        recent = node.node.recent.after(0, limit=9)
        assert [found.group.round for found in recent] == [4, 5]


def test_a_batch_that_will_never_do_does_not_hold_up_the_next(link: NodeLink) -> None:
    link.share(make.publish([make.group(1, ("only one",))], key=b"bad"))
    link.share(batch(2))
    assert link.flush()
    assert link.counts.batches_dropped == 1
    assert link.counts.batches_published == 1


class SlowDisk:
    """Holds the node's disk back until it is released."""

    def __init__(self, node: NodeThread) -> None:
        self._node = node.node
        self._reserve = node.node.outbox._store.reserve_own
        self._free = trio.Event()
        node.node.outbox._store.reserve_own = self._wait

    async def _wait(self, *arguments: Any) -> OwnBatch:
        await self._free.wait()
        return await self._reserve(*arguments)

    async def let_go(self) -> None:
        """Let it write."""
        self._free.set()


def test_sharing_does_not_wait_for_the_disk_and_sampling_ahead_not_for_sharing(
    node: NodeThread, link: NodeLink
) -> None:
    node.call(_receive, node.node, 2)
    disk = SlowDisk(node)
    link.lease_ahead(2)
    for number in range(1, send_queue.MAX_SENT_BATCHES + 1):
        link.share(batch(number))
    ids = [item.group_id for item in link.sample(2)]
    assert len(ids) == 2
    link.end_leases(consumed=ids[:1], released=ids[1:])
    link.send_report()
    # All that without an answer: the node is still at the first batch.
    assert link.counts.batches_published == 0
    node.call(disk.let_go)
    assert link.flush()
    assert link.counts.batches_published == send_queue.MAX_SENT_BATCHES
    link.drain()
    assert node.node.buffer.ready() == 1


def test_a_refusal_for_lack_of_room_is_known_when_it_has_come(
    node: NodeThread, link: NodeLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read with the next batch, it would hold up a run whose disk has room again."""
    outbox: Any = node.node.outbox

    async def full(*_arguments: Any) -> OwnBatch:
        raise StoreError(StoreFault.FULL, "database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(outbox._store, "reserve_own", full)
        link.share(batch(1))
        link.drain()  # the node answers in order: so the refusal has come
        assert link.disk_full_reason() == m.NO_ROOM
    link._send_queue._retry_at = 0.0
    assert link.disk_full_reason() == ""
    assert link.counts.batches_published == 1


def test_acknowledgements_are_read_when_they_have_come(node: NodeThread, link: NodeLink) -> None:
    link.share(batch(1))
    link.drain()  # the node answers in order: so the first answer has come
    link.share(batch(2))
    assert link.counts.batches_published == 1
    assert len(link._send_queue._pending) == 1


def test_no_more_batches_than_the_bound_are_on_their_way(node: NodeThread) -> None:
    client = node.node.client(timeout_seconds=0.5)
    link = NodeLink(client)
    disk = SlowDisk(node)
    for number in range(1, send_queue.MAX_SENT_BATCHES + 2):
        link.share(batch(number))
    # The one too many waited for the first until its deadline, and the connection is gone.
    assert not client.connected
    assert len(link._send_queue._pending) == send_queue.MAX_SENT_BATCHES + 1
    node.call(disk.let_go)
    client._timeout = 20.0
    arrive(link)
    assert link.flush()
    recent = node.node.recent.after(0, limit=20)
    assert sorted(found.group.round for found in recent) == list(range(1, 10))
    client.close()


@pytest.mark.parametrize("node_dies_too", [False, True])
def test_killed_between_sending_and_acknowledgement_the_batch_is_there_once(
    node: NodeThread, node_dies_too: bool
) -> None:
    killed = NodeLink(node.node.client())
    killed.share(batch(1))
    killed._client.close()  # type: ignore[union-attr]
    if node_dies_too:
        node.restart()
    # No checkpoint has the round, so it is played again: with the same outcome, then another.
    resumed = NodeLink(node.node.client())
    resumed.share(batch(1))
    resumed.share(make.publish([make.group(7)], key=b"another", round=1))
    assert resumed.flush()
    node.call(node.node.outbox.drained)
    node.kill()
    stored = [reopen_batch(data, max_bytes=MAX_BATCH_BYTES) for data in node.published]
    assert {signed.batch.groups[0].task.seed for signed in stored} == {
        make.group(1).task.seed,
        make.group(7).task.seed,
    }
    assert len({signed.batch.sequence for signed in stored}) == 2
    resumed._client.close()  # type: ignore[union-attr]


def test_what_was_on_its_way_when_the_node_died_goes_out_first(
    node: NodeThread, link: NodeLink
) -> None:
    SlowDisk(node)
    for number in range(1, 4):
        link.share(batch(number))
    node.kill()
    link.share(batch(4))
    node.start()
    arrive(link)
    link.share(batch(5))
    assert link.flush()
    recent = node.node.recent.after(0, limit=9)
    assert [found.group.round for found in recent] == [1, 2, 3, 4, 5]


def test_groups_are_acknowledged_only_with_the_checkpoint(node: NodeThread, link: NodeLink) -> None:
    node.call(_receive, node.node, 3)
    ids = [item.group_id for item in link.sample(3)]
    link.hold_until_checkpoint(ids[:2])
    stats = node.node.buffer.stats
    assert set(link.consumed_for_checkpoint()) == set(ids[:2])
    assert stats(0.0).consumed_total == 0
    link.consume_held()
    assert stats(0.0).consumed_total == 2
    assert link.consumed_for_checkpoint() == ()
    assert link.leases() == Leases(held=(ids[2],))
    link.end_leases(released=(ids[2],))
    link.drain()
    assert node.node.buffer.ready() == 1


def test_a_round_with_a_checkpoint_costs_one_request_for_groups_and_one_report(
    node: NodeThread, link: NodeLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrive(link)
    client, sent = link._client, list[m.Body]()
    assert client is not None
    send = client._send

    def record(connection: Any, body: m.Body) -> None:
        sent.append(body)
        send(connection, body)

    monkeypatch.setattr(client, "_send", record)
    for number in range(3):
        node.call(_receive, node.node, 4 * (number + 1))  # the first ones are known
        used, spare, *rest = link.sample(4)
        for group in (used, spare):
            reward = m.GroupReport(
                group_id=group.group_id, publisher=group.publisher, rewards=(0.0, 1.0)
            )
            link.report([reward])
        link.end_leases(released=[spare.group_id], consumed=[group.group_id for group in rest])
        link.hold_until_checkpoint([used.group_id])
        link.report_outcomes(number + 1, ())
        link.consume_held()
    assert [type(body) for body in sent] == 3 * [m.Sample, m.Report]
    assert node.node.buffer.stats(0.0).consumed_total == 9
    assert link.leases() == Leases()
    link.report([])
    link.end_leases()
    link.send_report()
    assert len(sent) == 6, "nothing to report"


def test_a_checkpoint_written_while_the_node_is_away_is_made_up_for(
    node: NodeThread, link: NodeLink
) -> None:
    node.call(_receive, node.node, 2)
    ids = [item.group_id for item in link.sample(2)]
    link.hold_until_checkpoint(ids)
    node.kill()
    link.consume_held()
    # Not confirmed, so the next checkpoint and the next handshake name them again.
    assert set(link.consumed_for_checkpoint()) == set(ids)
    assert set(link.leases().consumed) == set(ids)
    node.start()
    arrive(link)
    assert node.node.buffer.stats(0.0).groups == 0
    assert link.sample(2) == ()


def test_a_resumed_trainer_confirms_the_groups_of_its_checkpoint(away: NodeLink) -> None:
    away.restore_consumed(IDS[:2])
    away.hold_until_checkpoint(IDS[2:3])
    assert away.leases() == Leases(consumed=IDS[:2], held=IDS[2:3])
    assert away.consumed_for_checkpoint() == IDS[:3]
