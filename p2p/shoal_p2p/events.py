"""Events of a node's pool of rollouts, for those who keep something of them. Pure.

pool ─ event ─▶ each keeper: latest rollouts, exchange (its shelf), archive
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from shoal_wire.types import BatchId, PublishedGroup, SignedBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class NewGroups:
    """Groups are here whose content was not; they may not be on disk yet."""

    groups: tuple[PublishedGroup, ...]
    at_ms: int
    """Wall clock, milliseconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchKept:
    """A batch is on disk: it can be given to others."""

    signed: SignedBatch
    received_ms: int
    """Wall clock when it came here first, which may have been in an earlier run."""
    own: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWithdrawn:
    """A batch is no longer valid: its publisher signed another under the same number."""

    batch_id: BatchId


Event = NewGroups | BatchKept | BatchWithdrawn


class EventHandler(Protocol):
    """Keeps something of what the pool takes in."""

    def on_event(self, event: Event) -> None:
        """Take an event or leave it; must not wait. What this raises is logged, no more."""
