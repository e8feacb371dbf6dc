"""Requests and answers of `/shoal/rollouts/1` to and from protobuf, within fixed bounds."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from shoal_wire.errors import RemoteError
from shoal_wire.limits import (
    DIGEST_BYTES,
    MAX_ANSWER_BYTES,
    MAX_CHUNK_BYTES,
    MAX_GROUPS_PER_BATCH,
    MAX_LISTED_BATCHES,
    MAX_NAME_BYTES,
    MAX_REQUEST_BYTES,
    MAX_RETRY_MS,
    MAX_SEQUENCE,
    MAX_SHARDS,
    MAX_SHARDS_PER_PEER,
    MAX_WHOLE_BATCHES,
)
from shoal_wire.rollout_messages import (
    Answer,
    BatchRef,
    Chunk,
    ChunkQuery,
    Envelopes,
    Listing,
    Query,
    RecentQuery,
    Refusal,
    RefusalReason,
    SinceQuery,
    WholeQuery,
)
from shoal_wire.types import BatchId, PeerId
from shoal_wire.v1 import fetch_pb2 as pb

_REFUSAL_TO_PB = {
    RefusalReason.BUSY: pb.REFUSAL_REASON_BUSY,
    RefusalReason.NOT_HELD: pb.REFUSAL_REASON_NOT_HELD,
    RefusalReason.PENDING: pb.REFUSAL_REASON_PENDING,
}
_REFUSAL_FROM_PB = {value: key for key, value in _REFUSAL_TO_PB.items()}


class RolloutProtocolError(RemoteError):
    """Bytes that are no request, or no answer, of `/shoal/rollouts/1`."""


def encode_query(query: Query) -> bytes:
    """Return the bytes of a request."""
    request = pb.RolloutRequest()
    match query:
        case RecentQuery():
            request.recent.shards.extend(query.shards)
            request.recent.max_batches = query.max_batches
            request.recent.max_bytes = query.max_bytes
            request.recent.max_age_seconds = query.max_age_seconds
        case SinceQuery():
            request.since.publisher = query.publisher
            request.since.after_sequence = query.after_sequence
            request.since.max_batches = query.max_batches
        case WholeQuery():
            request.whole.batch_ids.extend(query.batch_ids)
        case ChunkQuery():
            request.chunk.batch_id = query.batch_id
            request.chunk.offset = query.offset
            request.chunk.length = query.length
    return request.SerializeToString()


def decode_query(raw: bytes) -> Query:
    """Return the request in `raw`, every number within its bounds.

    Raises:
        RolloutProtocolError: not a request that the contract allows.
    """
    _check(len(raw) <= MAX_REQUEST_BYTES, "request too long")
    try:
        request = pb.RolloutRequest.FromString(raw)
    except DecodeError:
        raise RolloutProtocolError("request does not parse") from None
    match request.WhichOneof("query"):
        case "recent":
            return _recent_from_pb(request.recent)
        case "since":
            return _since_from_pb(request.since)
        case "whole":
            ids = tuple(BatchId(batch_id) for batch_id in request.whole.batch_ids)
            _check(1 <= len(ids) <= MAX_WHOLE_BATCHES, "number of batch ids")
            _check(all(len(batch_id) == DIGEST_BYTES for batch_id in ids), "batch id")
            return WholeQuery(batch_ids=ids)
        case "chunk":
            return _chunk_query_from_pb(request.chunk)
    raise RolloutProtocolError("request without a known query")


def encode_answer(answer: Answer) -> bytes:
    """Return the bytes of an answer."""
    message = pb.RolloutAnswer()
    match answer:
        case Listing():
            message.listing.SetInParent()
            message.listing.batches.extend(
                pb.BatchRef(
                    batch_id=ref.batch_id,
                    publisher=ref.publisher,
                    sequence=ref.sequence,
                    num_bytes=ref.num_bytes,
                    num_groups=ref.num_groups,
                )
                for ref in answer.batches
            )
        case Envelopes():
            message.envelopes.SetInParent()
            message.envelopes.envelopes.extend(answer.envelopes)
        case Chunk():
            message.chunk.num_bytes = answer.num_bytes
            message.chunk.data = answer.data
        case Refusal():
            message.refusal.reason = _REFUSAL_TO_PB[answer.reason]
            message.refusal.retry_after_ms = answer.retry_after_ms
    return message.SerializeToString()


def decode_answer(raw: bytes) -> Answer:
    """Return the answer in `raw`.

    Raises:
        RolloutProtocolError: not an answer that the contract allows.
    """
    _check(len(raw) <= MAX_ANSWER_BYTES, "answer too long")
    try:
        message = pb.RolloutAnswer.FromString(raw)
    except DecodeError:
        raise RolloutProtocolError("answer does not parse") from None
    match message.WhichOneof("answer"):
        case "listing":
            _check(len(message.listing.batches) <= MAX_LISTED_BATCHES, "number of listed batches")
            return Listing(batches=tuple(_ref_from_pb(ref) for ref in message.listing.batches))
        case "envelopes":
            _check(len(message.envelopes.envelopes) <= MAX_WHOLE_BATCHES, "number of envelopes")
            return Envelopes(envelopes=tuple(message.envelopes.envelopes))
        case "chunk":
            _check(len(message.chunk.data) <= MAX_CHUNK_BYTES, "chunk too long")
            return Chunk(num_bytes=message.chunk.num_bytes, data=message.chunk.data)
        case "refusal":
            # A reason of a later version says "not now" all the same.
            reason = _REFUSAL_FROM_PB.get(message.refusal.reason, RefusalReason.BUSY)
            retry_ms = min(message.refusal.retry_after_ms, MAX_RETRY_MS)
            return Refusal(reason=reason, retry_after_ms=retry_ms)
    raise RolloutProtocolError("answer of no known kind")


def _recent_from_pb(message: pb.RecentQuery) -> RecentQuery:
    shards = tuple(message.shards)
    _check(1 <= len(shards) <= MAX_SHARDS_PER_PEER, "number of shards")
    _check(all(shard < MAX_SHARDS for shard in shards), "shard")
    _check(1 <= message.max_batches <= MAX_LISTED_BATCHES, "max_batches")
    return RecentQuery(
        shards=shards,
        max_batches=message.max_batches,
        # Within what a database's integers hold.
        max_bytes=min(message.max_bytes, MAX_SEQUENCE),
        max_age_seconds=message.max_age_seconds,
    )


def _since_from_pb(message: pb.SinceQuery) -> SinceQuery:
    _check(1 <= len(message.publisher.encode()) <= MAX_NAME_BYTES, "publisher")
    _check(message.after_sequence < MAX_SEQUENCE, "after_sequence")
    _check(1 <= message.max_batches <= MAX_LISTED_BATCHES, "max_batches")
    return SinceQuery(
        publisher=PeerId(message.publisher),
        after_sequence=message.after_sequence,
        max_batches=message.max_batches,
    )


def _chunk_query_from_pb(message: pb.ChunkQuery) -> ChunkQuery:
    _check(len(message.batch_id) == DIGEST_BYTES, "batch id")
    _check(message.offset < MAX_SEQUENCE, "offset")
    _check(1 <= message.length <= MAX_CHUNK_BYTES, "length")
    return ChunkQuery(
        batch_id=BatchId(message.batch_id), offset=message.offset, length=message.length
    )


def _ref_from_pb(message: pb.BatchRef) -> BatchRef:
    _check(len(message.batch_id) == DIGEST_BYTES, "batch id")
    _check(1 <= len(message.publisher.encode()) <= MAX_NAME_BYTES, "publisher")
    _check(0 < message.sequence < MAX_SEQUENCE, "sequence")
    _check(0 < message.num_bytes < MAX_SEQUENCE, "num_bytes")
    _check(0 < message.num_groups <= MAX_GROUPS_PER_BATCH, "num_groups")
    return BatchRef(
        batch_id=BatchId(message.batch_id),
        publisher=PeerId(message.publisher),
        sequence=message.sequence,
        num_bytes=message.num_bytes,
        num_groups=message.num_groups,
    )


def _check(good: bool, what: str) -> None:
    if not good:
        raise RolloutProtocolError(f"bad {what}")
