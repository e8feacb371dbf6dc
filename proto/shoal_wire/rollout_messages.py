"""What peers ask each other for over `/shoal/rollouts/1`, and the answers, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shoal_wire.types import BatchId, PeerId


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentQuery:
    """What has come lately? Answered by a `Listing`, the newest first."""

    shards: tuple[int, ...]
    max_batches: int
    max_bytes: int
    """Sum of the envelopes' sizes."""
    max_age_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SinceQuery:
    """A publisher's batches above a number. Answered by a `Listing`, the lowest number first."""

    publisher: PeerId
    after_sequence: int
    max_batches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeQuery:
    """Small batches by id. Answered by `Envelopes`: those that are held and fit, in this order."""

    batch_ids: tuple[BatchId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkQuery:
    """A piece of one envelope. Answered by a `Chunk`."""

    batch_id: BatchId
    offset: int
    length: int


Query = RecentQuery | SinceQuery | WholeQuery | ChunkQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRef:
    """A batch that the answerer says it holds: a hint until its envelope is here."""

    batch_id: BatchId
    publisher: PeerId
    sequence: int
    num_bytes: int
    num_groups: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Batches that the answerer holds."""

    batches: tuple[BatchRef, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelopes:
    """Whole envelopes, each the exact bytes that travelled."""

    envelopes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of an envelope of `num_bytes`."""

    num_bytes: int
    data: bytes


class RefusalReason(StrEnum):
    """Why an answer holds nothing."""

    BUSY = "busy"
    NOT_HELD = "not_held"
    PENDING = "pending"
    """Not held yet: being pulled just now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Not now, or not here. No offence."""

    reason: RefusalReason
    retry_after_ms: int = 0


Answer = Listing | Envelopes | Chunk | Refusal
