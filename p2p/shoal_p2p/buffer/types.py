"""Values that go into and come out of the replay buffer."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum

from shoal_base.bounded import MANY
from shoal_wire.types import PublishedGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferLimits:
    """Bounds that hold after every operation. Ages are seconds, sizes bytes; all are positive."""

    max_groups: int
    """External groups in total; as many own groups are recorded in addition."""
    max_bytes: int
    max_age_seconds: float
    """Age after which a group is dropped, unless it is leased."""
    max_groups_per_publisher: int
    max_bytes_per_publisher: int
    max_consumed_ids: int = 16 * MANY
    """Ids remembered as consumed, and as seen; the oldest is dropped first."""
    max_publishers: int = MANY
    """Publishers with counters; the least recently seen is dropped first."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise ValueError(f"buffer limit {field.name} must be positive")


class InsertOutcome(StrEnum):
    """The result of offering a group."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    """Its content is or was in the buffer, or is leased to a trainer."""
    CONSUMED_BEFORE = "consumed_before"
    OVER_QUOTA = "over_quota"
    """No space, and no unleased group that its publisher may displace."""
    TOO_LARGE = "too_large"
    TOO_OLD = "too_old"


class DropCause(StrEnum):
    """Why a group left the buffer unused. Counted with the refusals of `InsertOutcome`."""

    EXPIRED = "expired"
    EVICTED_BY_QUOTA = "evicted_by_quota"
    """Displaced by a newer group of its own publisher, which was at its quota."""
    EVICTED_BY_CAPACITY = "evicted_by_capacity"
    DISCARDED = "discarded"
    """Withdrawn by the node, e.g. after an equivocation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferEntry:
    """A group as it is offered to the buffer."""

    group: PublishedGroup
    num_bytes: int
    """Cost of the group: its share of the envelope, or its serialised size, in bytes."""
    received_at: float
    """Seconds, on the clock of every `now` passed to the buffer."""
    network: str = ""
    """Network of its publisher, from the host; empty if never connected."""
    connection: str = ""
    """The peer that delivered it; empty if unknown."""
    by_publisher: bool = False
    """True if its publisher delivered it itself; forwarded groups do not displace it."""
