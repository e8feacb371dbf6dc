"""Decides which missing sequence numbers to request, and charges each request. Pure.

Naming a sequence number costs a peer nothing, but requesting it costs this node and its neighbours.
Each request is therefore charged to the publisher's budget and to that of the connection that
delivered the naming batch. A filled gap refunds its requests. A peer that names numbers which never
existed soon has no budget left, whatever its identities; honest gaps get filled and cost nothing.

A publisher is *proven* if one of its gaps was filled recently. All unproven publishers of a
connection share one budget, so that they cannot exhaust that of its proven publishers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from shoal_base.bounded import BoundedDict
from shoal_base.ranges import Ranged
from shoal_p2p.fair.buckets import KeyedBuckets, Rate, TokenBucket
from shoal_p2p.fetch.gaps import Gap
from shoal_wire.types import PeerId


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaseLimits(Ranged):
    """Rates of unsuccessful tries."""

    per_publisher: Annotated[Rate, "tries"] = Rate(burst=6, per_second=1 / 60)
    per_connection: Annotated[Rate, "tries"] = Rate(burst=24, per_second=0.25)
    """Budget for a connection's unproven publishers, and the same again for its proven ones."""


class RetryBudget:
    """Remaining budgets of publishers and connections; `now` is monotonic seconds."""

    def __init__(self, limits: ChaseLimits | None = None) -> None:
        limits = limits or ChaseLimits()
        self._publishers: KeyedBuckets[PeerId] = KeyedBuckets(limits.per_publisher)
        self._connections: KeyedBuckets[tuple[PeerId | None, bool]] = KeyedBuckets(
            limits.per_connection
        )
        self._proven: BoundedDict[PeerId, None] = BoundedDict()

    def is_proven(self, publisher: PeerId) -> bool:
        """Return whether a gap of this publisher was filled recently."""
        return publisher in self._proven

    def _left(
        self, publisher: PeerId, named_by: PeerId | None, now: float
    ) -> tuple[TokenBucket, TokenBucket]:
        """Return the budgets of a publisher and of the connection that named its gap."""
        by = named_by, self.is_proven(publisher)
        return self._publishers.get(publisher, now), self._connections.get(by, now)

    def has(self, publisher: PeerId, named_by: PeerId | None, now: float) -> bool:
        """Return whether the budgets allow a try for a gap of this publisher."""
        return all(left.available(now) >= 1 for left in self._left(publisher, named_by, now))

    def turn(self, gap: Gap, now: float) -> tuple[bool, float, float]:
        """Return the sort key of due gaps: proven publishers first, then the largest budgets."""
        of, by = self._left(gap.publisher, gap.named_by, now)
        return not gap.proven, -round(by.available(now)), -round(of.available(now))

    def try_charge(self, gap: Gap, now: float) -> bool:
        """Charge one try; False if no budget is left."""
        is_left = self.has(gap.publisher, gap.named_by, now)
        for left in self._left(gap.publisher, gap.named_by, now) if is_left else ():
            left.take(1, now)
        return is_left

    def refund(self, gap: Gap, now: float) -> None:
        """Refund one try that no peer answered."""
        for left in self._left(gap.publisher, gap.named_by, now):
            left.take(-1, now)

    def refund_all(self, gap: Gap, now: float) -> None:
        """Refund all tries of a filled gap."""
        for left in self._left(gap.publisher, gap.named_by, now):
            left.take(-gap.tries, now)
        self._proven.put(gap.publisher, None)
