"""Events of a node's rollout pool, and their handlers. Pure.

pool ─ event ─▶ each handler: recent rollouts, exchange (batch index), archive
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from shoal_wire.types import BatchId, PublishedGroup, SignedBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class NewGroups:
    """Groups with new content were received; they may not be on disk yet."""

    groups: tuple[PublishedGroup, ...]
    at_ms: int
    """Wall clock, milliseconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchKept:
    """A batch is on disk and can be served."""

    signed: SignedBatch
    received_ms: int
    """Wall clock of its first arrival, possibly in an earlier process."""
    own: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWithdrawn:
    """A batch is no longer valid: its publisher signed another under the same number."""

    batch_id: BatchId


Event = NewGroups | BatchKept | BatchWithdrawn


class EventHandler(Protocol):
    """Is notified of the pool's events."""

    def on_event(self, event: Event) -> None:
        """Handle an event. Must not block. Errors are only logged."""
