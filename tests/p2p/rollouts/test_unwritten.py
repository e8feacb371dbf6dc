"""Batches that come while the disk is full are written once there is room, or told of."""

from __future__ import annotations

import itertools
import random
import re
from pathlib import Path

import pytest
import trio

from shoal_p2p.events import BatchKept
from shoal_p2p.intake.ledger import Equivocation
from shoal_p2p.rollouts.unwritten import Unwritten
from shoal_p2p.store.store import StoreCore
from shoal_wire.types import BatchId, PublishedGroup, SignedBatch
from tests.p2p.rollouts.test_pool import Notes, author, start
from tests.support import factories as make
from tests.support.local_node import LocalNode

SCHEDULES, STEPS = 12, 30


async def set_full(node: LocalNode, full: bool) -> None:
    """A real full database: SQLite is allowed no page more than it has."""
    pages = 1 if full else 1 << 30  # never under what it has already

    def limit(core: StoreCore) -> None:
        core._db.execute(f"PRAGMA max_page_count = {pages}").fetchone()

    await node.store._submit(limit)


async def stored_ids(node: LocalNode) -> set[BatchId]:
    return set((await node.store.load()).batch_ids)


async def sweep(node: LocalNode) -> None:
    await node.pool._unwritten.write_waiting(node.pool._of_use)


def long_batch(of: make.Author, number: int, **changes: object) -> SignedBatch:
    """Return a batch of some twelve kilobytes: a few need a page more."""
    rng = random.Random(number)
    texts = ("".join(chr(rng.randrange(0x800, 0xD800)) for _ in range(4000)), "7")
    return of.signed(of.batch([make.group(number, texts)], **changes))


def kept(notes: Notes) -> list[BatchId]:
    return [event.signed.batch_id for event in notes.events if isinstance(event, BatchKept)]


async def test_others_batches_are_written_once_there_is_room(tmp_path: Path) -> None:
    ann, notes = author(), Notes()
    batches = [long_batch(ann, number) for number in range(20)]
    async with start(tmp_path) as node:
        node.pool._keepers = (notes,)
        await set_full(node, True)
        await node.pool.keep_all(batches)
        assert node.buffer.ready() == 20
        await sweep(node)
        missing = {one.batch_id for one in batches} - await stored_ids(node)
        assert len(missing) > 10, "it is full"
        assert not missing & set(kept(notes)), "others cannot have it"
        await set_full(node, False)
        await sweep(node)
        assert await stored_ids(node) == {one.batch_id for one in batches}
        assert sorted(kept(notes)) == sorted(one.batch_id for one in batches), "each once"
    async with start(tmp_path) as node:
        assert node.buffer.ready() == 20


async def test_the_sweep_writes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal_p2p.rollouts.pool._SWEEP_SECONDS", 0.01)
    ann = author()
    batches = [long_batch(ann, number) for number in range(12)]
    async with start(tmp_path) as node:
        await set_full(node, True)
        await node.pool.keep_all(batches)
        assert len(await stored_ids(node)) < 12
        await set_full(node, False)
        with trio.fail_after(20):
            while len(await stored_ids(node)) < 12:  # noqa: ASYNC110
                await trio.sleep(0.01)


async def test_what_has_left_or_was_withdrawn_is_not_written(tmp_path: Path) -> None:
    ann, bob, notes = author(), author(), Notes()
    left, withdrawn = long_batch(bob, 1, sequence=3), long_batch(ann, 2, sequence=5)
    second = long_batch(ann, 3, sequence=5)
    pair = Equivocation(
        publisher=ann.peer_id, sequence=5, first=withdrawn.batch_id, second=second.batch_id
    )
    async with start(tmp_path) as node:
        node.pool._keepers = (notes,)
        await set_full(node, True)
        filler = [long_batch(bob, 100 + number) for number in range(20)]
        await node.pool.keep_all([*filler, left, withdrawn])
        assert not await stored_ids(node) & {left.batch_id, withdrawn.batch_id}
        await node.pool.withdraw(pair, second.envelope)
        assert await node.store.evidence() == []
        node.buffer.consume([one.group_id for one in _groups_of(node, left)])
        await set_full(node, False)
        await sweep(node)
        assert await stored_ids(node) == {one.batch_id for one in filler}
        assert not set(kept(notes)) & {left.batch_id, withdrawn.batch_id}
        (evidence,) = await node.store.evidence()
        assert (evidence.first_id, evidence.second) == (withdrawn.batch_id, second.envelope)
    async with start(tmp_path) as node:
        assert node.ledger.is_equivocated(ann.peer_id, 5)


def _groups_of(node: LocalNode, signed: SignedBatch) -> list[PublishedGroup]:
    groups = [entry.group for entry in node.buffer.residents()]
    return [group for group in groups if group.batch_id == signed.batch_id]


class Life:
    """One schedule: a disk that fills and empties under a node that hears, withdraws, crashes."""

    def __init__(self, seed: int, caplog: pytest.LogCaptureFixture) -> None:
        self.rng = random.Random(seed)
        self.caplog = caplog
        self.number = itertools.count(1000 * seed)
        self.authors = [author() for _ in range(3)]
        self.heard: list[SignedBatch] = []
        self.withdrawn: set[BatchId] = set()
        self.full = False

    async def play(self, folder: Path) -> None:
        steps = self.rng.choices(["insert", "fill", "room", "withdraw", "sweep", "crash"],
                                 [10, 2, 2, 2, 2, 1], k=STEPS)  # fmt: skip
        while steps:
            async with start(folder) as node:
                self.full = False
                here = {entry.group.batch_id for entry in node.buffer.residents()}
                assert here <= await stored_ids(node)
                while steps and (step := steps.pop()) != "crash":
                    await getattr(self, f"_{step}")(node)
                if not steps:
                    await self._room(node)
                    await self._check(node)

    async def _insert(self, node: LocalNode) -> None:
        some = [
            long_batch(self.rng.choice(self.authors), next(self.number))
            for _ in range(self.rng.randint(1, 8))
        ]
        for signed in some:
            now = trio.current_time()
            node.ledger.remember(signed.publisher, signed.batch.sequence, signed.batch_id, now)
        await node.pool.keep_all(some)
        self.heard += some

    async def _fill(self, node: LocalNode) -> None:
        await set_full(node, True)

    async def _room(self, node: LocalNode) -> None:
        await set_full(node, False)

    async def _sweep(self, node: LocalNode) -> None:
        await sweep(node)

    async def _withdraw(self, node: LocalNode) -> None:
        if not self.heard:
            return
        first = self.rng.choice(self.heard)
        if first.batch_id in self.withdrawn:
            return
        by = next(one for one in self.authors if one.peer_id == first.publisher)
        second = long_batch(by, next(self.number), sequence=first.batch.sequence)
        self.withdrawn.add(first.batch_id)
        pair = Equivocation(
            publisher=first.publisher,
            sequence=first.batch.sequence,
            first=first.batch_id,
            second=second.batch_id,
        )
        await node.pool.withdraw(pair, second.envelope)

    async def _check(self, node: LocalNode) -> None:
        """All that is in the buffer is on disk, or the log says how many are not."""
        await sweep(node)
        here = {entry.group.batch_id for entry in node.buffer.residents()}
        told = re.findall(r"(\d+) batches of others are not on it", self.caplog.text)
        assert len(here - await stored_ids(node)) <= sum(map(int, told))
        assert node.pool._unwritten._waiting == {}
        assert node.pool._unwritten._num_bytes == 0


@pytest.mark.parametrize("max_bytes", [1 << 24, 30_000])
@pytest.mark.parametrize("seed", range(SCHEDULES // 2))
async def test_whatever_comes_between_all_that_is_here_is_on_disk_or_told(
    seed: int,
    max_bytes: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = Unwritten.__init__

    def small(self: Unwritten, **how: object) -> None:
        made(self, **how, max_bytes=max_bytes)  # type: ignore[arg-type]

    monkeypatch.setattr(Unwritten, "__init__", small)
    await Life(seed, caplog).play(tmp_path)


async def test_what_waits_is_bounded_and_what_does_not_fit_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ann = author()
    batches = [long_batch(ann, number) for number in range(40)]
    room = 10 * len(batches[0].envelope)
    async with start(tmp_path) as node:
        unwritten = node.pool._unwritten
        monkeypatch.setattr(unwritten, "_max_bytes", room)
        await set_full(node, True)
        await node.pool.keep_all(batches)
        assert unwritten._num_bytes <= room
        on_disk = len(await stored_ids(node))
        lost = len(batches) - on_disk - len(unwritten._waiting)
        assert lost > 10
        await set_full(node, False)
        for _ in range(3):
            await sweep(node)
        said = [r.getMessage() for r in caplog.records if "are not on it" in r.getMessage()]
        assert len(said) == 1
        assert f" {lost} batches" in said[0]
        missing = {one.batch_id for one in batches} - await stored_ids(node)
        assert len(missing) == lost
