"""Opens SQLite files: private to the user, with a write-ahead log and concurrent readers."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Literal


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
