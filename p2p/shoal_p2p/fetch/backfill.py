"""Fills the buffer from peers: at the start, in a new shard, after a split, and now and then.

A round asks a few peers what they received recently and fetches what is not here. One listing holds
at most `max_batches`. After an absence, further listings continue below it until all that is due
was listed, or the buffer would be full of what was missed. A swarm of joiners spreads out: each
waits a random moment, asks random peers, and takes what their quotas allow. No publisher's quota
stands against it: after a while away that is long used up. The rounds after the first also find
what no gap shows: a publisher's last batch. Who is newly connected is asked first, and who is back
is asked about all the time it was away: after a split those who stayed know nothing new. In a swarm
that is shuffled somebody new is always there and seldom has any news: so rounds for their sake that
bring nothing come out of a small stock.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import trio

from shoal_base.bounded import BoundedDict
from shoal_base.waits import MINUTE_S
from shoal_p2p.fair.buckets import Rate, TokenBucket
from shoal_p2p.fetch.batches import BatchFetch
from shoal_p2p.fetch.client import NoAnswerError
from shoal_p2p.fetch.context import FetchContext
from shoal_p2p.intake.validation import Source
from shoal_wire.limits import MAX_SHARDS_PER_PEER
from shoal_wire.rollout_messages import BatchRef, Listing, RecentQuery
from shoal_wire.types import BatchId, PeerId
from shoal_wire.verdict import Reason

if TYPE_CHECKING:
    from trio_typing import TaskStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferSpace:
    """The buffer's capacity for groups of other peers."""

    groups_since: Callable[[float], int]
    """Groups that fit if those received before a time (Trio's clock) make room for them."""
    groups_per_publisher: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    """The request to one peer in a round."""

    window_s: int
    max_groups: int
    lists_all: bool
    """Ask for further listings even where one holds nothing that is missing here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillSettings:
    """Intervals, peers and amounts of backfill."""

    first_jitter_seconds: float = 1.0
    """Longest random wait of a node that found a peer, or another shard, in seconds."""
    again_seconds: float = 5.0
    """Shortest time between rounds, however often peers come and go, in seconds."""
    idle_rounds: int = 8
    """Rounds for the sake of who is new that brought nothing, before the next has to wait; one more
    is allowed every `every_seconds`."""
    every_seconds: float = 60.0
    """Time between rounds when nothing happens, half of it more or less, in seconds."""
    first_peers: int = 3
    later_peers: int = 1
    max_batches: int = 256
    """Batches of one listing."""
    max_bytes: int = 16 << 20
    """The same, in bytes of the batches."""
    max_listings: int = 32
    """Listings of one peer in a round: as much as a peer remembers (`BatchIndex`)."""
    least_groups: int = 128
    """Fetched in a round even where the buffer is full: what was missed is newer than that."""
    tick_seconds: float = 0.5
    """Pause before the peers that came or went are looked at, all together."""


class Backfill:
    """Start with ``await nursery.start(backfill.run)``."""

    def __init__(
        self,
        *,
        means: FetchContext,
        fetch: BatchFetch,
        shards: Callable[[], frozenset[int]],
        space: BufferSpace,
        settings: BackfillSettings | None = None,
    ) -> None:
        """`shards` are those listened to, `space` is the buffer's."""
        self._manifest, self._host, self._asker = means.manifest, means.host, means.asker
        self._stats, self._rng = means.stats, means.rng
        self._fetch = fetch
        self._shards = shards
        self._space = space
        self._settings = settings or BackfillSettings()
        self._heard_at = trio.current_time()
        """Start of the last round after which nothing listed was missing, of the shards below."""
        self._heard_shards: frozenset[int] = frozenset()
        self._fresh: dict[PeerId, float] = {}
        """Peers that came and were not asked since, and when each came."""
        self._left_at: BoundedDict[PeerId, float] = BoundedDict()
        """Time when each peer that is no longer connected was last seen."""
        self._early = TokenBucket(
            Rate(burst=self._settings.idle_rounds, per_second=1 / self._settings.every_seconds),
            trio.current_time(),
        )
        """Rounds before their time that may bring nothing."""
        self._changed = trio.Event()
        self._host.add_peer_callbacks(connected=self._note_peer, disconnected=self._note_peer)

    def _note_peer(self, _peer_id: PeerId) -> None:
        self._changed.set()

    def note_shards(self) -> None:
        """Other shards are listened to than before."""
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
            connected, subscribed = self._host.connected_peers(), self._shards()
            self._note_change(peers, connected, now)
            if connected - peers or subscribed - shards:
                is_paced = bool(peers) and subscribed <= shards
                soon = max(earliest, now + self._pause_s(now, is_paced=is_paced))
                due = min(due, soon) if peers else soon
            peers, shards = connected, subscribed
            if peers and shards and now >= due:
                is_early = now < regular and shards <= self._heard_shards
                num_new = await self._round()
                due, earliest = self._next(num_new, is_early=is_early)
                regular = due
                if num_new and self._fresh:
                    due = earliest
            can_ask = bool(peers and shards)
            await self._wait(due - trio.current_time() if can_ask else math.inf)

    def _pause_s(self, now: float, *, is_paced: bool) -> float:
        """Return how long to wait for a round for the sake of who, or what shard, is new."""
        jitter = self._rng.uniform(0, self._settings.first_jitter_seconds)
        return max(jitter, self._early.wait_s(1, now) if is_paced else 0.0)

    def _next(self, num_new: int | None, *, is_early: bool) -> tuple[float, float]:
        """Return when the next round is due, and when it may be at the earliest."""
        settings, now = self._settings, trio.current_time()
        if num_new is None:
            # Nobody there who could answer: whoever comes next is asked at once.
            return now + settings.again_seconds, now
        if is_early and not num_new:
            self._early.take(1, now)
        pause = settings.every_seconds * self._rng.uniform(0.5, 1.5)
        return now + pause, now + settings.again_seconds

    async def _wait(self, seconds: float) -> None:
        """Wait so long, or until something has changed and a moment more."""
        with trio.move_on_after(max(0.0, seconds)):
            await self._changed.wait()
            await trio.sleep(self._settings.tick_seconds)

    def _note_change(
        self, before: frozenset[PeerId], connected: frozenset[PeerId], now: float
    ) -> None:
        self._fresh = {peer_id: at for peer_id, at in self._fresh.items() if peer_id in connected}
        self._fresh.update(dict.fromkeys(connected - before, now))
        for peer_id in sorted(before - connected):
            self._left_at[peer_id] = now

    async def _round(self) -> int | None:
        """Ask some peers; return how many batches they listed that are worth fetching.

        None if nobody answered.
        """
        started_at, shards = trio.current_time(), self._shards()
        full = not shards <= self._heard_shards
        num_peers = self._settings.first_peers if full else self._settings.later_peers
        usable = [p for p in sorted(self._host.connected_peers()) if self._asker.is_usable(p)]
        self._rng.shuffle(usable)
        # Recent arrivals first: after a split they come from the other side.
        lately = started_at - self._settings.every_seconds
        came = self._fresh
        usable.sort(key=lambda peer_id: (peer_id not in came, came.get(peer_id, 0.0) < lately))
        answered = num_new = num_missed = 0
        for peer_id in usable:
            is_back = self._fresh.pop(peer_id, None) is not None or peer_id in self._left_at
            try:
                scope = self._scope(peer_id, full=full, is_back=is_back)
                chosen = await self._fill_from(peer_id, sorted(shards), scope)
                num_new += len(chosen)
                num_missed += sum(self._fetch.wants(ref, Source.BACKFILL) for ref in chosen)
                self._left_at.pop(peer_id, None)
                answered += 1
            except NoAnswerError:
                continue
            if answered >= num_peers:
                break
        if not answered:
            return None
        self._stats.backfill_rounds += 1
        if not num_missed:  # else a node that was behind would never ask about that time again
            self._heard_at = started_at
        self._heard_shards = shards
        if full:
            self._fresh.clear()
        return num_new

    async def _fill_from(self, peer_id: PeerId, shards: list[int], scope: _Scope) -> list[BatchRef]:
        """Ask one peer, and fetch; return those of the batches that it listed that were wanted."""
        chosen: list[BatchRef] = []
        failure = None
        try:
            await self._list_missing(peer_id, shards, scope, chosen)
        except NoAnswerError as error:
            failure = error
        # The oldest first: of a publisher the ledger forgets the lowest numbers.
        await self._fetch.fetch_listed(peer_id, chosen[::-1], Source.BACKFILL)
        if failure is not None:
            raise failure
        return chosen

    async def _list_missing(
        self, peer_id: PeerId, shards: list[int], scope: _Scope, chosen: list[BatchRef]
    ) -> None:
        """Add to `chosen` what a peer lists and this node lacks, newest first, one listing after
        the other.

        Raises:
            NoAnswerError: a listing did not come; `chosen` holds what those before it named.
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
        """Return what to ask for: all at first, later what came since the last answer, and a while.

        A peer that was away is asked about that time too. What was missed is newer than what the
        buffer held before, and may displace it; what another shard published is not.
        """
        limit, now = self._manifest.rules.max_age_seconds, trio.current_time()
        # A minute again: who answered last time may have been the one who missed something.
        since = min(self._heard_at, self._left_at.get(peer_id, math.inf))
        was_away = not self._heard_shards if full else is_back
        left_at = self._left_at.get(peer_id, self._heard_at)
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
        """Reserve space for a batch; return whether any was left, of its publisher's too."""
        if self.left <= 0 or self._taken[ref.publisher] >= self._max_per_publisher:
            return False
        self.left = max(0, self.left - ref.num_groups)
        self._taken[ref.publisher] += ref.num_groups
        return True
