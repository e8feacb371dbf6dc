"""The store's tables, and opening the file safely in which they are (`shoal_p2p.state_file`).

`meta` has the owner and the next sequence number; `batches` has sealed envelopes, own (the outbox)
and external; `client_keys` outlives its batches, to recognise resends. `bringers` has the peer that
delivered an external batch.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from shoal_p2p.state_file import open_for_writing
from shoal_p2p.store.types import StoreError, StoreFault, fault_of
from shoal_wire.types import PeerId

SCHEMA_VERSION = 1

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE batches (
    batch_id BLOB PRIMARY KEY,
    publisher TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    own INTEGER NOT NULL,
    num_bytes INTEGER NOT NULL,
    received_ms INTEGER NOT NULL,
    sent_ms INTEGER,
    envelope BLOB NOT NULL
);
CREATE INDEX batches_by_time ON batches (received_ms, num_bytes);
CREATE INDEX unsent ON batches (sequence, num_bytes) WHERE own = 1 AND sent_ms IS NULL;
CREATE TABLE client_keys (
    client_key BLOB NOT NULL UNIQUE,
    sequence INTEGER PRIMARY KEY,
    batch_id BLOB NOT NULL
);
CREATE TABLE bringers (
    batch_id BLOB PRIMARY KEY, peer_id TEXT NOT NULL, network TEXT NOT NULL
) WITHOUT ROWID;
CREATE TRIGGER forget_bringer AFTER DELETE ON batches BEGIN
    DELETE FROM bringers WHERE batch_id = OLD.batch_id; END;
CREATE TABLE consumed (
    position INTEGER PRIMARY KEY, group_id BLOB NOT NULL UNIQUE, at_ms INTEGER NOT NULL
);
CREATE TABLE equivocations (
    position INTEGER PRIMARY KEY,
    publisher TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    first BLOB NOT NULL,
    second BLOB NOT NULL,
    at_ms INTEGER NOT NULL,
    UNIQUE (publisher, sequence)
);
"""


def open_database(path: Path, *, peer_id: PeerId, first_sequence: int) -> sqlite3.Connection:
    """Open or create the database at `path`. Blocks; reads the whole file once to check it.

    See `open_for_writing` for the connection. Raises StoreError with one line if the file is
    damaged, belongs to another peer, has a newer version, or cannot be opened.
    """
    connection = None
    try:
        connection = open_for_writing(path, synchronous="FULL")
        _prepare(connection, path, peer_id, first_sequence)
    except sqlite3.Error as error:
        if connection is not None:
            connection.close()
        raise _unusable(path, error) from error
    except StoreError:
        if connection is not None:
            connection.close()
        raise
    return connection


def _prepare(
    connection: sqlite3.Connection, path: Path, peer_id: PeerId, first_sequence: int
) -> None:
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA journal_size_limit = 16777216")
    _check_pages(connection, path)
    has_tables = "SELECT 1 FROM sqlite_master WHERE name = 'meta'"
    if connection.execute(has_tables).fetchone() is None:
        _create(connection, peer_id, first_sequence)
    _check_meta(connection, path, peer_id)


def check_file(path: Path) -> None:
    """Read a whole file once, if there is one. Blocks. Raises StoreError: it is damaged."""
    if not path.exists():
        return
    try:
        with closing(open_for_writing(path, synchronous="NORMAL")) as connection:
            _check_pages(connection, path)
    except sqlite3.Error as error:
        raise _unusable(path, error) from error


def _check_pages(connection: sqlite3.Connection, path: Path) -> None:
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise _damaged(path, str(verdict).splitlines()[-1])


def _create(connection: sqlite3.Connection, peer_id: PeerId, first_sequence: int) -> None:
    """Create all tables in one transaction: a kill leaves none of them or all."""
    meta = [
        ("schema_version", SCHEMA_VERSION),
        ("peer_id", peer_id),
        ("next_sequence", first_sequence),
    ]
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        for statement in _TABLES.split(";\n"):
            if statement.strip():
                connection.execute(statement)
        connection.executemany("INSERT INTO meta VALUES (?, ?)", meta)


def _check_meta(connection: sqlite3.Connection, path: Path, peer_id: PeerId) -> None:
    meta = dict(connection.execute("SELECT key, value FROM meta").fetchall())
    version = meta.get("schema_version")
    if version != SCHEMA_VERSION:
        raise StoreError(
            StoreFault.FOREIGN,
            f"{path} has schema version {version}, this shoal reads {SCHEMA_VERSION}",
        )
    if meta.get("peer_id") != peer_id:
        raise StoreError(
            StoreFault.FOREIGN,
            f"{path} belongs to peer {meta.get('peer_id')}, not to {peer_id}",
        )
    if not isinstance(meta.get("next_sequence"), int):
        raise _damaged(path, "no next sequence")


def _unusable(path: Path, error: sqlite3.Error) -> StoreError:
    fault = fault_of(error)
    if fault is StoreFault.DAMAGED:
        return _damaged(path, str(error))
    return StoreError(fault, f"{path} cannot be opened: {error}")


def _damaged(path: Path, detail: str) -> StoreError:
    return StoreError(
        StoreFault.DAMAGED, f"{path} is damaged ({detail}); move it away to start with a new one"
    )
