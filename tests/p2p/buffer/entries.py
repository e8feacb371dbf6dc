"""Entries and limits for tests of the replay buffer."""

from __future__ import annotations

import hashlib

from shoal_p2p.buffer.pool import WeightOf
from shoal_p2p.buffer.types import BufferEntry, BufferLimits
from shoal_wire.types import BatchId, GroupId, PeerId, PublishedGroup
from tests.support import factories as make

OWN_PEER = PeerId("me")
_GROUP = make.group()


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
            policy=make.POLICY,
            sampling=make.SAMPLING,
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
