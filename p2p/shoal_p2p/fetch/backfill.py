"""Fills the buffer from peers: at the start, in a new shard, after a split, and now and then.

A round asks a few peers what came lately and fetches what is not here, the newest first. A swarm
of joiners spreads out: each waits a random moment, asks random peers, and takes what their quotas
allow. No publisher's quota stands against it: after a while away that is long used up. The rounds
after the first also find what no gap shows: a publisher's last batch. Who is newly connected is
asked first, and who is back is asked about all the time it was away: after a split those who stayed
know nothing new. In a swarm that is shuffled somebody new is always there and seldom has any news:
so rounds for their sake that bring nothing come out of a small stock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from shoal_base.bounded import BoundedDict
from shoal_base.waits import MINUTE_S
from shoal_p2p.fair.buckets import Rate, TokenBucket
from shoal_p2p.fetch.batches import BatchFetch
from shoal_p2p.fetch.client import NoAnswerError
from shoal_p2p.fetch.context import FetchContext
from shoal_p2p.fetch.duplicate_identity import DuplicateIdentityCheck
from shoal_p2p.intake.validation import Source
from shoal_wire.limits import MAX_SHARDS_PER_PEER
from shoal_wire.rollout_messages import BatchRef, Listing, RecentQuery
from shoal_wire.types import PeerId
from shoal_wire.verdict import Reason

if TYPE_CHECKING:
    from trio_typing import TaskStatus


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
    max_bytes: int = 16 << 20
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
        wanted_groups: Callable[[], int],
        twins: DuplicateIdentityCheck,
        settings: BackfillSettings | None = None,
    ) -> None:
        """`shards` are those listened to, `wanted_groups` what the buffer could still take."""
        self._manifest, self._host, self._asker = means.manifest, means.host, means.asker
        self._stats, self._rng = means.stats, means.rng
        self._fetch = fetch
        self._shards = shards
        self._wanted_groups = wanted_groups
        self._twins = twins
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
            self._fresh.pop(peer_id, None)
            try:
                window_s = self._window_seconds(peer_id, full=full)
                chosen = await self._fill_from(peer_id, sorted(shards), window_s)
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

    async def _fill_from(self, peer_id: PeerId, shards: list[int], window_s: int) -> list[BatchRef]:
        """Ask one peer, and fetch; return those of the batches that it listed that were wanted."""
        settings = self._settings
        query = RecentQuery(
            shards=tuple(self._rng.sample(shards, min(MAX_SHARDS_PER_PEER, len(shards)))),
            max_batches=settings.max_batches,
            max_bytes=settings.max_bytes,
            max_age_seconds=window_s,
        )
        listing = await self._asker.ask(peer_id, query, Listing)
        if not self._keeps_to(query, listing.batches):
            self._asker.offend(peer_id, Reason.MALFORMED_ANSWER)
            raise NoAnswerError(Reason.MALFORMED_ANSWER)
        chosen = self._choose(listing.batches)
        await self._fetch.fetch_listed(peer_id, chosen, Source.BACKFILL)
        # Last: a peer that does not answer this has answered the rest.
        await self._twins.ask(peer_id)
        return chosen

    def _window_seconds(self, peer_id: PeerId, *, full: bool) -> int:
        """Return how far back to ask: all at first, later since the last answer, and a while.

        One who was away is asked about that time too.
        """
        limit = self._manifest.rules.max_age_seconds
        if full:
            return limit
        # A minute again: who answered last time may have been the one who missed something.
        since = min(self._heard_at, self._left_at.get(peer_id, math.inf))
        return min(limit, math.ceil(trio.current_time() - since + MINUTE_S))

    def _keeps_to(self, query: RecentQuery, refs: Sequence[BatchRef]) -> bool:
        return (
            len(refs) <= query.max_batches
            and sum(ref.num_bytes for ref in refs) <= query.max_bytes
            and all(self._manifest.is_of(ref.publisher, query.shards) for ref in refs)
        )

    def _choose(self, refs: Sequence[BatchRef]) -> list[BatchRef]:
        """Return the newest of what is not here, until the buffer would be full."""
        room = max(self._wanted_groups(), self._settings.least_groups)
        chosen: list[BatchRef] = []
        for ref in refs:
            if room <= 0:
                break
            if self._fetch.wants(ref, Source.BACKFILL):
                chosen.append(ref)
                room -= ref.num_groups
        return chosen
