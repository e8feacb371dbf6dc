"""Replies at `/shoal/rollouts/1` of a peer with given envelopes and batch listings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shoal_wire.codec import decode_batch
from shoal_wire.digests import batch_id
from shoal_wire.envelope import peer_id_of
from shoal_wire.limits import MAX_BATCH_BYTES
from shoal_wire.rollout_messages import (
    Answer,
    BatchRef,
    BatchRefusalReason,
    Chunk,
    ChunkQuery,
    Envelopes,
    Listing,
    Query,
    RecentQuery,
    Refusal,
    SinceQuery,
    WholeQuery,
)
from shoal_wire.types import BatchId, SignedBatch
from shoal_wire.v1 import rollout_pb2

NOT_HELD = Refusal(reason=BatchRefusalReason.NOT_HELD)
PENDING = Refusal(reason=BatchRefusalReason.PENDING)


def answer_from(
    query: Query, held: Mapping[BatchId, bytes], listed: Sequence[BatchRef] = ()
) -> Answer:
    """Return the reply of a peer that stores these envelopes and lists these batches."""
    match query:
        case RecentQuery():
            return Listing(batches=tuple(listed[: query.max_batches]))
        case SinceQuery():
            own = [ref for ref in listed if ref.publisher == query.publisher]
            later = [ref for ref in own if ref.sequence > query.after_sequence]
            return Listing(batches=tuple(later[: query.max_batches]))
        case WholeQuery():
            return Envelopes(envelopes=tuple(held[n] for n in query.batch_ids if n in held))
        case ChunkQuery() if query.batch_id in held:
            raw = held[query.batch_id]
            return Chunk(num_bytes=len(raw), data=raw[query.offset :][: query.length])
        case _:
            return NOT_HELD


def ref_of(signed: SignedBatch) -> BatchRef:
    """Return the entry of a batch in a listing."""
    return BatchRef(
        batch_id=signed.batch_id,
        publisher=signed.publisher,
        sequence=signed.batch.sequence,
        num_bytes=len(signed.envelope),
        num_groups=len(signed.batch.groups),
    )


def ref_of_copy(raw: bytes) -> BatchRef:
    """Return the entry of an envelope that only a lenient parser opens. May raise anything."""
    message = rollout_pb2.Envelope.FromString(raw)
    batch = decode_batch(message.payload, max_bytes=MAX_BATCH_BYTES)
    return BatchRef(
        batch_id=batch_id(raw),
        publisher=peer_id_of(message.public_key[4:]),
        sequence=batch.sequence,
        num_bytes=len(raw),
        num_groups=max(1, len(batch.groups)),
    )
