"""A full disk is logged once and waited for, and then every writer continues by itself."""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
from pathlib import Path

import pytest
import trio

from shoal_base.files import is_full
from shoal_lab.simulation.parts import at_once
from shoal_p2p import disk as disk_module
from shoal_p2p.disk import Disk
from shoal_p2p.live_command import _keep_last_status
from shoal_p2p.store.archive import Archive, ArchiveFile, count_archive, read_archive
from shoal_p2p.store.store import Store, StoreError, StoreFault
from shoal_settings.schema import Settings
from tests.p2p.store.test_archive import MANIFEST, _batch

FULL = OSError(errno.ENOSPC, "No space left on device")


def sqlite_full(*_: object) -> None:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    raise error


def test_what_a_full_disk_is() -> None:
    assert is_full(FULL)
    assert is_full(OSError(errno.EDQUOT, "Disk quota exceeded"))
    assert not is_full(OSError(errno.EACCES, "Permission denied"))
    outer = ValueError("so")
    outer.__cause__ = FULL
    assert is_full(outer)
    with pytest.raises(sqlite3.OperationalError) as caught:
        sqlite_full()
    assert is_full(caught.value)


async def test_a_full_disk_is_logged_once_and_so_is_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    autojump_clock: trio.abc.Clock,
) -> None:  # fmt: skip
    caplog.set_level(logging.INFO)
    disk = Disk(tmp_path, in_thread=at_once)
    probes = 0

    def probe(_disk: Disk) -> None:
        nonlocal probes
        probes += 1
        if probes % 5:
            raise FULL

    monkeypatch.setattr(Disk, "_probe", probe)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(disk.watch)
        for _ in range(2):
            assert not disk.full
            for what in ("the peer book", "a batch", "reputation.json"):
                disk.refused(what, FULL)
            assert disk.full
            await trio.sleep(4.5 * disk_module.RETRY_S)
            assert disk.full
            await trio.sleep(disk_module.RETRY_S)
        nursery.cancel_scope.cancel()
    levels = [record.levelname for record in caplog.records if record.name == "shoal_p2p.disk"]
    assert levels == ["ERROR", "INFO"] * 2
    disk.refused("the peer book is not saved", OSError(errno.EACCES, "Permission denied"))
    assert not disk.full and "Permission denied" in caplog.text


def test_the_probe_leaves_nothing(tmp_path: Path) -> None:
    Disk(tmp_path)._probe()
    assert not list(tmp_path.iterdir())


async def test_the_archive_keeps_what_it_could_not_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    path = tmp_path / "a.db"
    refused: list[str] = []
    archive = Archive(
        path,
        max_bytes=1 << 20,
        refused=lambda what, _error: refused.append(what),
        in_thread=at_once,
    )
    with monkeypatch.context() as full:
        full.setattr(ArchiveFile, "add_manifest", sqlite_full)
        async with trio.open_nursery() as nursery:
            await nursery.start(archive.run, MANIFEST)
            archive.keep(_batch(1))
            await trio.sleep(10)
            full.undo()
            full.setattr(ArchiveFile, "add", sqlite_full)
            await trio.sleep(10)
            archive.keep(_batch(2))
            await trio.sleep(10)
            full.undo()
            await trio.sleep(10)
            assert count_archive(path) == 2, "though nothing came meanwhile"
            nursery.cancel_scope.cancel()
    assert refused and list(read_archive(path)) == [_batch(1), _batch(2)]


async def test_the_store_tells_and_takes_all_again(tmp_path: Path) -> None:
    """A real full database: SQLite is allowed no page more."""
    refused: list[str] = []
    store = Store(
        tmp_path / "node.db",
        peer_id="me",  # type: ignore[arg-type]
        wall_ms=lambda: 1,
        refused=lambda what, _error: refused.append(what),
    )

    def limit(pages: int):
        return lambda core: core._db.execute(f"PRAGMA max_page_count = {pages}").fetchone()

    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        await store._submit(limit(20))
        with pytest.raises(StoreError) as caught:
            await store.reserve_own(b"key", lambda sequence, before: os.urandom(1 << 20))
        assert caught.value.fault is StoreFault.FULL and is_full(caught.value)
        assert len(refused) == 1
        await store._submit(limit(1 << 30))
        own = await store.reserve_own(b"key", lambda sequence, before: os.urandom(1 << 20))
        assert (own.sequence, own.is_new) == (1, True)
        nursery.cancel_scope.cancel()


async def test_the_last_numbers_cost_the_end_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Ended:
        last_status = {"round": 3}  # noqa: RUF012

    monkeypatch.setattr("shoal_p2p.live_command.write_state", sqlite_full)
    await _keep_last_status(Ended(), Settings(data_dir=tmp_path))  # type: ignore[arg-type]
    assert "not kept: database or disk is full" in caplog.text
