"""The one SQLite file of a peer, and the small states in it, each a text under a name.

    node.db    the store's tables (`shoal_p2p.store`) │ states: ledger, reputation, peers, …
    peer.db    the states of a bootstrap or a judge

A state is replaced entirely or not at all. Readers may be other processes, also while a peer runs.
All functions block.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Literal

STATE_FILE: Final = "node.db"
PEER_FILE: Final = "peer.db"
LAST_STATUS: Final = "last-status"
"""The final status of a node that was shut down in order, as JSON."""
MAX_STATE_BYTES: Final = 4 * 1024 * 1024
_TABLE = (
    "CREATE TABLE IF NOT EXISTS states"
    " (name TEXT PRIMARY KEY, written_at REAL NOT NULL, content BLOB NOT NULL) WITHOUT ROWID"
)


def open_for_writing(path: Path, *, synchronous: Literal["FULL", "NORMAL"]) -> sqlite3.Connection:
    """Open or create a database (mode 0600, write-ahead log). Blocks.

    After a power failure ``FULL`` has lost no commit, and ``NORMAL`` the last ones. Transactions
    are explicit (autocommit otherwise). The connection may move between threads, but only one may
    use it at a time. Raises sqlite3.Error and OSError.
    """
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        path.chmod(0o600)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(f"PRAGMA synchronous = {synchronous}")
    except BaseException:
        database.close()
        raise
    return database


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open a database that another process may be writing. Blocks; raises sqlite3.Error."""
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)


def write_state(path: Path, name: str, content: bytes) -> None:
    """Replace a state. Raises sqlite3.Error and OSError."""
    with closing(open_for_writing(path, synchronous="NORMAL")) as database:
        database.execute(_TABLE)
        row = name, time.time(), content
        database.execute("INSERT OR REPLACE INTO states VALUES (?, ?, ?)", row)


def set_state_aside(path: Path, name: str) -> str:
    """Rename a state that cannot be read, so that a person can inspect it; return its new name."""
    aside = f"{name}.corrupt"
    with closing(open_for_writing(path, synchronous="NORMAL")) as database:
        database.execute("UPDATE OR REPLACE states SET name = ? WHERE name = ?", (aside, name))
    return aside


def read_state(path: Path, name: str) -> bytes | None:
    """Return a state; None if it was never written.

    Raises ValueError if it is over `MAX_STATE_BYTES`, and sqlite3.Error if the file cannot be read.
    """
    row = _row(path, name, "content, length(content)")
    if row is not None and row[1] > MAX_STATE_BYTES:
        raise ValueError("it is too long")
    return None if row is None else bytes(row[0])


def state_written_at(path: Path, name: str) -> float:
    """Return when a state was written, in seconds since the epoch; 0 if it cannot be read."""
    try:
        row = _row(path, name, "written_at")
    except (sqlite3.Error, OSError):
        return 0.0
    return 0.0 if row is None else float(row[0])


def _row(path: Path, name: str, columns: str) -> tuple[Any, ...] | None:
    if not path.exists():
        return None
    with closing(open_for_reading(path)) as database:
        has = "SELECT 1 FROM sqlite_master WHERE name = 'states'"
        if database.execute(has).fetchone() is None:
            return None
        found = database.execute(f"SELECT {columns} FROM states WHERE name = ?", (name,))
        row: tuple[Any, ...] | None = found.fetchone()
        return row
