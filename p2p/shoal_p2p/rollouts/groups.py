"""The groups of a batch, each with its provenance. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from shoal_wire import digests
from shoal_wire.types import PublishedGroup, RolloutGroup, SignedBatch


def published_groups(
    signed: SignedBatch, groups: Sequence[RolloutGroup] | None = None
) -> tuple[PublishedGroup, ...]:
    """Return the groups of a batch, or some `groups` of it, each with its provenance."""
    batch = signed.batch
    return tuple(
        PublishedGroup(
            group_id=digests.group_id(group),
            publisher=signed.publisher,
            batch_id=signed.batch_id,
            round=batch.round,
            created_ms=batch.created_ms,
            policy=batch.policy,
            sampling=batch.sampling,
            group=group,
        )
        for group in (batch.groups if groups is None else groups)
    )
