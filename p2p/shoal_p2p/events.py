"""The events of a node, and the sink that passes them on. Pure.

    intake ──── BatchAccepted ────────────────────────────────┐
    pool ────── BatchReceived, GroupsStored, BatchStored,     │
                BatchWithdrawn, GroupLeased, GroupVerified,   ├─▶ EventSink ─▶ counters, then
                RoundTrained                                  │                each handler
    shards ──── ShardsChanged                                 │
    reputation  PeerDropped, PeerRefused ─────────────────────┘

An event says what happened, as a value. What a part knows of another part's work is a fold of
events: shard traffic, gaps, the batches to serve, recent rollouts, training statistics, the archive
and all counters. A handler that must run, or may refuse, is no handler of events: it is called.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, get_args

from shoal_ipc.messages import GroupOutcome
from shoal_wire.topic_keys import COMMON_KEY
from shoal_wire.types import BatchId, GroupId, PeerId, PublishedGroup, SignedBatch

log = logging.getLogger(__name__)


class Source(StrEnum):
    """The way a batch was received."""

    GOSSIP = "gossip"
    BACKFILL = "backfill"
    """Fetched from a peer's list of recent batches."""
    GAP = "gap"
    """Fetched to fill a gap in a publisher's sequence."""
    PULL = "pull"
    """Fetched after an announcement, because it is too large for gossip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAccepted:
    """A valid batch was queued for the pool. Its message is forwarded after this."""

    publisher: PeerId
    sequence: int
    previous_sequence: int
    num_groups: int
    source: Source
    key: int = COMMON_KEY
    """Topic key of its families."""
    delivered_by: PeerId | None = None
    """The peer that forwarded or served it, if known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReceived:
    """A batch of another node has reached the pool; its groups are offered to the buffer next."""

    publisher: PeerId
    num_groups: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsStored:
    """Groups with new content are in the buffer; they may not be on disk yet."""

    groups: tuple[PublishedGroup, ...]
    at_ms: int
    """Wall clock, milliseconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStored:
    """A batch is on disk and can be served."""

    signed: SignedBatch
    received_ms: int
    """Wall clock of its first arrival, possibly in an earlier process."""
    own: bool
    restored: bool = False
    """True if an earlier process has stored it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWithdrawn:
    """A batch is no longer valid: its publisher signed another under the same number."""

    batch_id: BatchId


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLeased:
    """The trainer has sampled an external group."""

    group_id: GroupId
    publisher: PeerId
    network: str
    """The publisher's network; empty if this node was never connected to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupVerified:
    """The trainer has scored a group, an external or an own one."""

    group_id: GroupId
    rewards: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTrained:
    """A round has ended. A round that is repeated after a kill replaces its earlier record."""

    round: int
    outcomes: Sequence[GroupOutcome]
    """One for each of its groups: trained on, or why not."""
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardsChanged:
    """The node subscribes to these shards from now on; also sent once at the start."""

    shards: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerDropped:
    """This node is about to disconnect a peer, to free its slot."""

    peer_id: PeerId


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRefused:
    """A newcomer was refused: all slots, or all slots of its network, are taken."""

    network: str
    """Empty if all slots are taken."""


Event = (
    BatchAccepted
    | BatchReceived
    | GroupsStored
    | BatchStored
    | BatchWithdrawn
    | GroupLeased
    | GroupVerified
    | RoundTrained
    | ShardsChanged
    | PeerDropped
    | PeerRefused
)


class EventHandler(Protocol):
    """Is notified of a node's events."""

    def on_event(self, event: Event) -> None:
        """Handle an event of a type that it was added for. Must not block. Errors are only
        logged."""


@dataclass(slots=True)
class NodeCounters:
    """Counts of events since the start of the process."""

    groups_received: int = 0
    """Valid groups of other nodes."""
    groups_published: int = 0
    """Own groups on disk for publishing."""
    batches: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(Source, 0)))
    """Valid batches by `Source`."""
    groups: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(Source, 0)))
    """Their groups."""
    peers_dropped: int = 0
    """Peers disconnected to free a slot."""
    peers_refused: int = 0
    """Newcomers refused because no slot was free."""

    def on_event(self, event: Event) -> None:
        """Count it."""
        match event:
            case BatchAccepted():
                self.batches[event.source] += 1
                self.groups[event.source] += event.num_groups
            case BatchReceived():
                self.groups_received += event.num_groups
            case BatchStored(own=True, restored=False):
                self.groups_published += len(event.signed.batch.groups)
            case PeerDropped():
                self.peers_dropped += 1
            case PeerRefused():
                self.peers_refused += 1


class EventSink:
    """Passes each event to its handlers, in the order in which they were added."""

    def __init__(self, *handlers: EventHandler) -> None:
        """Pass every event to `handlers`."""
        self.counters = NodeCounters()
        self._handlers: list[tuple[EventHandler, tuple[type[Event], ...]]] = []
        self._of_type: dict[type[Event], list[EventHandler]] = {}
        for handler in (self.counters, *handlers):
            self.add(handler, *get_args(Event))

    def add(self, handler: EventHandler, *types: type[Event]) -> None:
        """Add a handler of events of these types, after those that are there."""
        self._handlers.append((handler, types))
        self._of_type = {
            one: [handler for handler, types in self._handlers if one in types]
            for one in get_args(Event)
        }

    def emit(self, event: Event) -> None:
        """Pass on an event. An error in one handler does not affect the others."""
        for handler in self._of_type[type(event)]:
            try:
                handler.on_event(event)
            except Exception:
                log.exception("%s failed on %s", type(handler).__name__, type(event).__name__)
