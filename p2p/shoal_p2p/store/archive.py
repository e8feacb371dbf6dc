"""Archives the signed bytes of every valid batch that a node has seen, for analysis.

    on_event() ─▶ bounded queue (drops the oldest) ─▶ run() ─▶ one transaction

Separate from the store, which deletes what the buffer no longer needs. Bounded in bytes; the oldest
batches are deleted first. A damaged file disables the archive, never the node. On a full disk the
newest batches wait.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import trio

from shoal_base.bounded import QUEUE_BYTES
from shoal_base.files import is_full
from shoal_base.waits import RETRY_S
from shoal_p2p.disk import Refused, say_refused
from shoal_p2p.events import BatchStored, Event
from shoal_p2p.state_file import open_for_reading, open_for_writing
from shoal_p2p.threads import InThread
from shoal_wire.manifest import Manifest

if TYPE_CHECKING:
    from trio_typing import TaskStatus

T = TypeVar("T")

ARCHIVE_FILE = "archive.db"
_COMMIT_SECONDS = 1.0
_TABLES = """
CREATE TABLE IF NOT EXISTS batches (
    position INTEGER PRIMARY KEY,
    batch_id BLOB NOT NULL UNIQUE,
    own INTEGER NOT NULL,
    received_ms INTEGER NOT NULL,
    envelope BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS manifests (digest BLOB PRIMARY KEY, raw BLOB NOT NULL) WITHOUT ROWID;
"""


class ArchiveError(Exception):
    """An archive that cannot be read; the text is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """One batch as it was signed."""

    batch_id: bytes
    own: bool
    received_ms: int
    """Own wall clock, milliseconds since the epoch."""
    envelope: bytes


class ArchiveFile:
    """The database; blocking, for one thread at a time. Raises sqlite3.Error and OSError."""

    def __init__(self, path: Path, *, max_bytes: int) -> None:
        """Open or create it; envelopes take at most `max_bytes`."""
        self._max_bytes = max_bytes
        self._db = open_for_writing(path, synchronous="NORMAL")
        try:
            self._db.executescript(_TABLES)
            (self._num_bytes,) = self._db.execute(
                "SELECT coalesce(sum(length(envelope)), 0) FROM batches"
            ).fetchone()
        except sqlite3.Error:
            self._db.close()
            raise

    def add(self, batches: Iterable[Archived]) -> None:
        """Add new batches, then delete the oldest until the bound holds."""
        num_bytes = self._num_bytes
        with self._db:
            self._db.execute("BEGIN")
            for batch in batches:
                added = self._db.execute(
                    "INSERT INTO batches (batch_id, own, received_ms, envelope)"
                    " VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                    (batch.batch_id, batch.own, batch.received_ms, batch.envelope),
                )
                num_bytes += len(batch.envelope) if added.rowcount > 0 else 0
            while num_bytes > self._max_bytes:
                (size,) = self._db.execute(
                    "DELETE FROM batches WHERE position = (SELECT min(position) FROM batches)"
                    " RETURNING length(envelope)"
                ).fetchone()
                num_bytes -= size
        self._num_bytes = num_bytes

    def add_manifest(self, digest: bytes, raw: bytes) -> None:
        """Store the manifest of a swarm whose batches may follow."""
        self._db.execute("INSERT OR IGNORE INTO manifests VALUES (?, ?)", (digest, raw))

    def close(self) -> None:
        """Close it."""
        self._db.close()


class Archive:
    """The archive for Trio tasks."""

    def __init__(
        self,
        path: Path,
        *,
        max_bytes: int,
        in_thread: InThread = trio.to_thread.run_sync,
        refused: Refused = say_refused,
    ) -> None:
        """Opens no file yet. With `max_bytes` 0 the archive is disabled."""
        self._run_in_thread = in_thread
        self._refused = refused
        self._path = path
        self._max_bytes = max_bytes
        self._limiter = trio.CapacityLimiter(1)
        self._waiting: deque[Archived] = deque()
        self._waiting_bytes = 0
        self._queued = trio.Event()

    def on_event(self, event: Event) -> None:
        """Archive every batch that was stored."""
        if isinstance(event, BatchStored):
            self.keep(
                Archived(
                    batch_id=event.signed.batch_id,
                    own=event.own,
                    received_ms=event.received_ms,
                    envelope=event.signed.envelope,
                )
            )

    def keep(self, batch: Archived) -> None:
        """Queue a batch without blocking; the oldest is dropped if the disk is too slow."""
        if not self._max_bytes:
            return
        self._waiting.append(batch)
        self._waiting_bytes += len(batch.envelope)
        while self._waiting_bytes > QUEUE_BYTES:
            self._waiting_bytes -= len(self._waiting.popleft().envelope)
        self._queued.set()

    async def run(
        self, manifest: Manifest, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Write queued batches until cancelled; `manifest` is that of their swarm."""
        task_status.started()
        if not self._max_bytes:
            return
        file = await self._opened(manifest)
        if file is None:
            self._max_bytes = 0
            self._waiting.clear()
            return
        try:
            while True:
                await self._queued.wait()
                await trio.sleep(_COMMIT_SECONDS)
                await self._commit(file)
        finally:
            with trio.CancelScope(shield=True):
                await self._commit(file)
                await self._in_thread(file.close)

    async def _opened(self, manifest: Manifest) -> ArchiveFile | None:
        """Open the file, once there is disk space; None if it is unusable."""
        while True:
            try:
                return await self._in_thread(lambda: self._open(manifest))
            except (sqlite3.Error, OSError) as error:
                self._refused(f"no archive of rollouts: {self._path.name} cannot be used", error)
                if not is_full(error):
                    return None
            await trio.sleep(RETRY_S)

    def _open(self, manifest: Manifest) -> ArchiveFile:
        file = ArchiveFile(self._path, max_bytes=self._max_bytes)
        try:
            file.add_manifest(manifest.digest, manifest.raw)
        except sqlite3.Error:
            file.close()
            raise
        return file

    async def _commit(self, file: ArchiveFile) -> None:
        batches, self._waiting, self._waiting_bytes = self._waiting, deque(), 0
        self._queued = trio.Event()
        try:
            await self._in_thread(lambda: file.add(batches))
        except sqlite3.Error as error:
            self._refused(f"{len(batches)} batches are not archived", error)
            if is_full(error):  # they wait, ahead of newer ones
                later, self._waiting, self._waiting_bytes = self._waiting, deque(), 0
                for batch in (*batches, *later):
                    self.keep(batch)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await self._run_in_thread(call, limiter=self._limiter)


def read_archive(path: Path) -> Iterator[Archived]:
    """Yield the archived batches, oldest first. A node may be writing at the same time.

    Raises:
        ArchiveError: there is no archive, or it is damaged.
    """
    with _reading(path) as db:
        for batch_id, own, received_ms, envelope in db.execute(
            "SELECT batch_id, own, received_ms, envelope FROM batches ORDER BY position"
        ):
            yield Archived(
                batch_id=batch_id, own=bool(own), received_ms=received_ms, envelope=envelope
            )


def count_archive(path: Path, *, own: bool = False) -> int:
    """Return the number of batches, or of own ones, without reading their envelopes.

    Raises:
        ArchiveError: as `read_archive`.
    """
    with _reading(path) as db:
        (count,) = db.execute("SELECT count(*) FROM batches WHERE own >= ?", (own,)).fetchone()
        return int(count)


def read_manifests(path: Path) -> list[bytes]:
    """Return the exact bytes of the archived manifests. Raises like `read_archive`."""
    with _reading(path) as db:
        return [raw for (raw,) in db.execute("SELECT raw FROM manifests")]


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        if not path.exists():
            raise ArchiveError(f"no archive of rollouts in {path.parent}: has a node run there?")
        with closing(open_for_reading(path)) as db:
            yield db
    except (sqlite3.Error, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ArchiveError(f"{path} cannot be read: {why}") from None
