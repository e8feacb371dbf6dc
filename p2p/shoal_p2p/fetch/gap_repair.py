"""Requests batches that the mesh dropped: sequence numbers that later batches name as predecessors
and that never arrived (see `gaps`)."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import TYPE_CHECKING

import trio

from shoal_base.bounded import FEW
from shoal_base.waits import POLL_S
from shoal_p2p.events import BatchAccepted, Event, ShardsChanged, Source
from shoal_p2p.fetch.batches import BatchFetch
from shoal_p2p.fetch.client import NoAnswerError
from shoal_p2p.fetch.context import FetchContext
from shoal_p2p.fetch.gaps import Gap, GapLimits, GapTracker
from shoal_p2p.fetch.retry_budget import ChaseLimits, RetryBudget
from shoal_p2p.fetch.stats import FetchStats
from shoal_p2p.intake.ledger import PublisherLedger
from shoal_wire.rollout_messages import Listing, SinceQuery
from shoal_wire.types import PeerId
from shoal_wire.verdict import Reason

if TYPE_CHECKING:
    from trio_typing import TaskStatus

_MAX_ASKED = 3
"""Peers asked in one try, including the publisher; one less for an unproven publisher."""
_MAX_AT_ONCE = 4
_MAX_UNPROVEN_AT_ONCE = _MAX_AT_ONCE // 2
_JITTER_SECONDS = 0.5


class GapDetector:
    """Detects missing sequence numbers from accepted batches."""

    def __init__(
        self,
        *,
        ledger: PublisherLedger,
        stats: FetchStats,
        rng: random.Random,
        limits: GapLimits | None = None,
        chase: ChaseLimits | None = None,
    ) -> None:
        self._ledger = ledger
        self._stats = stats
        self._rng = rng
        self.gaps = GapTracker(limits)
        self.rights = RetryBudget(chase)
        self.shards: frozenset[int] | None = None
        """The subscribed shards, once known."""
        self._opened = trio.Event()

    def on_event(self, event: Event) -> None:
        """Handle a valid batch: it may fill a gap, or reveal one."""
        if isinstance(event, ShardsChanged):
            self.shards = event.shards
        if not isinstance(event, BatchAccepted):
            return
        if (gap := self.gaps.close(event.publisher, event.sequence)) is not None and gap.tries:
            self._stats.gaps_filled += 1
            self.rights.refund_all(gap, trio.current_time())
        previous = event.previous_sequence
        if not previous or self._ledger.knows(event.publisher, previous):
            return
        after = self._ledger.highest_below(event.publisher, previous)
        if after is None:
            return  # the first batch received of it
        if not self.rights.has(event.publisher, event.delivered_by, trio.current_time()):
            self._stats.gaps_abandoned += 1
            return
        # Jitter, as otherwise all nodes that missed it request it at the same moment.
        now = trio.current_time() + self._rng.uniform(0, _JITTER_SECONDS)
        dropped = self.gaps.open(
            event.publisher,
            previous,
            after=after,
            now=now,
            key=event.key,
            named_by=event.delivered_by,
            proven=self.rights.is_proven(event.publisher),
        )
        self._stats.gaps_abandoned += sum(gap.tries > 0 for gap in dropped)
        self._opened.set()

    def undo_try(self, gap: Gap) -> None:
        """Undo the latest try, which no peer answered: it is not charged."""
        if self.gaps.is_open(gap):
            self.rights.refund(gap, trio.current_time())
            gap.tries = max(1, gap.tries - 1)

    async def until_due(self) -> None:
        """Wait until a gap is opened, or an open one is due."""
        next_due = self.gaps.next_due()
        with trio.move_on_at(math.inf if next_due is None else next_due):
            await self._opened.wait()
        self._opened = trio.Event()


class GapRepair:
    """Requests missing batches. Start with ``await nursery.start(repair.run)``."""

    def __init__(
        self,
        *,
        means: FetchContext,
        fetch: BatchFetch,
        watch: GapDetector,
    ) -> None:
        self._host, self._asker, self._ledger = means.host, means.asker, means.ledger
        self._stats, self._rng, self._manifest = means.stats, means.rng, means.manifest
        self._fetch = fetch
        self._watch = watch
        self._running: Counter[bool] = Counter()
        """Running tries, for proven and for unproven publishers."""
        self._freed = trio.Event()

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Request missing batches until cancelled."""
        async with trio.open_nursery() as nursery:
            task_status.started()
            while True:
                now, rights = trio.current_time(), self._watch.rights
                due = sorted(self._watch.gaps.due(now), key=lambda gap: rights.turn(gap, now))
                taken = [self._take_up(gap, nursery) for gap in due]
                if all(taken):
                    await self._watch.until_due()
                    continue
                with trio.move_on_after(POLL_S):
                    await self._freed.wait()

    def _take_up(self, gap: Gap, nursery: trio.Nursery) -> bool:
        """Start a try, or end the gap; False if it has to wait for others."""
        gaps, now = self._watch.gaps, trio.current_time()
        if not gap.proven and self._running[False] >= _MAX_UNPROVEN_AT_ONCE:
            return False
        if self._running.total() >= _MAX_AT_ONCE:
            return False
        candidates = self._candidates(gap)
        if not candidates:
            gaps.postpone(gap, now)
        elif not self._watch.rights.try_charge(gap, now):
            gaps.close(gap.publisher, gap.sequence)
            self._stats.gaps_abandoned += 1
        else:
            self._stats.gaps_seen += gap.tries == 0
            gaps.start_try(gap, now)
            self._running[gap.proven] += 1
            nursery.start_soon(self._try, gap, candidates)
        return True

    async def _try(self, gap: Gap, candidates: list[PeerId]) -> None:
        answers: list[bool | None] = []
        try:
            for peer_id in candidates:
                answers.append(await self._ask(peer_id, gap))
                if answers[-1]:
                    break
        finally:
            self._running[gap.proven] -= 1
            self._freed.set()
            self._freed = trio.Event()
        if all(answer is None for answer in answers):
            # While a swarm is behind peers are too busy to answer, so the number may still exist.
            self._watch.undo_try(gap)
        shards, path = self._watch.shards, self._manifest.path(gap.publisher, gap.key)
        unwanted = shards is not None and shards.isdisjoint(path)
        if self._watch.gaps.end_try(gap, at_once=unwanted):
            self._stats.gaps_abandoned += 1

    def _candidates(self, gap: Gap) -> list[PeerId]:
        connected = [p for p in sorted(self._host.connected_peers()) if self._asker.is_usable(p)]
        others = [peer for peer in connected if peer != gap.publisher]
        sampled = self._rng.sample(others, min(_MAX_ASKED - 2 + gap.proven, len(others)))
        # The publisher comes last, although it certainly has the batch: otherwise every node that
        # missed it would ask the publisher.
        return [*sampled, gap.publisher] if gap.publisher in connected else sampled

    async def _ask(self, peer_id: PeerId, gap: Gap) -> bool | None:
        """Fetch a peer's batches of the publisher; return whether that closes the gap.

        None if the peer did not answer.
        """
        query = SinceQuery(
            publisher=gap.publisher,
            after_sequence=gap.after,
            max_batches=FEW,
            shards=self._manifest.path(gap.publisher, gap.key)[:1],
        )
        try:
            listing = await self._asker.ask(peer_id, query, Listing)
            good = all(
                ref.publisher == gap.publisher and ref.sequence > gap.after
                for ref in listing.batches
            )
            if not good or len(listing.batches) > FEW:
                self._asker.offend(peer_id, Reason.MALFORMED_ANSWER)
                return False
            await self._fetch.fetch_listed(peer_id, listing.batches, Source.GAP)
        except NoAnswerError:
            return None
        wanted = [ref for ref in listing.batches if ref.sequence == gap.sequence]
        return self._ledger.knows(gap.publisher, gap.sequence) or any(
            self._fetch.is_pending(ref.batch_id) for ref in wanted
        )
