"""One SQLite file holds a peer's small states, whatever ends their writer."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from shoal_p2p import state_file
from shoal_p2p.state_file import (
    MAX_STATE_BYTES,
    STATE_FILE,
    open_for_reading,
    open_for_writing,
    read_state,
    set_state_aside,
    state_written_at,
    write_state,
)
from shoal_p2p.store.statements import StoreCore
from tests.support.factories import fresh_identity

OLD, NEW = b"old " * 50_000, b"new " * 50_000
ME = fresh_identity().peer_id


def test_a_state_is_what_was_written_last(tmp_path: Path) -> None:
    path, before = tmp_path / STATE_FILE, time.time()
    assert read_state(path, "a") is None and state_written_at(path, "a") == 0.0
    assert not path.exists(), "reading creates nothing"
    for content in (b"one", b"", b"\xff\x00two"):
        write_state(path, "a", content)
        assert read_state(path, "a") == content
    assert read_state(path, "b") is None
    assert before <= state_written_at(path, "a") <= time.time()
    assert path.stat().st_mode & 0o777 == 0o600
    assert set_state_aside(path, "a") == "a.corrupt"
    assert (read_state(path, "a"), read_state(path, "a.corrupt")) == (None, b"\xff\x00two")


def test_what_is_too_long_or_no_database_is_an_error(tmp_path: Path) -> None:
    write_state(path := tmp_path / STATE_FILE, "a", bytes(MAX_STATE_BYTES + 1))
    with pytest.raises(ValueError, match="too long"):
        read_state(path, "a")
    (broken := tmp_path / "broken.db").write_bytes(b"not a database" * 100)
    with pytest.raises(sqlite3.DatabaseError):
        read_state(broken, "a")
    assert state_written_at(broken, "a") == 0.0
    assert state_written_at(tmp_path / ("n" * 300), "a") == 0.0


@pytest.mark.parametrize("first", ["state", "store"])
def test_states_and_the_store_share_the_file(tmp_path: Path, first: str) -> None:
    """Whichever is there first, and while both are open."""
    path = tmp_path / STATE_FILE
    if first == "state":
        write_state(path, "a", b"1")
    with closing(StoreCore(path, peer_id=ME)) as core:
        write_state(path, "a", b"2")
        own = core.commit(lambda it: it.reserve_own(b"key", lambda *_: b"envelope"))
        assert read_state(path, "a") == b"2", "while the store is open"
    with closing(StoreCore(path, peer_id=ME)) as core:
        assert core.commit(lambda it: it.unsent())[0].batch_id == own.batch_id
        assert read_state(path, "a") == b"2"


def test_writers_in_several_threads_wait_for_each_other(tmp_path: Path) -> None:
    path = tmp_path / STATE_FILE

    def write(name: str) -> None:
        for number in range(40):
            write_state(path, name, b"%d" % number)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    with closing(StoreCore(path, peer_id=ME)) as core:
        for thread in threads:
            thread.start()
        for number in range(40):
            core.commit(lambda it, key=b"%d" % number: it.reserve_own(key, lambda n, _: b"%d" % n))
        for thread in threads:
            thread.join()
        assert len(core.commit(lambda it: it.unsent())) == 40
    assert [read_state(path, name) for name in "abc"] == [b"39"] * 3


def _write_and_die(path: Path, moment: int) -> None:
    """Replace a state; killed at the `moment`-th instruction of SQLite, if there are so many."""
    left, opened = moment, open_for_writing

    def count() -> int:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return 0

    def counted(*args: Any, **options: Any) -> sqlite3.Connection:
        database = opened(*args, **options)
        database.set_progress_handler(count, 1)
        return database

    state_file.open_for_writing = counted
    write_state(path, "ledger", NEW)


def test_a_kill_at_any_instruction_leaves_the_state_before_or_the_new_one(tmp_path: Path) -> None:
    context, found = multiprocessing.get_context("fork"), list[bytes | None]()
    for moment in range(1, 1000, 2):
        path = tmp_path / f"{moment}.db"
        write_state(path, "ledger", OLD)
        writer = context.Process(target=_write_and_die, args=(path, moment))
        writer.start()
        writer.join()
        with closing(open_for_reading(path)) as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        found.append(read_state(path, "ledger"))
        if writer.exitcode == 0:
            break
    assert set(found) == {OLD, NEW}
    assert found == [OLD] * found.count(OLD) + [NEW] * found.count(NEW)
    assert len(found) > 10, "it was killed at many moments"
