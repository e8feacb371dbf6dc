"""The archive keeps what it is given, within its bound, and never harms the node."""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path

import pytest
import trio

from shoal_base.bounded import QUEUE_BYTES
from shoal_p2p.store.archive import (
    Archive,
    Archived,
    ArchiveError,
    ArchiveFile,
    count_archive,
    read_archive,
    read_manifests,
)
from tests.support import factories as make
from tests.support.nodes import until

MANIFEST = make.swarm()


def _batch(number: int, size: int = 100) -> Archived:
    return Archived(
        batch_id=number.to_bytes(32, "big"),
        own=number % 2 == 0,
        received_ms=1000 + number,
        envelope=bytes([number % 256]) * size,
    )


def test_what_was_added_is_read_in_order_and_once(tmp_path: Path) -> None:
    file = ArchiveFile(tmp_path / "a.db", max_bytes=10_000)
    file.add([_batch(1), _batch(2)])
    file.add([_batch(2), _batch(3)])
    assert list(read_archive(tmp_path / "a.db")) == [_batch(1), _batch(2), _batch(3)]
    assert count_archive(tmp_path / "a.db") == 3
    assert count_archive(tmp_path / "a.db", own=True) == 1
    file.close()


def test_the_oldest_goes_when_the_bound_is_reached_also_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    file = ArchiveFile(path, max_bytes=350)
    file.add([_batch(n) for n in range(1, 4)])
    file.close()
    again = ArchiveFile(path, max_bytes=350)
    again.add([_batch(4)])
    assert [batch.received_ms for batch in read_archive(path)] == [1002, 1003, 1004]
    again.add([_batch(5, size=400)])
    assert list(read_archive(path)) == []
    again.close()


def test_no_archive_and_a_damaged_one_are_named(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="has a node run there"):
        list(read_archive(tmp_path / "none.db"))
    (tmp_path / "bad.db").write_bytes(b"not a database" * 100)
    with pytest.raises(ArchiveError, match="cannot be read"):
        list(read_archive(tmp_path / "bad.db"))
    with pytest.raises(ArchiveError, match="cannot be read"):
        count_archive(tmp_path / "bad.db")


async def test_a_node_ends_with_everything_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    archive = Archive(path, max_bytes=10_000)
    async with trio.open_nursery() as nursery:
        await nursery.start(archive.run, MANIFEST)
        for number in range(20):
            archive.keep(_batch(number))
        await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert len(list(read_archive(path))) == 20
    assert read_manifests(path) == [MANIFEST.raw]


def _holds(path: Path, count: int) -> bool:
    try:
        return count_archive(path) == count
    except ArchiveError:  # it is being made
        return False


async def test_a_batch_is_on_disk_soon_after_any_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal_p2p.store.archive._COMMIT_SECONDS", 0.01)
    path = tmp_path / "a.db"
    archive = Archive(path, max_bytes=10_000)
    async with trio.open_nursery() as nursery:
        await nursery.start(archive.run, MANIFEST)
        await trio.sleep(0.1)
        for number in range(3):
            archive.keep(_batch(number))
            await until(partial(_holds, path, number + 1))
            await trio.sleep(0.05)
        nursery.cancel_scope.cancel()


async def test_what_waits_for_the_disk_is_bounded_in_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    archive = Archive(path, max_bytes=1 << 30)
    for number in range(40):
        archive.keep(_batch(number, size=1 << 20))
    async with trio.open_nursery() as nursery:
        await nursery.start(archive.run, MANIFEST)
        nursery.cancel_scope.cancel()
    assert count_archive(path) == QUEUE_BYTES >> 20


async def test_an_unusable_file_costs_the_archive_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.db").write_bytes(b"not a database" * 100)
    archive = Archive(tmp_path / "a.db", max_bytes=10_000)
    async with trio.open_nursery() as nursery:
        await nursery.start(archive.run, MANIFEST)
        # It ends by itself: nothing waits for it.
    archive.keep(_batch(1))
    assert "cannot be used" in caplog.text


async def test_zero_bytes_keep_nothing(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a.db", max_bytes=0)
    archive.keep(_batch(1))
    async with trio.open_nursery() as nursery:
        await nursery.start(archive.run, MANIFEST)
    assert not (tmp_path / "a.db").exists()


def test_a_failed_transaction_leaves_the_count_right(tmp_path: Path) -> None:
    file = ArchiveFile(tmp_path / "a.db", max_bytes=350)
    bad = Archived(batch_id=None, own=True, received_ms=1, envelope=b"x" * 300)  # type: ignore[arg-type]
    with pytest.raises(sqlite3.Error):
        file.add([_batch(1), bad])
    file.add([_batch(2), _batch(3), _batch(4)])
    assert len(list(read_archive(tmp_path / "a.db"))) == 3
    file.close()
