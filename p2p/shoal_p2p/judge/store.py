"""A judge's records on disk: numbered without a gap, bounded, whole after any kill. Blocking.

One connection, one thread at a time. `read_records` opens a store that a judge may be using.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from shoal_base.ranges import Range, Ranged
from shoal_p2p.state_file import open_for_reading, open_for_writing
from shoal_wire.types import PeerId

JUDGE_FILE = "judge.db"
SCHEMA_VERSION = 1

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE records (number INTEGER PRIMARY KEY, peer TEXT NOT NULL, envelope BLOB NOT NULL);
CREATE INDEX records_of_peer ON records (peer, number);
CREATE TABLE peers (peer TEXT PRIMARY KEY, challenges INTEGER NOT NULL, asked_ms INTEGER NOT NULL);
CREATE INDEX peers_by_time ON peers (asked_ms);
"""


class JudgeStoreError(Exception):
    """The records cannot be opened, read or written; one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeStoreLimits(Ranged):
    """Bounds of the store; above them the oldest rows are deleted."""

    max_records: Annotated[int, Range("records", 1, 1 << 31)] = 200_000
    """About 100 MB."""
    max_peers: Annotated[int, Range("peers", 1, 1 << 31)] = 50_000
    """Peers whose challenges are counted."""


class JudgeStore:
    """An open store of one judge."""

    def __init__(
        self, path: Path, *, judge: PeerId, limits: JudgeStoreLimits | None = None
    ) -> None:
        """Open or create it. Raises JudgeStoreError: it cannot be used, or is another judge's."""
        self._limits = limits or JudgeStoreLimits()
        with _one_line(path):
            self._db = open_for_writing(path, synchronous="FULL")
            try:
                self._prepare(path, judge)
            except BaseException:
                self._db.close()
                raise
        self._path = path

    def _prepare(self, path: Path, judge: PeerId) -> None:
        if self._db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
            self._db.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT;")
        self._db.executemany(
            "INSERT INTO meta VALUES (?, ?) ON CONFLICT DO NOTHING",
            [("judge", judge), ("version", SCHEMA_VERSION), ("next_number", 1)],
        )
        meta = dict(self._db.execute("SELECT key, value FROM meta"))
        if (meta["judge"], meta["version"]) != (judge, SCHEMA_VERSION):
            raise JudgeStoreError(f"{path} is of another judge, or of another version")

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    @property
    def num_records(self) -> int:
        """Records made so far, including deleted ones."""
        with _one_line(self._path):
            (value,) = self._db.execute(
                "SELECT value FROM meta WHERE key = 'next_number'"
            ).fetchone()
        return int(value) - 1

    def note_challenge(self, peer: PeerId, *, now_ms: int) -> int:
        """Count a challenge for `peer`, durably; return its total."""
        with _one_line(self._path), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            (count,) = self._db.execute(
                "INSERT INTO peers VALUES (?, 1, ?) ON CONFLICT DO UPDATE SET"
                " challenges = challenges + 1, asked_ms = excluded.asked_ms RETURNING challenges",
                (peer, now_ms),
            ).fetchone()
            self._db.execute(
                "DELETE FROM peers WHERE rowid IN (SELECT rowid FROM peers ORDER BY asked_ms"
                " LIMIT max(0, (SELECT count(*) FROM peers) - ?))",
                (self._limits.max_peers,),
            )
        return int(count)

    def add(self, peer: PeerId, make_envelope: Callable[[int], bytes]) -> bytes:
        """Store the envelope that `make_envelope` makes under the next number, durably."""
        with _one_line(self._path), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            (number,) = self._db.execute(
                "UPDATE meta SET value = value + 1 WHERE key = 'next_number' RETURNING value - 1"
            ).fetchone()
            envelope = make_envelope(number)
            self._db.execute("INSERT INTO records VALUES (?, ?, ?)", (number, peer, envelope))
            self._db.execute(
                "DELETE FROM records WHERE number <= ?", (number - self._limits.max_records,)
            )
        return envelope

    def records(self, *, after: int, limit: int, peer: PeerId | None = None) -> list[bytes]:
        """Return envelopes above a number, of one peer or of all, in order of number."""
        with _one_line(self._path):
            if peer is None:
                rows = self._db.execute(
                    "SELECT envelope FROM records WHERE number > ? ORDER BY number LIMIT ?",
                    (after, limit),
                )
            else:
                rows = self._db.execute(
                    "SELECT envelope FROM records WHERE peer = ? AND number > ?"
                    " ORDER BY number LIMIT ?",
                    (peer, after, limit),
                )
            return [bytes(envelope) for (envelope,) in rows]


def read_records(path: Path) -> list[bytes]:
    """Return all envelopes of a store, also while its judge runs. Raises JudgeStoreError."""
    if not path.is_file():
        raise JudgeStoreError(f"no judge has kept records in {path.parent}")
    with _one_line(path):
        database = open_for_reading(path)
        try:
            rows = database.execute("SELECT envelope FROM records ORDER BY number")
            return [bytes(envelope) for (envelope,) in rows]
        finally:
            database.close()


@contextlib.contextmanager
def _one_line(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise JudgeStoreError(f"{path}: {error}") from error
