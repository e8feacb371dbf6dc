"""Missing sequence numbers of publishers: detected, awaited, requested, filled or abandoned. Pure.

Every batch names its publisher's previous number on topics of its key. A node that does not know
that number, but a lower one of the same publisher, has missed a batch; the mesh repairs nothing.
Batches before the first one received from a publisher are no gaps; the recent ones are backfilled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from shoal_base.bounded import REMEMBERED, BoundedDict
from shoal_base.ranges import Range, Ranged, Seconds, SecondsOrZero
from shoal_wire.topic_keys import COMMON_KEY
from shoal_wire.types import PeerId


@dataclass(frozen=True, slots=True, kw_only=True)
class GapLimits(Ranged):
    """Bounds on the gaps that are remembered, and the times at which one is requested."""

    grace_seconds: SecondsOrZero = 1.5
    """Messages may arrive out of order, and a large batch is pulled while the next is gossiped."""
    retry_seconds: Seconds = 2.0
    """Pause before the second try, in seconds; doubles with each."""
    max_tries: Annotated[int, Range("tries", 1, 100)] = 5
    max_per_publisher: Annotated[int, Range("gaps", 1, 10_000)] = 32
    max_publishers: Annotated[int, Range("publishers", 1, 1 << 20)] = REMEMBERED


@dataclass(slots=True, kw_only=True, eq=False)
class Gap:
    """One missing number."""

    publisher: PeerId
    sequence: int
    after: int
    """The publisher's highest known number below it: the request begins there."""
    key: int = COMMON_KEY
    """Topic key of the batch which names it, and of the missing one."""
    named_by: PeerId | None = None
    """The connection that delivered the batch which names it."""
    proven: bool = False
    """True if a gap of its publisher was filled recently."""
    due: float
    tries: int = 0


class GapTracker:
    """Gaps by publisher and number; `now` is monotonic seconds."""

    def __init__(self, limits: GapLimits | None = None) -> None:
        self._limits = limits or GapLimits()
        self._gaps = BoundedDict[PeerId, BoundedDict[int, Gap]](self._limits.max_publishers)

    def __len__(self) -> int:
        return sum(map(len, self._gaps.values()))

    def open(
        self,
        publisher: PeerId,
        sequence: int,
        *,
        after: int,
        now: float,
        key: int = COMMON_KEY,
        named_by: PeerId | None = None,
        proven: bool = False,
    ) -> list[Gap]:
        """Record that a number is missing; return gaps dropped to stay within the limits.

        If there are too many publishers, gaps of unproven ones are dropped first.
        """
        gaps = self._gaps.get(publisher)
        dropped = [] if gaps is not None else self._make_room()
        if gaps is None:
            gaps = BoundedDict(self._limits.max_per_publisher)
        self._gaps.put(publisher, gaps)
        if sequence not in gaps:
            gap = Gap(
                publisher=publisher,
                sequence=sequence,
                after=after,
                due=now + self._limits.grace_seconds,
                key=key,
                named_by=named_by,
                proven=proven,
            )
            oldest = gaps.put(sequence, gap)
            dropped += [] if oldest is None else [oldest[1]]
        return dropped

    def _make_room(self) -> list[Gap]:
        if len(self._gaps) < self._limits.max_publishers:
            return []
        unproven = (peer for peer, gaps in self._gaps.items() if not _any_proven(gaps))
        return list(self._gaps.pop(next(unproven, next(iter(self._gaps)))).values())

    def close(self, publisher: PeerId, sequence: int) -> Gap | None:
        """Remove and return a gap whose number arrived or is abandoned; None if there is none.

        With `tries` 0, the number arrived without a request.
        """
        gaps = self._gaps.get(publisher)
        if gaps is None:
            return None
        gap = gaps.pop(sequence, None)
        if not gaps:
            del self._gaps[publisher]
        return gap

    def due(self, now: float) -> list[Gap]:
        """Return the gaps to request now, at most one per publisher."""
        found = []
        for gaps in self._gaps.values():
            ready = [gap for gap in gaps.values() if gap.due <= now]
            if ready:
                found.append(min(ready, key=lambda gap: gap.sequence))
        return found

    def next_due(self) -> float | None:
        """Return when the next gap is due; None if there is none."""
        return min((gap.due for gaps in self._gaps.values() for gap in gaps.values()), default=None)

    def start_try(self, gap: Gap, now: float) -> None:
        """Record a try: the gap is due again later, unless it is filled."""
        gap.tries += 1
        gap.due = now + self._limits.retry_seconds * 2.0 ** (gap.tries - 1)

    def postpone(self, gap: Gap, now: float) -> None:
        """Postpone a gap because no peer can be asked now; this is not counted as a try."""
        gap.due = now + self._limits.retry_seconds

    def is_open(self, gap: Gap) -> bool:
        """Return whether a gap is still open."""
        gaps = self._gaps.get(gap.publisher)
        return gaps is not None and gaps.get(gap.sequence) is gap

    def end_try(self, gap: Gap, *, at_once: bool = False) -> bool:
        """Record the end of a try; return True if the gap is abandoned.

        An open gap is abandoned after the last try, or `at_once`.
        """
        if not self.is_open(gap) or (gap.tries < self._limits.max_tries and not at_once):
            return False
        self.close(gap.publisher, gap.sequence)
        return True


def _any_proven(gaps: BoundedDict[int, Gap]) -> bool:
    return any(gap.proven for gap in gaps.values())
