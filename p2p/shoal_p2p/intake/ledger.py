"""Record of each publisher's batches: duplicates, equivocation, quota. Pure.

Only valid batches are recorded, so an invalid copy can never shadow the real one. The memory of
sequences outlives gossip's own seen-cache, after which a replay would be delivered again.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from shoal_base.bounded import BoundedDict
from shoal_p2p.fair.buckets import Rate, TokenBucket
from shoal_wire.types import BatchId, PeerId
from shoal_wire.verdict import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLimits:
    """Bounds of the ledger."""

    max_publishers: int = 4096
    """The least recently heard publisher is forgotten first."""
    max_sequences: int = 512
    """Sequences remembered for each publisher; older ones count as duplicates."""
    groups_per_second: float = 64.0
    """Sustained groups a publisher may send."""
    burst_groups: float = 1024.0
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
    """Quota of its groups, whoever brought them."""
    said: TokenBucket
    """Quota of groups that it brought itself."""
    sequences: dict[int, BatchId] = field(default_factory=dict)
    lowest: list[int] = field(default_factory=list)
    """The same numbers as a heap: with each batch of one that is known for long the lowest goes."""
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

    def is_equivocated(self, publisher: PeerId, sequence: int) -> bool:
        """Return whether this publisher is known to have signed two batches as `sequence`."""
        entry = self._publishers.get(publisher)
        return entry is not None and sequence in entry.equivocated

    def knows(self, publisher: PeerId, sequence: int) -> bool:
        """Return whether a valid batch of that number was here, or may have been."""
        entry = self._publishers.get(publisher)
        return entry is not None and (
            sequence in entry.sequences or sequence <= entry.forgotten_up_to
        )

    def highest_below(self, publisher: PeerId, sequence: int) -> int | None:
        """Return the highest number known of a publisher below `sequence`, if there is one."""
        entry = self._publishers.get(publisher)
        if entry is None:
            return None
        return max((number for number in entry.sequences if number < sequence), default=None)

    def not_new(self, publisher: PeerId, sequence: int, batch_id: BatchId) -> Reason | None:
        """Return why a batch is not new, None if it is, without recording it."""
        entry = self._publishers.get(publisher)
        if entry is None:
            return None
        if sequence in entry.equivocated:
            return Reason.EQUIVOCATION
        known = entry.sequences.get(sequence)
        if known is not None:
            return Reason.DUPLICATE if known == batch_id else Reason.EQUIVOCATION
        return Reason.DUPLICATE if sequence <= entry.forgotten_up_to else None

    def check(
        self,
        publisher: PeerId,
        sequence: int,
        batch_id: BatchId,
        num_groups: int,
        now: float,
        *,
        reserve_share: float = 0.0,
    ) -> Reason | None:
        """Return why the batch is not new, or over its publisher's quota, without recording it;
        `now` is monotonic seconds.

        `reserve_share` of the publisher's burst must stay, where the batch leaves so much of a
        full one: what is asked for must not use up the quota of what it sends.
        """
        if (reason := self.not_new(publisher, sequence, batch_id)) is not None:
            return reason
        entry = self._publishers.get(publisher)
        burst = self._limits.burst_groups
        left = burst if entry is None else entry.quota.available(now)
        reserve = max(0.0, min(reserve_share * burst, burst - num_groups))
        if num_groups > left - reserve:
            return Reason.OVER_QUOTA
        return None

    def said(self, publisher: PeerId, num_groups: int, now: float) -> bool:
        """Count groups that a publisher has brought here itself.

        Returns whether by these alone it keeps its quota: what others bring of it, in what order
        and how much at once, is not its doing.
        """
        return self._entry(publisher, now).said.try_take(num_groups, now)

    def record(
        self, publisher: PeerId, sequence: int, batch_id: BatchId, num_groups: int, now: float
    ) -> None:
        """Record a valid batch and take its groups off the publisher's quota."""
        self._entry(publisher, now).quota.take(num_groups, now)
        self.remember(publisher, sequence, batch_id, now)

    def remember(self, publisher: PeerId, sequence: int, batch_id: BatchId, now: float) -> None:
        """Record a batch that costs no quota: one from the store, or of a peer's recent ones."""
        entry = self._entry(publisher, now)
        if sequence not in entry.sequences:
            heapq.heappush(entry.lowest, sequence)
        entry.sequences[sequence] = batch_id
        while len(entry.sequences) > self._limits.max_sequences:
            lowest = heapq.heappop(entry.lowest)
            del entry.sequences[lowest]
            entry.equivocated.discard(lowest)
            entry.forgotten_up_to = max(entry.forgotten_up_to, lowest)

    def accuse(
        self, publisher: PeerId, sequence: int, second: BatchId, now: float
    ) -> Equivocation | None:
        """Return a pair that is evidence; None where its number was known to be double."""
        entry = self._entry(publisher, now)
        first = entry.sequences.get(sequence)
        if first is None or first == second or sequence in entry.equivocated:
            return None
        entry.equivocated.add(sequence)
        return Equivocation(publisher=publisher, sequence=sequence, first=first, second=second)

    def condemn(self, publisher: PeerId, sequence: int, batch_id: BatchId, now: float) -> None:
        """Know a double sequence from evidence on disk; `batch_id` is either of the two."""
        self.remember(publisher, sequence, batch_id, now)
        entry = self._entry(publisher, now)
        if sequence in entry.sequences:
            entry.equivocated.add(sequence)

    def _entry(self, publisher: PeerId, now: float) -> _Publisher:
        return self._publishers.use(
            publisher,
            lambda: _Publisher(
                quota=TokenBucket(self._rate, now), said=TokenBucket(self._rate, now)
            ),
        )
