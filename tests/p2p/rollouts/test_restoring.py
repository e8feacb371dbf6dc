"""A restart with much on disk: in pieces, envelopes in a thread, and with who brought what."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from shoal_p2p.events import Event, GroupsStored
from shoal_p2p.fetch.exchange import RolloutExchange
from shoal_p2p.intake.ledger import PublisherLedger
from shoal_p2p.rollouts import reopening as reopening_module
from shoal_p2p.rollouts import restoring as restoring_module
from shoal_p2p.rollouts.pool import COMPLETIONS_A_STEP, GROUPS_A_STEP, RolloutPool
from shoal_p2p.rollouts.recent import RecentRollouts
from shoal_p2p.swarm_node import SwarmNode
from shoal_wire.types import GroupId, PeerId
from tests.p2p.rollouts.test_pool import author, external_ids, many_groups, start
from tests.support import factories as make
from tests.support.local_node import LocalNode


class Turns(trio.abc.Instrument):
    """Counts the steps of all tasks."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, _task: Any) -> None:
        self.count += 1


async def test_others_have_turns_while_what_is_on_disk_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random batches of up to 256 groups, or of up to 256 completions, others' and own."""
    rng, ann = random.Random(3), author()
    made = [many_groups(rng, 1000 * number) for number in range(24)]
    first, second = ann.sign(5, sequence=999), ann.sign(7, sequence=999)
    async with start(tmp_path) as node:
        for number, groups in enumerate(made):
            if number % 8:
                await node.receive(ann.sign(*groups))
            else:
                await node.share(*groups, key=b"%d" % number)
        await node.pool.settle("trainer", sorted(external_ids(node))[:100], ())
        await node.receive(first)
        await node.withdraw(first, second)
        here = external_ids(node)
    turns, in_steps, loop = Turns(), dict[int, list[int]](), threading.get_ident()
    notice = RecentRollouts.on_event

    def noted(recent: RecentRollouts, event: Event) -> None:
        if isinstance(event, GroupsStored):
            seen = in_steps.setdefault(turns.count, [0, 0])
            seen[0] += len(event.groups)
            seen[1] += sum(len(one.group.completions) for one in event.groups)
            notice(recent, event)

    def in_thread(function: Any) -> Any:
        def checked(*arguments: Any, **named: Any) -> Any:
            assert threading.get_ident() != loop, "on the event loop"
            return function(*arguments, **named)

        return checked

    monkeypatch.setattr(RecentRollouts, "on_event", noted)
    monkeypatch.setattr(restoring_module, "IDS_A_STEP", 10)
    monkeypatch.setattr(reopening_module, "reopen_batch", in_thread(reopening_module.reopen_batch))  # type: ignore[attr-defined]
    proves = restoring_module.proves_equivocation  # type: ignore[attr-defined]
    monkeypatch.setattr(restoring_module, "proves_equivocation", in_thread(proves))
    trio.lowlevel.add_instrument(turns)
    async with start(tmp_path) as node:
        trio.lowlevel.remove_instrument(turns)
        assert external_ids(node) == here
        assert node.ledger.is_equivocated(ann.peer_id, 999)
    assert sum(groups for groups, _ in in_steps.values()) == sum(map(len, made)) - 100
    for groups, completions in in_steps.values():  # type: ignore[assignment]
        assert groups <= GROUPS_A_STEP  # type: ignore[operator]
        assert completions <= COMPLETIONS_A_STEP or groups == 1  # type: ignore[comparison-overlap]


async def test_the_consumed_ids_are_put_back_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [GroupId(number.to_bytes(16, "big")) for number in range(5000)]
    async with start(tmp_path) as node:
        await node.store.consume(ids)
    at_once: list[int] = []
    consume = restoring_module.ReplayBuffer.consume  # type: ignore[attr-defined]

    def noted(buffer: Any, some: Sequence[GroupId]) -> Any:
        at_once.append(len(some))
        return consume(buffer, some)

    monkeypatch.setattr(restoring_module.ReplayBuffer, "consume", noted)  # type: ignore[attr-defined]
    async with start(tmp_path) as node:
        assert all(node.buffer.has_seen(group_id) for group_id in ids)
    assert sum(at_once) == len(ids)
    assert max(at_once) <= restoring_module.IDS_A_STEP


async def test_peers_connect_before_restoring_ends_and_none_is_queried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    restored = trio.Event()
    restore, start_member, run = RolloutPool.restore, SwarmNode.start, RolloutExchange.run

    async def slow(pool: RolloutPool, ledger: PublisherLedger) -> None:
        await restored.wait()
        await restore(pool, ledger)
        order.append("restored")

    async def noted(member: SwarmNode, nursery: trio.Nursery) -> None:
        await start_member(member, nursery)
        order.append("listens")
        assert member.gossip.topics()
        restored.set()

    async def exchange(of: RolloutExchange, **how: Any) -> None:
        order.append("asks")
        await run(of, **how)

    monkeypatch.setattr(RolloutPool, "restore", slow)
    monkeypatch.setattr(SwarmNode, "start", noted)
    monkeypatch.setattr(RolloutExchange, "run", exchange)
    async with start(tmp_path):
        assert order == ["listens", "restored", "asks"]


def brought(node: LocalNode) -> set[tuple[PeerId, str, str, bool]]:
    return {
        (entry.group.publisher, entry.network, entry.connection, entry.by_publisher)
        for entry in node.buffer.external_groups()
    }


async def test_who_brought_a_batch_and_by_which_network_outlives_a_restart(tmp_path: Path) -> None:
    ann, bob, carrier = author(), author(), make.fresh_identity().peer_id
    async with start(tmp_path) as node:
        await node.receive(ann.sign(1, 2))
        node.pool._network_of = lambda _peer: "10.1.2.0/24"
        passed_on = bob.sign(3)
        await node.receive(replace(passed_on, delivered_by=carrier))
        before = brought(node)
    assert before == {
        (ann.peer_id, ann.peer_id, ann.peer_id, True),
        (bob.peer_id, "10.1.2.0/24", carrier, False),
    }
    for _ in range(2):
        async with start(tmp_path) as node:
            assert brought(node) == before


async def test_a_copy_on_disk_replaces_what_left_as_who_brought_it(tmp_path: Path) -> None:
    """Also where that peer has gone meanwhile, and its network cannot be asked for any more."""
    thief, ann, carrier = author(), author(), make.fresh_identity().peer_id
    stolen, honest = thief.sign(1, sequence=5), ann.sign(1)
    async with start(tmp_path) as node:
        await node.receive(stolen)
        node.pool._network_of = lambda _peer: "10.1.2.0/24"
        await node.pool.keep_all([replace(honest, delivered_by=carrier)])
        node.pool._network_of = lambda _peer: ""
        await node.withdraw(stolen, thief.sign(9, sequence=5))
        await node.pool._replace_removed()
        assert brought(node) == {(ann.peer_id, "10.1.2.0/24", carrier, False)}
