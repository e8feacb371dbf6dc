"""The store's statements, synchronous. One thread at a time; each call belongs in a transaction.

A commit with `durable` survives a kill and a power failure; the others may be lost by a power
failure.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TypeVar

from shoal_p2p.store.schema import open_database
from shoal_p2p.store.types import (
    Deliverer,
    EvidencePair,
    OwnBatch,
    StoredBatch,
    StoredState,
    StoreError,
    StoreFault,
    StoreLimits,
    fault_of,
)
from shoal_wire.digests import batch_id as id_of_envelope
from shoal_wire.limits import DIGEST_BYTES
from shoal_wire.types import BatchId, GroupId, PeerId

T = TypeVar("T")

External = tuple[BatchId, PeerId, int, bytes, int, Deliverer | None]
"""The arguments of `StoreCore.add_external`, in its order."""


class StoreCore:
    """An open database."""

    def __init__(
        self,
        path: Path,
        *,
        peer_id: PeerId,
        limits: StoreLimits | None = None,
        first_sequence: int = 1,
    ) -> None:
        """Open or create the database; raises StoreError.

        `first_sequence` is used when it is created. A node that kept its key but lost its database
        must start above every number it ever used: pass the wall clock in milliseconds.
        """
        self._limits = limits or StoreLimits()
        self._peer_id = peer_id
        self._db = open_database(path, peer_id=peer_id, first_sequence=first_sequence)
        self.now_ms = 0
        """The wall clock of the transaction, in milliseconds."""
        self._unsent_bytes: int | None = None
        self._flushes: bool | None = None
        """True if a commit flushes the disk; None until the first."""

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    # Transactions

    def commit(self, call: Callable[[StoreCore], T], *, now_ms: int = 0, durable: bool = True) -> T:
        """Run a call in one transaction at `now_ms`. Raises StoreError and the call's errors."""
        self.now_ms = now_ms
        try:
            return self._transaction(call, durable=durable)
        except sqlite3.Error as error:
            raise StoreError(fault_of(error), f"the store failed: {error}") from error

    def _transaction(self, call: Callable[[StoreCore], T], *, durable: bool) -> T:
        if durable is not self._flushes:
            self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._flushes = durable
        try:
            with self._db:
                self._db.execute("BEGIN IMMEDIATE")
                return call(self)
        except BaseException:
            self._unsent_bytes = None
            raise

    # Own batches

    def reserve_own(
        self, client_key: bytes, make_envelope: Callable[[int, int], bytes]
    ) -> OwnBatch:
        """Allocate the next sequence number, seal a batch with it, and store both under a key.

        `make_envelope` gets the number and that of the previous own batch (0: none). A repeated key
        returns the first batch with `is_new` False. Raises StoreError OUTBOX_FULL, and the errors
        of `make_envelope`.
        """
        known = self._db.execute(
            "SELECT k.sequence, k.batch_id, b.envelope FROM client_keys k"
            " LEFT JOIN batches b ON b.batch_id = k.batch_id WHERE k.client_key = ?",
            (client_key,),
        ).fetchone()
        if known is not None:
            return _own_batch(*known)
        (sequence,) = self._db.execute(
            "UPDATE meta SET value = value + 1 WHERE key = 'next_sequence' RETURNING value - 1"
        ).fetchone()
        envelope = make_envelope(sequence, self.last_own_sequence())
        self._count_unsent(len(envelope))
        batch_id = id_of_envelope(envelope)
        self._insert_batch(batch_id, self._peer_id, sequence, True, envelope, self.now_ms)
        self._db.execute(
            "INSERT INTO client_keys VALUES (?, ?, ?)",
            (client_key, sequence, batch_id),
        )
        self._db.execute(
            "DELETE FROM client_keys WHERE sequence <= ?",
            (sequence - self._limits.max_client_keys,),
        )
        return _own_batch(sequence, batch_id, envelope, is_new=True)

    def mark_sent(self, sequence: int) -> bool:
        """Mark an own batch as sent or abandoned; False if unknown or marked already.

        If this is lost, the batch is sent once more and peers ignore it.
        """
        self._unsent_bytes = None
        changed = self._db.execute(
            "UPDATE batches SET sent_ms = ? WHERE own = 1 AND sequence = ? AND sent_ms IS NULL",
            (self.now_ms, sequence),
        )
        return changed.rowcount > 0

    def unsent(self) -> list[OwnBatch]:
        """Return the unsent own batches, oldest first."""
        rows = self._db.execute(
            "SELECT sequence, batch_id, envelope FROM batches"
            " WHERE own = 1 AND sent_ms IS NULL ORDER BY sequence"
        )
        return [_own_batch(*row) for row in rows]

    def _count_unsent(self, num_bytes: int) -> None:
        if self._unsent_bytes is None:
            (self._unsent_bytes,) = self._db.execute(
                "SELECT coalesce(sum(num_bytes), 0) FROM batches WHERE own = 1 AND sent_ms IS NULL"
            ).fetchone()
        if self._unsent_bytes + num_bytes > self._limits.max_unsent_bytes:
            raise StoreError(
                StoreFault.OUTBOX_FULL, f"{self._unsent_bytes} bytes wait to be sent already"
            )
        self._unsent_bytes += num_bytes

    # Reading

    def is_own(self, batch_id: BatchId) -> bool:
        """Return whether a batch is among the latest `max_client_keys` own ones."""
        row = self._db.execute(
            "SELECT 1 FROM client_keys WHERE batch_id = ?", (batch_id,)
        ).fetchone()
        return row is not None

    def last_own_sequence(self) -> int:
        """Return the number of the latest own batch, 0 if there is none."""
        (sequence,) = self._db.execute(
            "SELECT coalesce(max(sequence), 0) FROM client_keys"
        ).fetchone()
        return int(sequence)

    def own_numbers(self) -> tuple[int, int]:
        """Return the highest number below which own batches may be deleted, and the number of the
        latest own batch; each 0 if there is none."""
        (first,) = self._db.execute("SELECT min(sequence) FROM client_keys").fetchone()
        latest = self.last_own_sequence()
        forgotten = latest - self._limits.max_client_keys
        return forgotten if first is not None and first <= forgotten + 1 else 0, latest

    def envelope_part(self, batch_id: BatchId, offset: int, length: int) -> bytes | None:
        """Return up to `length` bytes of a stored envelope; None if it is not stored."""
        row = self._db.execute(
            "SELECT substr(envelope, ?, ?) FROM batches WHERE batch_id = ?",
            (offset + 1, length, batch_id),
        ).fetchone()
        return None if row is None else bytes(row[0])

    # Other nodes' batches

    def add_external(
        self,
        batch_id: BatchId,
        publisher: PeerId,
        sequence: int,
        envelope: bytes,
        received_ms: int,
        deliverer: Deliverer | None = None,
    ) -> bool:
        """Store a valid external batch; False if it was stored already."""
        is_new = self._insert_batch(batch_id, publisher, sequence, False, envelope, received_ms)
        if is_new and deliverer is not None:
            self._db.execute(
                "INSERT OR REPLACE INTO bringers VALUES (?, ?, ?)",
                (batch_id, deliverer.peer_id, deliverer.network),
            )
        return is_new

    def add_all(self, rows: Sequence[External]) -> None:
        """Store batches like `add_external`, all or none."""
        for row in rows:
            self.add_external(*row)

    def _insert_batch(
        self,
        batch_id: BatchId,
        publisher: PeerId,
        sequence: int,
        own: bool,
        envelope: bytes,
        received_ms: int,
    ) -> bool:
        inserted = self._db.execute(
            "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, NULL, ?) ON CONFLICT DO NOTHING",
            (batch_id, publisher, sequence, own, len(envelope), received_ms, envelope),
        )
        return inserted.rowcount > 0

    def add_equivocation(
        self,
        publisher: PeerId,
        sequence: int,
        first: BatchId,
        second_envelope: bytes,
        *,
        unwritten: bytes | None = None,
    ) -> None:
        """Move the first of two batches under one sequence from the batches to the evidence.

        `unwritten` is the first batch's envelope if it is not on disk yet.
        """
        on_disk = self._db.execute(
            "SELECT envelope FROM batches WHERE batch_id = ?", (first,)
        ).fetchone()
        envelope = on_disk[0] if on_disk else unwritten
        self._db.execute(
            "INSERT INTO equivocations (publisher, sequence, first, second, at_ms)"
            " VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            # If the first envelope was deleted, its id is stored: no envelope is that short.
            (publisher, sequence, envelope or first, second_envelope, self.now_ms),
        )
        self._db.execute("DELETE FROM batches WHERE batch_id = ? AND own = 0", (first,))
        self._keep_newest("equivocations", self._limits.max_equivocations)

    def evidence(self) -> list[EvidencePair]:
        """Return the stored pairs of evidence, oldest first."""
        rows = self._db.execute(
            "SELECT publisher, sequence, first, second FROM equivocations ORDER BY position"
        )
        return [_evidence_pair(*row) for row in rows]

    def drop_evidence(self, publisher: PeerId, sequence: int) -> None:
        """Delete a pair that proves nothing."""
        self._db.execute(
            "DELETE FROM equivocations WHERE publisher = ? AND sequence = ?", (publisher, sequence)
        )

    # Consumed groups

    def consume(self, group_ids: Collection[GroupId]) -> int:
        """Record that groups were trained on; return how many are newly recorded."""
        added = self._db.executemany(
            "INSERT INTO consumed (group_id, at_ms) VALUES (?, ?) ON CONFLICT DO NOTHING",
            [(group_id, self.now_ms) for group_id in group_ids],
        )
        self._keep_newest("consumed", self._limits.max_consumed_ids)
        return max(0, added.rowcount)

    def _keep_newest(self, table: str, count: int) -> None:
        self._db.execute(
            f"DELETE FROM {table} WHERE position <= (SELECT max(position) FROM {table}) - ?",
            (count,),
        )

    # All of it

    def load(self) -> StoredState:
        """Return the state from which a node resumes."""
        batches = self._db.execute("SELECT batch_id FROM batches ORDER BY received_ms, rowid")
        consumed = self._db.execute("SELECT group_id FROM consumed ORDER BY position")
        return StoredState(
            batch_ids=tuple(BatchId(batch_id) for (batch_id,) in batches),
            consumed_ids=tuple(GroupId(group_id) for (group_id,) in consumed),
        )

    def batches(self, batch_ids: Sequence[BatchId]) -> list[StoredBatch]:
        """Return the stored batches among `batch_ids`, in that order."""
        rows = (
            self._db.execute(
                "SELECT b.batch_id, publisher, sequence, own, envelope, received_ms, peer_id,"
                " network FROM batches b LEFT JOIN bringers r ON r.batch_id = b.batch_id"
                " WHERE b.batch_id = ?",
                (batch_id,),
            ).fetchone()
            for batch_id in batch_ids
        )
        return [_stored_batch(*row) for row in rows if row is not None]

    def prune(
        self,
        *,
        max_age_ms: int,
        max_bytes: int,
        keep: Collection[BatchId] | None = None,
        grace_ms: int = 60_000,
    ) -> int:
        """Delete batches that are no longer needed; return how many.

        Deletes batches older than `max_age_ms`, sent or not (peers ignore stale batches); those
        received before the last `grace_ms` and not in `keep`; then the oldest until envelopes take
        at most `max_bytes`. The last two rules never delete unsent batches.
        """
        self._unsent_bytes = None
        may_go = "(own = 0 OR sent_ms IS NOT NULL)"
        pruned = self._db.execute(
            "DELETE FROM batches WHERE received_ms < ?", (self.now_ms - max_age_ms,)
        ).rowcount
        if keep is not None:
            self._db.execute("CREATE TEMP TABLE IF NOT EXISTS kept (batch_id BLOB PRIMARY KEY)")
            self._db.execute("DELETE FROM kept")
            self._db.executemany("INSERT OR IGNORE INTO kept VALUES (?)", ((b,) for b in keep))
            pruned += self._db.execute(
                f"DELETE FROM batches WHERE {may_go} AND received_ms < ?"
                " AND batch_id NOT IN (SELECT batch_id FROM kept)",
                (self.now_ms - grace_ms,),
            ).rowcount
        pruned += self._db.execute(
            f"DELETE FROM batches WHERE {may_go} AND rowid IN (SELECT rowid FROM ("
            "SELECT rowid, sum(num_bytes) OVER (ORDER BY received_ms DESC, rowid DESC) AS so_far"
            " FROM batches) WHERE so_far > ?)",
            (max_bytes,),
        ).rowcount
        return pruned


def _own_batch(
    sequence: int, batch_id: bytes, envelope: bytes | None, is_new: bool = False
) -> OwnBatch:
    return OwnBatch(sequence=sequence, batch_id=BatchId(batch_id), envelope=envelope, is_new=is_new)


def _stored_batch(
    batch_id: bytes,
    publisher: str,
    sequence: int,
    own: int,
    envelope: bytes,
    received_ms: int,
    peer_id: str | None,
    network: str | None,
) -> StoredBatch:
    deliverer = None
    if peer_id is not None and network is not None:
        deliverer = Deliverer(peer_id=PeerId(peer_id), network=network)
    return StoredBatch(
        batch_id=BatchId(batch_id),
        publisher=PeerId(publisher),
        sequence=sequence,
        own=bool(own),
        envelope=envelope,
        received_ms=received_ms,
        deliverer=deliverer,
    )


def _evidence_pair(publisher: str, sequence: int, first: bytes, second: bytes) -> EvidencePair:
    noted = len(first) == DIGEST_BYTES
    return EvidencePair(
        publisher=PeerId(publisher),
        sequence=sequence,
        first=None if noted else first,
        first_id=BatchId(first) if noted else id_of_envelope(first),
        second=second,
    )
