"""Requests and answers between peers over `/shoal/rollouts/1`, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from shoal_wire.fields import at_most, holding, sized, within
from shoal_wire.limits import (
    DIGEST_BYTES,
    MAX_CHUNK_BYTES,
    MAX_GROUPS_PER_BATCH,
    MAX_LISTED_BATCHES,
    MAX_NAME_BYTES,
    MAX_RETRY_MS,
    MAX_SEQUENCE,
    MAX_SHARD_NUMBER,
    MAX_SHARDS_PER_PEER,
    MAX_WHOLE_BATCHES,
)
from shoal_wire.types import BatchId, PeerId

_BatchId = Annotated[BatchId, sized(DIGEST_BYTES, DIGEST_BYTES, "batch id")]
_Before = Annotated[BatchId, holding(lambda raw: len(raw) in (0, DIGEST_BYTES), "batch id")]
_NEWEST = BatchId(b"")
_Publisher = Annotated[PeerId, sized(1, MAX_NAME_BYTES, "publisher")]
_MaxBatches = Annotated[int, within(1, MAX_LISTED_BATCHES, "max_batches")]
_Envelope = Annotated[bytes, sized(0, MAX_CHUNK_BYTES, "length of an envelope")]
_Shard = Annotated[int, within(0, MAX_SHARD_NUMBER - 1, "shard")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentQuery:
    """Requests recent batches. Answered by a `Listing`, the newest first."""

    shards: Annotated[tuple[_Shard, ...], sized(1, MAX_SHARDS_PER_PEER, "number of shards")]
    max_batches: _MaxBatches
    max_bytes: Annotated[int, at_most(MAX_SEQUENCE)]
    """Sum of the envelopes' sizes, within what a database's integers hold."""
    max_age_seconds: int
    before: _Before = _NEWEST
    """A batch of an earlier listing: only batches received before it are listed. Empty for the
    first listing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinceQuery:
    """Requests a publisher's batches above a number. Answered by a `Listing`, the lowest first."""

    publisher: _Publisher
    after_sequence: Annotated[int, within(0, MAX_SEQUENCE - 1, "after_sequence")]
    max_batches: _MaxBatches
    shards: Annotated[tuple[_Shard, ...], sized(0, MAX_SHARDS_PER_PEER, "number of shards")] = ()
    """Only batches of these; empty for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeQuery:
    """Requests small batches by id. Answered by `Envelopes`: those available that fit, in order."""

    batch_ids: Annotated[tuple[_BatchId, ...], sized(1, MAX_WHOLE_BATCHES, "number of batch ids")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkQuery:
    """Requests a part of one envelope. Answered by a `Chunk`."""

    batch_id: _BatchId
    offset: Annotated[int, within(0, MAX_SEQUENCE - 1, "offset")]
    length: Annotated[int, within(1, MAX_CHUNK_BYTES, "length")]


Query = RecentQuery | SinceQuery | WholeQuery | ChunkQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRef:
    """A batch that a peer claims to have: a hint, until its envelope has arrived."""

    batch_id: _BatchId
    publisher: _Publisher
    sequence: Annotated[int, within(1, MAX_SEQUENCE - 1, "sequence")]
    num_bytes: Annotated[int, within(1, MAX_SEQUENCE - 1, "num_bytes")]
    num_groups: Annotated[int, within(1, MAX_GROUPS_PER_BATCH, "num_groups")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Batches that the peer claims to have."""

    batches: Annotated[
        tuple[BatchRef, ...], sized(0, MAX_LISTED_BATCHES, "number of listed batches")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelopes:
    """Whole envelopes, each with its exact bytes."""

    envelopes: Annotated[tuple[_Envelope, ...], sized(0, MAX_WHOLE_BATCHES, "number of envelopes")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A part of an envelope of `num_bytes`."""

    num_bytes: int
    data: Annotated[bytes, sized(0, MAX_CHUNK_BYTES, "chunk too long")]


class BatchRefusalReason(StrEnum):
    """Why a request was refused."""

    BUSY = "busy"
    NOT_HELD = "not_held"
    PENDING = "pending"
    """Not available yet: this peer is pulling it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Not now, or not here. Refusals do not count against a peer."""

    reason: BatchRefusalReason
    retry_after_ms: Annotated[int, at_most(MAX_RETRY_MS)] = 0


Answer = Listing | Envelopes | Chunk | Refusal
