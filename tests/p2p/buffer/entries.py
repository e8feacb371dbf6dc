"""Entries and limits for tests of the replay buffer."""

from __future__ import annotations

import hashlib

from shoal_p2p.buffer.pool import WeightOf
from shoal_p2p.buffer.types import BufferEntry, BufferLimits
from shoal_wire.types import (
    BatchId,
    Completion,
    Digest,
    FinishReason,
    GroupId,
    PeerId,
    PolicyInfo,
    PublishedGroup,
    RolloutGroup,
    SamplingParams,
    Task,
)

OWN_PEER = PeerId("me")

_GROUP = RolloutGroup(
    task=Task(
        family="basic_arithmetic",
        config_digest=Digest(bytes(16)),
        seed=1,
        index=2,
        verifier="reasoning_gym",
        verifier_version="0.1.25",
        question_digest=Digest(bytes(16)),
    ),
    completions=(
        Completion(text="4", num_tokens=2, finish_reason=FinishReason.STOP),
        Completion(text="5", num_tokens=2, finish_reason=FinishReason.STOP),
    ),
)
_POLICY = PolicyInfo(model_name="tiny", tokenizer_digest=Digest(b""), policy_version=0)
_SAMPLING = SamplingParams(temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=8)


def group_id(number: int) -> GroupId:
    """Return the id of group `number`."""
    return GroupId(hashlib.sha256(b"%d" % number).digest()[:16])


def entry(
    number: int,
    publisher: str = "p",
    *,
    num_bytes: int = 10,
    received_at: float = 0.0,
) -> BufferEntry:
    """Return group `number` as `publisher` sent it."""
    return BufferEntry(
        group=PublishedGroup(
            group_id=group_id(number),
            publisher=PeerId(publisher),
            batch_id=BatchId(bytes(32)),
            round=0,
            created_ms=0,
            policy=_POLICY,
            sampling=_SAMPLING,
            group=_GROUP,
        ),
        num_bytes=num_bytes,
        received_at=received_at,
    )


def limits(**changes: float) -> BufferLimits:
    """Return roomy limits with `changes`."""
    values: dict[str, float] = {
        "max_groups": 1000,
        "max_bytes": 1_000_000,
        "max_age_seconds": 1000.0,
        "max_groups_per_publisher": 1000,
        "max_bytes_per_publisher": 1_000_000,
    }
    return BufferLimits(**{**values, **changes})  # type: ignore[arg-type]


def ids_of(entries: list[BufferEntry]) -> list[GroupId]:
    """Return the entries' group ids in order."""
    return [item.group.group_id for item in entries]


def only(**weights: float) -> WeightOf:
    """Return the weight of publishers by name, 1 where it is not named."""
    return lambda publisher, _source: weights.get(publisher, 1.0)
