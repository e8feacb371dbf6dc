"""What `tests/vectors/wire_rollouts.json` holds, computed from this implementation.

Write it with ``python -m tests.wire.rollout_golden``: a vector is added, never altered.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shoal_wire.announcement import Announcement, encode_announcement
from shoal_wire.codec import encode_batch
from shoal_wire.digests import batch_id
from shoal_wire.envelope import peer_id_of, seal
from shoal_wire.framing import encode_frame
from shoal_wire.limits import ANNOUNCEMENT_PAYLOAD_TYPE, MAX_COMPLETIONS_PER_BATCH
from shoal_wire.rollout_codec import encode_answer, encode_query
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
from shoal_wire.types import BatchId
from tests.wire import wire_samples as sample

Json = dict[str, Any]
PATH = Path(__file__).parent.parent / "vectors" / "wire_rollouts.json"

ENVELOPE = b"the exact bytes of some envelope"
NAME = batch_id(ENVELOPE)
PUBLISHER = peer_id_of(sample.PUBLIC_1)

QUERIES: dict[str, Query] = {
    "recent": RecentQuery(shards=(0, 300), max_batches=512, max_bytes=2**40, max_age_seconds=3600),
    "earlier": RecentQuery(
        shards=(0,), max_batches=1, max_bytes=1, max_age_seconds=60, before=NAME
    ),
    "since": SinceQuery(publisher=PUBLISHER, after_sequence=2**53 + 1, max_batches=1),
    "since of a family": SinceQuery(
        publisher=PUBLISHER, after_sequence=0, max_batches=8, shards=(2**60 - 4096,)
    ),
    "whole": WholeQuery(batch_ids=(NAME, BatchId(bytes(32)))),
    "chunk": ChunkQuery(batch_id=NAME, offset=2**20, length=2**20),
    "first chunk": ChunkQuery(batch_id=NAME, offset=0, length=1),
}
ANSWERS: dict[str, Answer] = {
    "listing": Listing(
        batches=(
            BatchRef(
                batch_id=NAME,
                publisher=PUBLISHER,
                sequence=2**53 + 2,
                num_bytes=len(ENVELOPE),
                num_groups=8,
            ),
        )
    ),
    "empty listing": Listing(batches=()),
    "envelopes": Envelopes(envelopes=(ENVELOPE,)),
    "no envelopes": Envelopes(envelopes=()),
    "chunk": Chunk(num_bytes=len(ENVELOPE), data=ENVELOPE[4:9]),
    "busy": Refusal(reason=BatchRefusalReason.BUSY, retry_after_ms=1500),
    "not held": Refusal(reason=BatchRefusalReason.NOT_HELD),
    "pending": Refusal(reason=BatchRefusalReason.PENDING),
}


def announcement() -> Announcement:
    """Return the announcement of the vectors."""
    return Announcement(
        swarm_digest=sample.swarm().digest,
        sequence=2**53 + 2,
        previous_sequence=2**53 + 1,
        created_ms=sample.NOW_MS,
        num_groups=8,
        batch_id=NAME,
        num_bytes=300_000,
        expires_ms=sample.NOW_MS + 3_600_000,
    )


def sealed_announcement() -> bytes:
    """Return its envelope."""
    public_key, key = sample.keypair()
    return seal(
        encode_announcement(announcement()),
        public_key=public_key,
        sign=key.sign,
        payload_type=ANNOUNCEMENT_PAYLOAD_TYPE,
    )


def payloads() -> list[Json]:
    """Return a batch with as many completions as it may have, and one with more."""
    full = sample.recorded_group(completions=(sample.completion(),) * 64)
    count = MAX_COMPLETIONS_PER_BATCH // 64
    return [
        {
            "name": name,
            "reason": reason,
            "payload": encode_batch(sample.recorded_batch(groups=groups)).hex(),
        }
        for name, reason, groups in (
            ("as many completions as may be", "valid", (full,) * count),
            (
                "one group more",
                "too_many_completions",
                (full,) * count + (sample.recorded_group(),),
            ),
        )
    ]


def vectors() -> Json:
    """Return the whole file."""
    made = announcement()
    return {
        "announcement": {
            "private_key_seed": sample.SEED_1.hex(),
            "peer_id": PUBLISHER,
            "payload": encode_announcement(made).hex(),
            "envelope": sealed_announcement().hex(),
            "fields": {
                "swarm_digest": made.swarm_digest.hex(),
                "sequence": str(made.sequence),
                "previous_sequence": str(made.previous_sequence),
                "created_ms": str(made.created_ms),
                "num_groups": made.num_groups,
                "batch_id": made.batch_id.hex(),
                "num_bytes": str(made.num_bytes),
                "expires_ms": str(made.expires_ms),
            },
        },
        "payloads": payloads(),
        "requests": [
            {"name": name, "frame": encode_frame(encode_query(query)).hex()}
            for name, query in QUERIES.items()
        ],
        "answers": [
            {"name": name, "frame": encode_frame(encode_answer(answer)).hex()}
            for name, answer in ANSWERS.items()
        ],
    }


if __name__ == "__main__":
    PATH.write_text(json.dumps(vectors(), indent=1) + "\n", encoding="utf-8")
