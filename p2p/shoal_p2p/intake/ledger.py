"""Record of each publisher's batches: duplicates, equivocation, quota. Pure.

Only valid batches are recorded, so an invalid copy can never shadow the real one. Sequence numbers
are remembered longer than gossip's seen-cache, after which a replay would be delivered again.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Annotated

from shoal_base.bounded import BoundedDict
from shoal_base.ranges import Range, Ranged
from shoal_p2p.events import Source
from shoal_p2p.fair.buckets import Rate, TokenBucket
from shoal_wire.types import BatchId, PeerId
from shoal_wire.verdict import Reason

RESERVE_SHARE = 0.25
"""Share of a publisher's burst of groups that gap repair leaves for its gossip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLimits(Ranged):
    """Bounds of the ledger."""

    max_publishers: Annotated[int, Range("publishers", 1, 1 << 20)] = 4096
    """Publishers remembered; the least recently seen one is dropped first."""
    max_sequences: Annotated[int, Range("numbers", 1, 1 << 20)] = 512
    """Sequences remembered for each publisher; older ones count as duplicates."""
    groups_per_second: Annotated[float, Range("groups/s", 0, 1e9, is_open=True)] = 64.0
    """Sustained groups a publisher may send."""
    burst_groups: Annotated[float, Range("groups", 0, 1e9, is_open=True)] = 1024.0
    """Groups a publisher may send at once, e.g. after a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivocation:
    """Two valid batches of one signer under one sequence number."""

    publisher: PeerId
    sequence: int
    first: BatchId
    second: BatchId


@dataclass(slots=True)
class _Publisher:
    quota: TokenBucket
    """Quota of its groups, however they were delivered."""
    direct: TokenBucket
    """Quota of groups that it delivered itself."""
    sequences: dict[int, BatchId] = field(default_factory=dict)
    lowest: list[int] = field(default_factory=list)
    """The same numbers as a heap, to drop the lowest when there are too many."""
    forgotten_up_to: int = 0
    equivocated: set[int] = field(default_factory=set)


class PublisherLedger:
    """Remembers sequences by publisher within fixed bounds."""

    def __init__(self, limits: LedgerLimits | None = None) -> None:
        self._limits = limits or LedgerLimits()
        self._rate = Rate(
            burst=self._limits.burst_groups, per_second=self._limits.groups_per_second
        )
        self._publishers = BoundedDict[PeerId, _Publisher](self._limits.max_publishers)
        self.num_records = 0
        """Records so far: what was checked at the same number is still true."""

    def is_equivocated(self, publisher: PeerId, sequence: int) -> bool:
        """Return whether this publisher is known to have signed two batches as `sequence`."""
        entry = self._publishers.get(publisher)
        return entry is not None and sequence in entry.equivocated

    def knows(self, publisher: PeerId, sequence: int) -> bool:
        """Return whether a valid batch with that number was received, or may have been."""
        entry = self._publishers.get(publisher)
        return entry is not None and (
            sequence in entry.sequences or sequence <= entry.forgotten_up_to
        )

    def highest_below(self, publisher: PeerId, sequence: int) -> int | None:
        """Return a publisher's highest known number below `sequence`, or None."""
        entry = self._publishers.get(publisher)
        if entry is None:
            return None
        return max((number for number in entry.sequences if number < sequence), default=None)

    def check(
        self,
        publisher: PeerId,
        sequence: int,
        batch_id: BatchId,
        num_groups: int,
        now: float,
        *,
        source: Source = Source.GOSSIP,
    ) -> Reason | None:
        """Return why the batch is not new or exceeds its publisher's quota. Records nothing.

        Recent batches have no quota: the publisher used its quota while this node was offline, and
        `Backfill` limits its requests by the free space in the buffer. A batch that fills a gap
        leaves `RESERVE_SHARE`, if a full bucket would leave that much. `now` is monotonic seconds.
        """
        entry = self._publishers.get(publisher)
        if entry is not None:
            if sequence in entry.equivocated:
                return Reason.EQUIVOCATION
            known = entry.sequences.get(sequence)
            if known is not None:
                return Reason.DUPLICATE if known == batch_id else Reason.EQUIVOCATION
            if sequence <= entry.forgotten_up_to:
                return Reason.DUPLICATE
        if source is Source.BACKFILL:
            return None
        burst = self._limits.burst_groups
        left = burst if entry is None else entry.quota.available(now)
        if source is Source.GAP:
            left -= max(0.0, min(RESERVE_SHARE * burst, burst - num_groups))
        return Reason.OVER_QUOTA if num_groups > left else None

    def charge_direct(self, publisher: PeerId, num_groups: int, now: float) -> bool:
        """Count groups that a publisher delivered itself.

        Return whether the groups that it delivered itself are within quota. Forwarded groups do not
        count, since the publisher does not control their order or rate.
        """
        return self._entry(publisher, now).direct.try_take(num_groups, now)

    def record(
        self, publisher: PeerId, sequence: int, batch_id: BatchId, num_groups: int, now: float
    ) -> None:
        """Record a valid batch and charge its groups to the publisher's quota."""
        self.remember(publisher, sequence, batch_id, now)
        self._publishers[publisher].quota.take(num_groups, now)

    def remember(self, publisher: PeerId, sequence: int, batch_id: BatchId, now: float) -> None:
        """Record a batch without charging quota: from disk, or from a peer's recent batches."""
        entry = self._entry(publisher, now)
        self.num_records += 1
        if sequence not in entry.sequences:
            heapq.heappush(entry.lowest, sequence)
        entry.sequences[sequence] = batch_id
        while len(entry.sequences) > self._limits.max_sequences:
            lowest = heapq.heappop(entry.lowest)
            del entry.sequences[lowest]
            entry.equivocated.discard(lowest)
            entry.forgotten_up_to = max(entry.forgotten_up_to, lowest)

    def record_equivocation(
        self, publisher: PeerId, sequence: int, second: BatchId, now: float
    ) -> Equivocation | None:
        """Record two batches under one number; return the pair, None if it was known already."""
        entry = self._entry(publisher, now)
        self.num_records += 1
        first = entry.sequences.get(sequence)
        if first is None or first == second or sequence in entry.equivocated:
            return None
        entry.equivocated.add(sequence)
        return Equivocation(publisher=publisher, sequence=sequence, first=first, second=second)

    def mark_equivocated(
        self, publisher: PeerId, sequence: int, batch_id: BatchId, now: float
    ) -> None:
        """Restore an equivocation from stored evidence; `batch_id` is either of the two."""
        self.remember(publisher, sequence, batch_id, now)
        entry = self._entry(publisher, now)
        if sequence in entry.sequences:
            entry.equivocated.add(sequence)

    def _entry(self, publisher: PeerId, now: float) -> _Publisher:
        return self._publishers.use(
            publisher,
            lambda: _Publisher(
                quota=TokenBucket(self._rate, now), direct=TokenBucket(self._rate, now)
            ),
        )
