"""The store under Trio, and under kill -9."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from shoal_p2p.store.store import Store, StoreCore, StoreError, StoreFault, StoreLimits
from shoal_wire.types import PeerId

ME = PeerId("me")
ROOT = Path(__file__).parents[3]


def make(path: Path, **kwargs: Any) -> Store:
    return Store(path / "node.db", peer_id=ME, wall_ms=lambda: 1000, **kwargs)


@asynccontextmanager
async def running(path: Path, **kwargs: Any) -> AsyncIterator[Store]:
    store = make(path, **kwargs)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            yield store
            nursery.cancel_scope.cancel()


def sealed(sequence: int, _previous: int = 0) -> bytes:
    return b"envelope %d" % sequence


class Gate:
    """Holds the writer's thread inside a call until it is opened."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self._opened = threading.Event()

    def seal(self, sequence: int, _previous: int = 0) -> bytes:
        self.entered.set()
        assert self._opened.wait(10)
        return sealed(sequence)

    def open(self) -> None:
        self._opened.set()

    async def wait_entered(self) -> None:
        assert await trio.to_thread.run_sync(self.entered.wait, 10)


async def test_stopping_finishes_the_commit_in_hand_and_refuses_the_rest(tmp_path: Path) -> None:
    store = make(tmp_path)
    gate = Gate()
    outcomes: dict[bytes, object] = {}

    async def reserve(key: bytes, seal: Any) -> None:
        try:
            outcomes[key] = (await store.reserve_own(key, seal)).sequence
        except StoreError as error:
            outcomes[key] = error.fault

    with trio.fail_after(20):
        async with trio.open_nursery() as callers, trio.open_nursery() as nursery:
            await nursery.start(store.run)
            callers.start_soon(reserve, b"in hand", gate.seal)
            await gate.wait_entered()
            callers.start_soon(reserve, b"waiting", sealed)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
            gate.open()
    assert outcomes == {b"in hand": 1, b"waiting": StoreFault.CLOSED}
    with pytest.raises(StoreError) as refused:
        await store.load()
    assert refused.value.fault is StoreFault.CLOSED
    async with running(tmp_path) as store:
        assert [own.sequence for own in await store.unsent()] == [1]


@pytest.mark.slow
async def test_who_ends_with_the_store_is_cancelled_and_gets_no_error(tmp_path: Path) -> None:
    """Over 200 ends, each with several callers, at any moment of their calls."""
    rng = random.Random(3)

    async def calls_for_ever(store: Store) -> None:
        while True:
            await store.own_numbers()

    for number in range(200):
        folder = tmp_path / str(number)
        folder.mkdir()
        store = make(folder)
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            for _ in range(4):
                nursery.start_soon(calls_for_ever, store)
            await trio.sleep(rng.uniform(0, 0.002))
            nursery.cancel_scope.cancel()


async def test_an_unusable_database_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "node.db").write_bytes(b"not a database" * 100)
    with pytest.RaisesGroup(pytest.RaisesExc(StoreError, match="is damaged")):
        async with trio.open_nursery() as nursery:
            await nursery.start(make(tmp_path).run)


def test_nothing_acknowledged_is_lost_and_no_number_repeats_under_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "node.db"
    rng = random.Random(7)
    acknowledged: dict[str, tuple[int, str]] = {}
    consumed: set[str] = set()
    for run in range(5):
        lines = _reserve_until_killed(path, run, num_lines=rng.randrange(3, 150))
        for kind, *fields in lines:
            if kind == "batch":
                key, sequence, name = fields
                acknowledged[key] = (int(sequence), name)
            else:
                consumed.add(fields[0])
    core = StoreCore(path, peer_id=ME, limits=StoreLimits(max_client_keys=1 << 20))
    state = core.commit(StoreCore.load)
    stored = core.batches(state.batch_ids)
    on_disk = {batch.sequence: batch.batch_id.hex() for batch in stored}
    assert len(on_disk) == len(state.batch_ids)
    assert len({sequence for sequence, _ in acknowledged.values()}) == len(acknowledged)
    for number, named in acknowledged.values():
        assert on_disk[number] == named
    assert consumed <= {group_id.hex() for group_id in state.consumed_ids}
    for key, (number, _) in acknowledged.items():
        again = core.commit(lambda c, key=key: c.reserve_own(key.encode(), sealed))
        assert (again.sequence, again.is_new) == (number, False)


def _reserve_until_killed(path: Path, run: int, *, num_lines: int) -> list[list[str]]:
    """Return every line of a process that was killed after it had printed `num_lines`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.p2p.store.reserver", str(path), str(run)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline() for _ in range(num_lines)]
    finally:
        process.kill()
    # What was in the pipe had been acknowledged as well; the last line may be cut.
    lines += process.stdout.readlines()
    process.wait()
    process.stdout.close()
    whole = [line.split() for line in lines if line.endswith("\n")]
    assert len(whole) >= num_lines
    return whole
