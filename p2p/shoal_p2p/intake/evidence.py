"""Checks that stored evidence shows two batches signed under one number. Pure.

A batch and a copy of it in other bytes, which anyone can write without the key, show nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal_wire.announcement import decode_announcement
from shoal_wire.codec import PayloadError, decode_batch
from shoal_wire.digests import batch_id
from shoal_wire.envelope import EnvelopeError, open_envelope
from shoal_wire.limits import ANNOUNCEMENT_PAYLOAD_TYPE, BATCH_PAYLOAD_TYPE, MAX_BATCH_BYTES
from shoal_wire.types import BatchId, Digest, PeerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A publisher's signed statement: this batch is its number N in a swarm."""

    signer: PeerId
    swarm_digest: Digest
    sequence: int
    batch_id: BatchId


def parse_statement(envelope: bytes) -> Statement | None:
    """Return the statement in the envelope of a batch or an announcement; None if there is none."""
    try:
        opened = open_envelope(
            envelope, payload_types=(BATCH_PAYLOAD_TYPE, ANNOUNCEMENT_PAYLOAD_TYPE)
        )
        if opened.payload_type == ANNOUNCEMENT_PAYLOAD_TYPE:
            announced = decode_announcement(opened.payload)
            swarm, sequence, name = announced.swarm_digest, announced.sequence, announced.batch_id
        else:
            batch = decode_batch(opened.payload, max_bytes=MAX_BATCH_BYTES)
            swarm, sequence, name = batch.swarm_digest, batch.sequence, batch_id(envelope)
    except (EnvelopeError, PayloadError):
        return None
    return Statement(signer=opened.signer, swarm_digest=swarm, sequence=sequence, batch_id=name)


def proves_equivocation(
    publisher: PeerId,
    sequence: int,
    *,
    first: bytes | None,
    first_id: BatchId,
    second: bytes,
) -> bool:
    """Return whether `publisher` signed two batches as `sequence`.

    `first` and `second` are envelopes. If the first is no longer on disk, its id is enough: this
    node stored it after it had opened both.
    """
    later = parse_statement(second)
    if later is None or (later.signer, later.sequence) != (publisher, sequence):
        return False
    if first is None:
        return first_id != later.batch_id
    earlier = parse_statement(first)
    return (
        earlier is not None
        and (earlier.signer, earlier.sequence) == (publisher, sequence)
        and earlier.swarm_digest == later.swarm_digest
        and earlier.batch_id != later.batch_id
    )
