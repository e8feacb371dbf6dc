"""Values that go into and come out of the replay buffer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from shoal_base.bounded import MANY
from shoal_base.ranges import Bytes, Range, Ranged, Seconds
from shoal_wire.types import PublishedGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferLimits(Ranged):
    """Bounds that hold after every operation."""

    max_groups: Annotated[int, Range("groups", 1, 1 << 31)]
    """External groups in total; as many own groups are recorded in addition."""
    max_bytes: Bytes
    max_age_seconds: Seconds
    """Age after which a group is dropped, unless it is leased."""
    max_groups_per_publisher: Annotated[int, Range("groups", 1, 1 << 31)]
    max_bytes_per_publisher: Bytes
    max_consumed_ids: Annotated[int, Range("ids", 1, 1 << 24)] = 16 * MANY
    """Ids remembered as consumed, and as seen; the oldest is dropped first."""
    max_publishers: Annotated[int, Range("publishers", 1, 1 << 20)] = MANY
    """Publishers with counters; the least recently seen is dropped first."""


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
