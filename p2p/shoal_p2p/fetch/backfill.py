"""Fills the buffer from peers: at the start, in a new shard, after a partition, and periodically.

A round asks a few peers which batches they received recently, and fetches the missing ones. One
listing holds at most `max_batches`. After an absence, further listings continue below it until all
due batches were listed, or the buffer would be full of missed groups. Load is spread: each node
waits a random time, asks random peers, and respects their quotas. Publisher quotas do not apply,
since during an absence they are long used up. Later rounds also find what no gap reveals: a
publisher's last batch. Newly connected peers are asked first, and returning peers about the whole
time of their absence: after a partition the remaining peers know nothing new. In a swarm that is
shuffled there is always a new peer and it seldom has anything new, so rounds for new peers that
bring nothing are limited by a small budget.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import trio

from shoal_base.bounded import BoundedDict
from shoal_base.ranges import Bytes, Range, Ranged, Seconds, SecondsOrZero
from shoal_base.waits import MINUTE_S
from shoal_p2p.events import Event, ShardsChanged, Source
from shoal_p2p.fair.buckets import Rate, TokenBucket
from shoal_p2p.fetch.batches import BatchFetch
from shoal_p2p.fetch.client import NoAnswerError
from shoal_p2p.fetch.context import FetchContext
from shoal_wire.limits import MAX_LISTED_BATCHES, MAX_SHARDS_PER_PEER
from shoal_wire.rollout_messages import BatchRef, Listing, RecentQuery
from shoal_wire.types import BatchId, PeerId
from shoal_wire.verdict import Reason

if TYPE_CHECKING:
    from trio_typing import TaskStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferSpace:
    """The buffer's capacity for external groups."""

    groups_since: Callable[[float], int]
    """Groups that fit if those received before a time (Trio's clock) are replaced."""
    groups_per_publisher: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    """The request to one peer in a round."""

    window_s: int
    max_groups: int
    lists_all: bool
    """True to request further listings even if one has nothing missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillSettings(Ranged):
    """Intervals, peers and amounts of backfill."""

    first_jitter_seconds: SecondsOrZero = 1.0
    """Maximum random wait after a new peer or a new shard, in seconds."""
    again_seconds: Seconds = 5.0
    """Shortest time between rounds, however often peers come and go, in seconds."""
    idle_rounds: Annotated[int, Range("rounds", 1, 1000)] = 8
    """Rounds for new peers that may bring nothing before the next has to wait; one more is allowed
    every `every_seconds`."""
    every_seconds: Seconds = 60.0
    """Time between periodic rounds, plus or minus half of it, in seconds."""
    first_peers: Annotated[int, Range("peers", 0, 1000)] = 3
    later_peers: Annotated[int, Range("peers", 0, 1000)] = 1
    max_batches: Annotated[int, Range("batches", 1, MAX_LISTED_BATCHES)] = 256
    """Batches of one listing."""
    max_bytes: Bytes = 16 << 20
    """The same, in bytes of the batches."""
    max_listings: Annotated[int, Range("listings", 1, 10_000)] = 32
    """Listings of one peer in a round: as much as a peer remembers (`BatchIndex`)."""
    least_groups: Annotated[int, Range("groups", 0, 100_000)] = 128
    """Fetched in a round even if the buffer is full, since missed batches are newer."""
    tick_seconds: Seconds = 0.5
    """Pause to collect connects and disconnects before they are handled together."""


class Backfill:
    """Runs the rounds. Start with ``await nursery.start(backfill.run)``."""

    def __init__(
        self,
        *,
        means: FetchContext,
        fetch: BatchFetch,
        space: BufferSpace,
        settings: BackfillSettings | None = None,
    ) -> None:
        """`space` is the buffer's."""
        self._manifest, self._host, self._asker = means.manifest, means.host, means.asker
        self._stats, self._rng = means.stats, means.rng
        self._fetch = fetch
        self._shards: frozenset[int] = frozenset()
        """The subscribed ones."""
        self._space = space
        self._settings = settings or BackfillSettings()
        self._complete_at = trio.current_time()
        """Start of the last round that left no listed batch of the shards below missing."""
        self._complete_shards: frozenset[int] = frozenset()
        self._fresh: dict[PeerId, float] = {}
        """New peers that were not asked yet, and the time of their connection."""
        self._last_seen_at: BoundedDict[PeerId, float] = BoundedDict()
        """Time when each peer that is no longer connected was last seen."""
        self._early = TokenBucket(
            Rate(burst=self._settings.idle_rounds, per_second=1 / self._settings.every_seconds),
            trio.current_time(),
        )
        """Budget of early rounds that bring nothing."""
        self._changed = trio.Event()
        self._host.add_peer_callbacks(connected=self._note_peer, disconnected=self._note_peer)

    def _note_peer(self, _peer_id: PeerId) -> None:
        self._changed.set()

    def on_event(self, event: Event) -> None:
        """Record that the subscribed shards changed: their recent batches are fetched."""
        if isinstance(event, ShardsChanged):
            self._shards = event.shards
            self._changed.set()

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run rounds until cancelled."""
        task_status.started()
        peers: frozenset[PeerId] = frozenset()
        shards: frozenset[int] = frozenset()
        due = regular = earliest = trio.current_time()
        while True:
            self._changed = trio.Event()
            now = trio.current_time()
            connected, subscribed = self._host.connected_peers(), self._shards
            self._note_change(peers, connected, now)
            if connected - peers or subscribed - shards:
                is_paced = bool(peers) and subscribed <= shards
                soon = max(earliest, now + self._pause_s(now, is_paced=is_paced))
                due = min(due, soon) if peers else soon
            peers, shards = connected, subscribed
            if peers and shards and now >= due:
                is_early = now < regular and shards <= self._complete_shards
                num_new = await self._round()
                due, earliest = self._next(num_new, is_early=is_early)
                regular = due
                if num_new and self._fresh:
                    due = earliest
            can_ask = bool(peers and shards)
            await self._wait(due - trio.current_time() if can_ask else math.inf)

    def _pause_s(self, now: float, *, is_paced: bool) -> float:
        """Return the wait before a round for a new peer or shard, in seconds."""
        jitter = self._rng.uniform(0, self._settings.first_jitter_seconds)
        return max(jitter, self._early.wait_s(1, now) if is_paced else 0.0)

    def _next(self, num_new: int | None, *, is_early: bool) -> tuple[float, float]:
        """Return when the next round is due, and when it may be at the earliest."""
        settings, now = self._settings, trio.current_time()
        if num_new is None:
            # No peer could answer: ask the next one immediately.
            return now + settings.again_seconds, now
        if is_early and not num_new:
            self._early.take(1, now)
        pause = settings.every_seconds * self._rng.uniform(0.5, 1.5)
        return now + pause, now + settings.again_seconds

    async def _wait(self, seconds: float) -> None:
        """Wait for a time, or until shortly after a change."""
        with trio.move_on_after(max(0.0, seconds)):
            await self._changed.wait()
            await trio.sleep(self._settings.tick_seconds)

    def _note_change(
        self, before: frozenset[PeerId], connected: frozenset[PeerId], now: float
    ) -> None:
        self._fresh = {peer_id: at for peer_id, at in self._fresh.items() if peer_id in connected}
        self._fresh.update(dict.fromkeys(connected - before, now))
        for peer_id in sorted(before - connected):
            self._last_seen_at[peer_id] = now

    async def _round(self) -> int | None:
        """Ask some peers; return how many of their listed batches are worth fetching.

        None if no peer answered.
        """
        started_at, shards = trio.current_time(), self._shards
        full = not shards <= self._complete_shards
        num_peers = self._settings.first_peers if full else self._settings.later_peers
        usable = [p for p in sorted(self._host.connected_peers()) if self._asker.is_usable(p)]
        self._rng.shuffle(usable)
        # New peers first: after a partition they are from the other half.
        recently = started_at - self._settings.every_seconds
        connected_at = self._fresh
        usable.sort(
            key=lambda peer: (peer not in connected_at, connected_at.get(peer, 0.0) < recently)
        )
        answered = num_new = num_missed = 0
        for peer_id in usable:
            is_back = self._fresh.pop(peer_id, None) is not None or peer_id in self._last_seen_at
            try:
                scope = self._scope(peer_id, full=full, is_back=is_back)
                chosen = await self._fill_from(peer_id, sorted(shards), scope)
                num_new += len(chosen)
                num_missed += sum(self._fetch.wants(ref, Source.BACKFILL) for ref in chosen)
                self._last_seen_at.pop(peer_id, None)
                answered += 1
            except NoAnswerError:
                continue
            if answered >= num_peers:
                break
        if not answered:
            return None
        self._stats.backfill_rounds += 1
        if not num_missed:  # otherwise a later round asks about that time again
            self._complete_at = started_at
        self._complete_shards = shards
        if full:
            self._fresh.clear()
        return num_new

    async def _fill_from(self, peer_id: PeerId, shards: list[int], scope: _Scope) -> list[BatchRef]:
        """Ask one peer, and fetch from it; return the missing batches that it listed."""
        chosen: list[BatchRef] = []
        failure = None
        try:
            await self._list_missing(peer_id, shards, scope, chosen)
        except NoAnswerError as error:
            failure = error
        # Oldest first, since the ledger drops a publisher's lowest numbers.
        await self._fetch.fetch_listed(peer_id, chosen[::-1], Source.BACKFILL)
        if failure is not None:
            raise failure
        return chosen

    async def _list_missing(
        self, peer_id: PeerId, shards: list[int], scope: _Scope, chosen: list[BatchRef]
    ) -> None:
        """Add to `chosen` the missing batches in a peer's listings, newest first.

        Raises:
            NoAnswerError: a listing failed; `chosen` has the batches of the earlier ones.
        """
        settings = self._settings
        query = RecentQuery(
            shards=tuple(self._rng.sample(shards, min(MAX_SHARDS_PER_PEER, len(shards)))),
            max_batches=settings.max_batches,
            max_bytes=settings.max_bytes,
            max_age_seconds=scope.window_s,
        )
        space = _Space(scope.max_groups, self._space.groups_per_publisher)
        seen: set[BatchId] = set()
        for _ in range(settings.max_listings):
            refs = (await self._asker.ask(peer_id, query, Listing)).batches
            if not self._keeps_to(query, refs):
                self._asker.offend(peer_id, Reason.MALFORMED_ANSWER)
                raise NoAnswerError(Reason.MALFORMED_ANSWER)
            refs = tuple(ref for ref in refs if ref.batch_id not in seen)
            missing = [ref for ref in refs if self._fetch.wants(ref, Source.BACKFILL)]
            chosen += filter(space.take, missing)
            is_worth_more = scope.lists_all or missing
            if not (refs and is_worth_more and space.left and self._is_full(query, refs)):
                return
            seen.update(ref.batch_id for ref in refs)
            query = replace(query, before=refs[-1].batch_id)

    def _scope(self, peer_id: PeerId, *, full: bool, is_back: bool) -> _Scope:
        """Return what to request: first everything, later only batches after the last answer.

        Some overlap is included, and the time of a peer's absence. Missed batches are newer than
        the buffer's groups and may displace them; batches of a new shard may not.
        """
        limit, now = self._manifest.rules.max_age_seconds, trio.current_time()
        # A minute of overlap: the last peer that answered may have missed something itself.
        since = min(self._complete_at, self._last_seen_at.get(peer_id, math.inf))
        was_away = not self._complete_shards if full else is_back
        left_at = self._last_seen_at.get(peer_id, self._complete_at)
        max_groups = self._space.groups_since(left_at if was_away else -math.inf)
        return _Scope(
            window_s=limit if full else min(limit, math.ceil(now - since + MINUTE_S)),
            max_groups=max(max_groups, self._settings.least_groups),
            lists_all=full or is_back,
        )

    def _is_full(self, query: RecentQuery, refs: Sequence[BatchRef]) -> bool:
        """Return whether a listing may have ended at a limit of `query`."""
        num_bytes = sum(ref.num_bytes for ref in refs)
        return (
            len(refs) == query.max_batches
            or num_bytes + self._manifest.rules.max_envelope_bytes > query.max_bytes
        )

    def _keeps_to(self, query: RecentQuery, refs: Sequence[BatchRef]) -> bool:
        return (
            len(refs) <= query.max_batches
            and sum(ref.num_bytes for ref in refs) <= query.max_bytes
            and all(self._manifest.is_of(ref.publisher, query.shards) for ref in refs)
        )


class _Space:
    """Counts down the capacity while batches are chosen, newest first."""

    def __init__(self, max_groups: int, max_per_publisher: int) -> None:
        self.left = max_groups
        self._max_per_publisher = max_per_publisher
        self._taken: Counter[PeerId] = Counter()

    def take(self, ref: BatchRef) -> bool:
        """Reserve space for a batch; return whether there was any, also for its publisher."""
        if self.left <= 0 or self._taken[ref.publisher] >= self._max_per_publisher:
            return False
        self.left = max(0, self.left - ref.num_groups)
        self._taken[ref.publisher] += ref.num_groups
        return True
