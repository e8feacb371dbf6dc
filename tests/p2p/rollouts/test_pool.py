"""Buffer and store together: what a restart brings back, and what it must not."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from shoal_p2p.buffer.types import BufferEntry
from shoal_p2p.events import (
    BatchReceived,
    BatchStored,
    BatchWithdrawn,
    Event,
    EventSink,
    GroupsStored,
)
from shoal_p2p.peers.met_networks import UNKNOWN_NETWORK
from shoal_p2p.rollouts import pool as pool_module
from shoal_p2p.rollouts.pool import COMPLETIONS_A_STEP, GROUPS_A_STEP
from shoal_p2p.store.statements import External
from shoal_p2p.store.store import StoreError
from shoal_wire.digests import batch_id as id_of
from shoal_wire.digests import group_id
from shoal_wire.types import BatchId, GroupId, PeerId, RolloutGroup
from shoal_wire.verdict import Reason
from tests.support import factories as make
from tests.support.doubles.store import full_disk
from tests.support.local_node import LocalNode, open_local_node, wall_ms
from tests.support.nodes import until
from tests.wire.envelope_mutations import other_spellings

MANIFEST = make.swarm()
ME = make.fresh_identity()


def start(data_dir: Path):
    return open_local_node(data_dir, identity=ME, manifest=MANIFEST)


def author() -> make.Author:
    return make.Author(MANIFEST, now_ms=wall_ms())


def many_groups(rng: random.Random, first: int) -> list[RolloutGroup]:
    """Return up to 256 groups, of up to 256 completions, 4,096 in all at the most."""
    most = rng.choice([2, 8, 64, 256])
    return [
        make.group(first + index, texts=["7"] * rng.randint(2, most))
        for index in range(rng.randint(1, min(256, 4096 // most)))
    ]


async def test_what_a_neighbour_forwards_counts_for_its_publishers_network(tmp_path: Path) -> None:
    """Or, of a publisher that this node has never met, for that of all of these."""
    known, unknown, neighbour = author(), author(), make.fresh_identity().peer_id
    networks = {known.peer_id: "10.1.2.0/24", neighbour: "10.9.9.0/24"}
    async with start(tmp_path) as node:
        node.pool._network_of = lambda peer_id: networks.get(peer_id, UNKNOWN_NETWORK)
        await node.receive(replace(known.sign(1), delivered_by=neighbour))
        await node.receive(replace(unknown.sign(2), delivered_by=neighbour))
        counts_for = {one.group.publisher: one.network for one in node.buffer.external_groups()}
        assert counts_for == {known.peer_id: "10.1.2.0/24", unknown.peer_id: UNKNOWN_NETWORK}


def external_ids(node: LocalNode) -> set[GroupId]:
    return {entry.group.group_id for entry in node.buffer.external_groups()}


def own_ids(node: LocalNode) -> list[GroupId]:
    return [item.group.group_id for item in node.buffer.own_groups()]


def all_here(node: LocalNode) -> list[BufferEntry]:
    return [*node.buffer.external_groups(), *node.buffer.own_groups()]


class Notes:
    """A keeper that records its calls."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)


async def test_a_restart_brings_back_own_and_other_groups_with_their_age(tmp_path: Path) -> None:
    ann = author()
    signed = ann.sign(1, 2)
    async with start(tmp_path) as node:
        await node.receive(signed)
        await node.share(make.group(7))
        before = node.buffer.stats(trio.current_time())
        received = [item.received_at for item in all_here(node)]
        assert node.live.counters.groups_received == 2
    async with start(tmp_path) as node:
        after = node.buffer.stats(trio.current_time())
        assert (after.groups, after.local_groups) == (before.groups, before.local_groups) == (2, 1)
        assert (after.bytes, after.local_bytes) == (before.bytes, before.local_bytes)
        # A restored batch keeps its age; it was not just received.
        for item, earlier in zip(all_here(node), received, strict=True):
            assert item.received_at == pytest.approx(earlier, abs=5.0)
        ledger = node.ledger
        reason = ledger.check(ann.peer_id, signed.batch.sequence, signed.batch_id, 2, 0.0)
        assert reason is Reason.DUPLICATE
        # Own batches are no business of the ledger of others.
        assert ledger.check(ME.peer_id, 1, signed.batch_id, 1, 0.0) is None


async def test_a_damaged_row_costs_only_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ann = author()
    good, damaged = ann.sign(1), ann.sign(2)
    async with start(tmp_path) as node:
        await node.receive(good)
        torn = damaged.envelope[:-5]
        await node.store.add_all([(damaged.batch_id, ann.peer_id, 2, torn, wall_ms(), None)])
    async with start(tmp_path) as node:
        assert len(external_ids(node)) == 1
        assert "damaged" in caplog.text


async def test_batches_of_a_swarm_that_was_left_stay_out(tmp_path: Path) -> None:
    async with start(tmp_path) as node:
        await node.receive(author().sign(1))
        await node.share(make.group(7))
    other = open_local_node(tmp_path, identity=ME, manifest=make.swarm("another"))
    async with other as node:
        assert node.buffer.stats(0.0).groups == 0
        assert node.outbox.num_unsent == 0
        assert node.gossip.published == []


async def test_both_batches_of_a_double_signer_are_gone_for_good(tmp_path: Path) -> None:
    ann = author()
    first, second = ann.sign(1, 2, sequence=5), ann.sign(3, sequence=5)
    innocent = ann.sign(4, sequence=6)
    async with start(tmp_path) as node:
        for signed in (first, innocent):
            await node.receive(signed)
        leased = node.pool.lease("trainer", 1, lease_seconds=60.0)
        assert len(leased) == 1
        await node.withdraw(first, second)
        kept = external_ids(node)
        assert len(kept) == 1
        (evidence,) = await node.store.evidence()
        assert (evidence.first, evidence.second) == (first.envelope, second.envelope)
    async with start(tmp_path) as node:
        assert external_ids(node) == kept
        # Nor does either copy get in again by being sent again.
        for signed in (first, second):
            reason = node.ledger.check(ann.peer_id, 5, signed.batch_id, 1, 0.0)
            assert reason is Reason.EQUIVOCATION


async def test_evidence_that_is_a_copy_in_other_bytes_proves_no_equivocation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One batch, and a copy of it that anyone could make."""
    ann, bob = author(), author()
    honest = ann.sign(1, sequence=5)
    copy = next(iter(other_spellings(honest.envelope).values()))
    guilty = bob.sign(2, sequence=5), bob.sign(3, sequence=5)
    async with start(tmp_path) as node:
        await node.receive(honest)
        await node.store.add_equivocation(ann.peer_id, 5, honest.batch_id, copy)
        # Of the other only the second half came to disk, after this version had opened both.
        await node.store.add_equivocation(bob.peer_id, 5, guilty[0].batch_id, guilty[1].envelope)
        # A copy that came first has been kept as a batch, too.
        other = ann.sign(4, sequence=6)
        torn = next(iter(other_spellings(other.envelope).values()))
        await node.store.add_all([(id_of(torn), ann.peer_id, 6, torn, wall_ms(), None)])
    async with start(tmp_path) as node:
        assert node.ledger.check(ann.peer_id, 5, honest.batch_id, 1, 0.0) is None
        assert node.ledger.check(ann.peer_id, 6, other.batch_id, 1, 0.0) is None
        assert external_ids(node) == set()
        reason = node.ledger.check(bob.peer_id, 5, guilty[0].batch_id, 1, 0.0)
        assert reason is Reason.EQUIVOCATION
        assert [pair.publisher for pair in await node.store.evidence()] == [bob.peer_id]
        assert "does not show" in caplog.text


async def test_consumed_is_on_disk_first_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start(tmp_path) as node:
        await node.receive(author().sign(1, 2))
        ids = sorted(external_ids(node))
        with monkeypatch.context() as patch:
            patch.setattr(node.store, "consume", full_disk)
            with pytest.raises(StoreError):
                await node.pool.settle("trainer", ids[:1], ids[1:])
        assert external_ids(node) == set(ids)
        await node.pool.settle("trainer", ids[:1], ())
        assert external_ids(node) == set(ids[1:])
    async with start(tmp_path) as node:
        assert external_ids(node) == set(ids[1:])
        await node.receive(author().sign(1))
        assert external_ids(node) == set(ids[1:])


async def test_a_full_disk_keeps_others_groups_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start(tmp_path) as node:
        notes = Notes()
        node.pool._events = EventSink(notes)
        monkeypatch.setattr(node.store, "add_all", full_disk)
        await node.receive(author().sign(1))
        assert node.buffer.ready() == 1
        assert [type(event) for event in notes.events] == [BatchReceived, GroupsStored], (
            "others cannot have it"
        )


async def test_what_is_withdrawn_while_others_are_kept_is_not_written(tmp_path: Path) -> None:
    ann, bob, notes = author(), author(), Notes()
    first, second = ann.sign(1, sequence=5), ann.sign(2, sequence=5)
    others = [bob.sign(10 + number, sequence=1 + number) for number in range(4)]
    async with start(tmp_path) as node:
        node.pool._events = EventSink(notes)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.pool.keep_all, [first, *others])
            while len(external_ids(node)) < 3:
                await trio.lowlevel.checkpoint()
            await node.withdraw(first, second)
        await node.pool.write_all()
        kept = [event.signed for event in notes.events if isinstance(event, BatchStored)]
        assert sorted(one.batch_id for one in kept) == sorted(one.batch_id for one in others)
    async with start(tmp_path) as node:
        assert external_ids(node) == {group_id(one.batch.groups[0]) for one in others}


async def test_what_comes_within_half_a_second_shares_a_transaction(tmp_path: Path) -> None:
    ann, notes, writes = author(), Notes(), list[int]()

    def on_disk() -> list[BatchId]:
        return [one.signed.batch_id for one in notes.events if isinstance(one, BatchStored)]

    async with start(tmp_path) as node:
        node.pool._events, add_all = EventSink(notes), node.store.add_all

        async def counted(rows: Sequence[External]) -> None:
            writes.append(len(rows))
            await add_all(rows)

        node.store.add_all = counted
        batches = [ann.sign(number, sequence=number) for number in (1, 2, 3)]
        for signed in batches:
            await node.pool.keep_all([signed])
        assert len(external_ids(node)) == 3
        assert not on_disk(), "it is in the buffer first"
        await until(lambda: len(on_disk()) == 3)
        assert (on_disk(), writes) == ([one.batch_id for one in batches], [3])
        # Many bytes do not wait: others may pull them.
        texts = [random.Random(number).randbytes(40_000).hex() for number in range(2)]
        large = ann.sign(make.group(9, texts), sequence=9)
        await node.pool.keep_all([large])
        assert on_disk()[-1] == large.batch_id


async def test_an_orderly_shutdown_has_written_every_received_batch(tmp_path: Path) -> None:
    signed = author().sign(1)
    async with start(tmp_path) as node:
        await node.pool.keep_all([signed])
        await node.live.close()
    async with start(tmp_path) as node:
        assert external_ids(node) == {group_id(make.group(1))}


async def test_others_have_turns_while_a_batch_is_taken_in(tmp_path: Path) -> None:
    """Over 60 batches of up to 256 groups of up to 256 completions."""
    rng, turns, taken = random.Random(1), itertools.count(), list[tuple[int, int, int]]()

    async def take_turns() -> None:
        while True:
            next(turns)
            await trio.lowlevel.checkpoint()

    class Watching:
        def on_event(self, event: Event) -> None:
            if isinstance(event, GroupsStored):
                completions = sum(len(one.group.completions) for one in event.groups)
                taken.append((next(turns), len(event.groups), completions))

    ann = author()
    async with start(tmp_path) as node, trio.open_nursery() as nursery:
        node.pool._events = EventSink(Watching())
        nursery.start_soon(take_turns)
        for number in range(60):
            groups = many_groups(rng, 1000 * number)
            taken.clear()
            signed = ann.sign(*groups)
            await node.pool._buffered(signed, groups, trio.current_time(), None)
            assert sum(groups_at_once for _, groups_at_once, _ in taken) == len(groups)
            for _, groups_at_once, completions in taken:
                assert groups_at_once <= GROUPS_A_STEP
                assert completions <= COMPLETIONS_A_STEP or groups_at_once == 1
            # Trio runs due tasks in any order: within two turns each has had one.
            for (before, _, _), (after, _, _) in zip(taken, taken[2:], strict=False):
                assert after > before + 2, "no other task had a turn"
        nursery.cancel_scope.cancel()


class Broken:
    """A keeper with a fault."""

    def on_event(self, event: Event) -> None:
        raise RuntimeError(f"no room for a {type(event).__name__}")


async def test_keepers_hear_of_groups_batches_and_withdrawals(tmp_path: Path) -> None:
    ann, notes = author(), Notes()
    signed = ann.sign(1, 2, sequence=5)
    async with start(tmp_path) as node:
        node.pool._events = EventSink(notes)
        await node.receive(signed)
        own = await node.share(make.group(7))
        await node.receive(ann.sign(1, sequence=6))
        received, new, kept, own_new, own_kept, _, known_kept = notes.events
        assert received == BatchReceived(publisher=ann.peer_id, num_groups=2)
        assert isinstance(new, GroupsStored)
        assert [group.group for group in new.groups] == list(signed.batch.groups)
        assert isinstance(kept, BatchStored)
        assert (kept.signed, kept.own) == (signed, False)
        assert isinstance(own_new, GroupsStored)
        assert own_new.groups[0].publisher == ME.peer_id
        assert isinstance(own_kept, BatchStored)
        assert (own_kept.signed, own_kept.own) == (own.signed, True)
        # Its only group is here already: the batch is kept, but nothing in it is new.
        assert isinstance(known_kept, BatchStored)
        await node.withdraw(signed, ann.sign(3, sequence=5))
        assert notes.events[7:] == [BatchWithdrawn(batch_id=signed.batch_id)]


async def test_one_keepers_fault_costs_the_others_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    notes = Notes()
    async with start(tmp_path) as node:
        node.pool._events = EventSink(Broken(), notes)
        await node.receive(author().sign(1))
        assert node.buffer.ready() == 1
        assert len((await node.store.load()).batch_ids) == 1
    assert [type(event) for event in notes.events] == [BatchReceived, GroupsStored, BatchStored]
    assert "Broken failed on GroupsStored" in caplog.text


async def test_a_batch_stays_on_disk_as_long_as_its_groups_are_here_or_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "_SERVED_MS", 0)
    async with start(tmp_path) as node:
        await node.share(make.group(7))
        await node.receive(author().sign(1))
        with trio.fail_after(20):
            await node.outbox.drained()
        monkeypatch.setattr(node.store, "wall_ms", lambda: wall_ms() + 1000)
        await node.pool._prune()
        assert len((await node.store.load()).batch_ids) == 2
        node.buffer.expire(trio.current_time() + 3600.0)
        assert own_ids(node) == []
        await node.pool._prune()
        assert (await node.store.load()).batch_ids == ()


async def test_the_trainers_rewards_of_own_groups_are_a_measure_for_others(tmp_path: Path) -> None:
    ann = author()
    async with start(tmp_path) as node:
        await node.receive(ann.sign(1))
        await node.share(make.group(7))
        (mine,), (theirs,) = own_ids(node), external_ids(node)
        calls: list[tuple[GroupId, PeerId, str, bool]] = []

        def note(
            group_id: GroupId, *, publisher: PeerId, family: str, own: bool, **_: object
        ) -> None:
            calls.append((group_id, publisher, family, own))

        node.reputation.sampling.report = note
        for group_id in (mine, theirs, GroupId(bytes(16))):
            node.pool.verified(group_id, [0.0, 1.0])
        assert calls == [
            (mine, ME.peer_id, make.GCD.name, True),
            (theirs, ann.peer_id, make.GCD.name, False),
        ]


async def test_no_peer_gets_credit_for_sending_this_nodes_batches(tmp_path: Path) -> None:
    async with start(tmp_path) as node:
        await node.share(make.group(7))
    async with start(tmp_path) as node:
        await node.receive(author().sign(7, 8))
        assert len(external_ids(node)) == 1
        assert not external_ids(node) & set(own_ids(node))
