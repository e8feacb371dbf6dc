"""Values and errors of the store."""

from __future__ import annotations

import logging
import sqlite3
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from shoal_base.bounded import MANY
from shoal_base.ranges import Bytes, Range, Ranged
from shoal_wire.types import BatchId, GroupId, PeerId


class StoreFault(StrEnum):
    """Why a call of the store failed."""

    FULL = "full"
    """The disk is full; works again once there is space."""
    OUTBOX_FULL = "outbox_full"
    """Too many bytes wait to be sent; works again once some are sent."""
    DISK = "disk"
    """A disk error, or the file cannot be opened."""
    DAMAGED = "damaged"
    FOREIGN = "foreign"
    """The database belongs to another peer, or has another version."""
    CLOSED = "closed"
    """The store was stopped; the effect of the call is unknown."""


class StoreError(Exception):
    """A call of the store failed without effect (but see CLOSED)."""

    def __init__(self, fault: StoreFault, message: str) -> None:
        super().__init__(message)
        self.fault = fault

    @property
    def log_level(self) -> int:
        """The log level: a full disk is reported once, by `disk`."""
        return logging.DEBUG if self.fault is StoreFault.FULL else logging.WARNING

    @property
    def retryable(self) -> bool:
        """True if the same call may work later."""
        return self.fault in (StoreFault.FULL, StoreFault.OUTBOX_FULL, StoreFault.CLOSED)


def fault_of(error: sqlite3.Error) -> StoreFault:
    """Return the fault of an SQLite error."""
    # The primary code is the low byte; the rest says which operation it was.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return StoreFault.FULL
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreFault.DAMAGED
    return StoreFault.DISK


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits(Ranged):
    """Bounds of what the store remembers."""

    max_unsent_bytes: Bytes = 64 * 1024 * 1024
    """Bytes of unsent own envelopes above which a reservation is refused."""
    max_client_keys: Annotated[int, Range("keys", 1, 1 << 31)] = 10_000
    max_consumed_ids: Annotated[int, Range("ids", 1, 1 << 31)] = 16 * MANY
    max_equivocations: Annotated[int, Range("proofs", 1, 1 << 20)] = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnBatch:
    """An own batch under its sequence number."""

    sequence: int
    batch_id: BatchId
    envelope: bytes | None
    """The sealed bytes; None for a resend of a batch that has been pruned."""
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliverer:
    """The peer that delivered a batch."""

    peer_id: PeerId
    network: str
    """The publisher's network, whose quota the batch counts against; empty if never connected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBatch:
    """A batch on disk."""

    batch_id: BatchId
    publisher: PeerId
    sequence: int
    own: bool
    envelope: bytes
    received_ms: int
    """Wall clock, milliseconds since the epoch."""
    deliverer: Deliverer | None
    """None for an own batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """The state from which a node resumes."""

    batch_ids: tuple[BatchId, ...]
    """The ids of all stored batches, oldest first."""
    consumed_ids: tuple[GroupId, ...]
    """The newest `max_consumed_ids`, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidencePair:
    """Two envelopes of one signer under one sequence, stored as proof of an equivocation."""

    publisher: PeerId
    sequence: int
    first: bytes | None
    """None if the first was no longer on disk."""
    first_id: BatchId
    """Its id."""
    second: bytes
