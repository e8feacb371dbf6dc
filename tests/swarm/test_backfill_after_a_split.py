"""Backfill: which peers and times it requests when peers leave and return. Virtual time."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from shoal_p2p.events import ShardsChanged, Source
from shoal_p2p.fetch.backfill import Backfill, BackfillSettings, BufferSpace
from shoal_p2p.fetch.client import NoAnswerError
from shoal_p2p.fetch.stats import FetchStats
from shoal_wire.rollout_messages import BatchRef, Listing, RecentQuery
from shoal_wire.types import BatchId, PeerId
from shoal_wire.verdict import Reason
from tests.support.running import running

pytestmark = pytest.mark.virtual_time

OWN_SIDE = [PeerId(f"own-{n}") for n in range(6)]
FAR_SIDE = [PeerId(f"far-{n}") for n in range(2)]
SILENT = PeerId("bootstrap")
REF = BatchRef(
    batch_id=BatchId(bytes(32)), publisher=PeerId("p"), sequence=1, num_bytes=100, num_groups=1
)


class Peers:
    """The connected peers, and the requests that each received."""

    def __init__(self) -> None:
        self.connected = {*OWN_SIDE, *FAR_SIDE}
        self.requests: list[tuple[float, PeerId, int]] = []
        self.calls: list[Callable[[PeerId], None]] = []
        self.news: Callable[[PeerId], bool] = lambda _peer_id: False

    def add_peer_callbacks(self, **calls: Callable[[PeerId], None]) -> None:
        self.calls += calls.values()

    def change(self, peers: set[PeerId]) -> None:
        self.connected ^= peers
        for call in self.calls:
            call(next(iter(peers)))

    def connected_peers(self) -> frozenset[PeerId]:
        return frozenset(self.connected)

    def is_usable(self, _peer_id: PeerId) -> bool:
        return True

    async def ask(self, peer_id: PeerId, query: RecentQuery, _kind: type[Listing]) -> Listing:
        await trio.lowlevel.checkpoint()
        if peer_id == SILENT:
            raise NoAnswerError(Reason.MALFORMED_ANSWER)
        self.requests.append((trio.current_time(), peer_id, query.max_age_seconds))
        return Listing(batches=(REF,) if self.news(peer_id) else ())

    def requests_since(self, start: float) -> list[tuple[float, PeerId, int]]:
        return [entry for entry in self.requests if entry[0] >= start]


def backfill(
    peers: Peers,
    seed: int,
    wants: Callable[[BatchRef, Source], bool] = lambda _ref, _source: True,
) -> Backfill:
    async def nothing(*_: object) -> None:
        await trio.lowlevel.checkpoint()

    means = SimpleNamespace(
        manifest=SimpleNamespace(
            rules=SimpleNamespace(max_age_seconds=3600, max_envelope_bytes=60_000),
            is_of=lambda *_: True,
        ),
        host=peers,
        asker=peers,
        stats=FetchStats(),
        rng=random.Random(seed),
    )
    made = Backfill(
        means=cast("Any", means),
        fetch=cast("Any", SimpleNamespace(fetch_listed=nothing, wants=wants)),
        space=BufferSpace(groups_since=lambda _since: 100, groups_per_publisher=100),
    )
    made.on_event(ShardsChanged(shards=frozenset({0})))
    return made


@pytest.mark.parametrize("away_s", [60.0, 600.0])
@pytest.mark.parametrize("seed", range(4))
async def test_a_returned_peer_is_queried_about_its_absence(seed: int, away_s: float) -> None:
    peers = Peers()
    async with running(backfill(peers, seed)):
        await trio.sleep(100)
        left = trio.current_time()
        peers.change(set(FAR_SIDE))
        await trio.sleep(away_s)
        back = trio.current_time()
        # The bootstrap peer returns first, and lists nothing.
        peers.change({SILENT, FAR_SIDE[0]})
        await trio.sleep(3)
        _, peer_id, window_s = peers.requests_since(back)[0]
        assert peer_id == FAR_SIDE[0]
        assert window_s >= back - left


async def test_who_comes_and_goes_causes_no_more_rounds_than_before() -> None:
    peers = Peers()
    async with running(backfill(peers, 1)):
        await trio.sleep(100)
        start = trio.current_time()
        for _ in range(60):
            peers.change({FAR_SIDE[0]})
            await trio.sleep(1)
        requests = peers.requests_since(start)
        assert 5 <= len(requests) <= 13, "one peer a round, and five seconds between rounds"


@pytest.mark.parametrize("seed", range(4))
async def test_peers_without_unseen_ids_are_queried_more_rarely_and_others_at_once(
    seed: int,
) -> None:
    peers = Peers()
    async with running(backfill(peers, seed)):
        await trio.sleep(100)
        start = trio.current_time()
        for number in range(120):
            peers.change({PeerId(f"new-{number}")})
            if number > 12:
                peers.change({PeerId(f"new-{number - 12}")})
            await trio.sleep(10)
        # A reserve of eight, then one a minute; and the regular ones, one in half to one and a
        # half.
        assert 20 <= len(peers.requests_since(start)) <= 8 + 20 + 20
        peers.news = lambda peer_id: peer_id.startswith("far")
        back = trio.current_time()
        peers.change({PeerId(f"far-{n}") for n in range(2, 10)})
        await trio.sleep(150)
        rounds = peers.requests_since(back)
        far = [n for n, (_, peer_id, _) in enumerate(rounds[:-1]) if peer_id.startswith("far")]
        assert far
        assert all(rounds[n + 1][0] - rounds[n][0] < 7 for n in far)


async def test_rounds_that_bring_news_leave_the_stock_whole() -> None:
    peers = Peers()
    async with running(backfill(peers, 1)):
        await trio.sleep(100)
        peers.news = lambda _peer_id: True
        arrived: dict[PeerId, float] = {}
        for number in range(30):
            newcomer = PeerId(f"new-{number}")
            arrived[newcomer] = trio.current_time()
            peers.change({newcomer})
            await trio.sleep(10)
        first_request = {peer_id: at for at, peer_id, _ in reversed(peers.requests)}
        late = [first_request.get(peer_id, math.inf) - at for peer_id, at in arrived.items()]
        assert max(late[:-2]) < 20


async def test_another_shard_is_queried_without_waiting() -> None:
    peers = Peers()
    made = backfill(peers, 1)
    async with running(made):
        for number in range(40):  # until rounds for newcomers must wait
            peers.change({PeerId(f"new-{number}")})
            await trio.sleep(6)
        joined = trio.current_time()
        made.on_event(ShardsChanged(shards=frozenset({0, 1})))
        await trio.sleep(7)
        assert {window_s for _, _, window_s in peers.requests_since(joined)} == {3600}


class Shelf:
    """A peer that lists its batches, and a node that fetches from it."""

    def __init__(self, peers: Peers, rng: random.Random, num_batches: int, max_groups: int) -> None:
        self.held = [self.batch(rng, number, max_groups) for number in range(num_batches)]
        self.here: set[BatchId] = set()
        self.fetched: list[list[BatchRef]] = []
        self.num_listings = 0
        peers.ask = self.list_some  # type: ignore[method-assign,assignment]

    @staticmethod
    def batch(rng: random.Random, number: int, max_groups: int) -> BatchRef:
        return BatchRef(
            batch_id=BatchId(rng.randbytes(32)),
            publisher=PeerId(f"p{rng.randrange(6)}"),
            sequence=number + 1,
            num_bytes=rng.randint(100, 60_000),
            num_groups=rng.randint(1, max_groups),
        )

    def put(self, made: Backfill, space: BufferSpace) -> Backfill:
        """Connect a node's backfill to this peer."""
        made._space = space
        made._fetch.fetch_listed = self.fetch  # type: ignore[method-assign,assignment]
        made._fetch.wants = lambda ref, source: ref.batch_id not in self.here  # type: ignore[method-assign]
        return made

    async def list_some(self, _peer_id: PeerId, query: RecentQuery, _kind: object) -> Listing:
        await trio.lowlevel.checkpoint()
        self.num_listings += 1
        refs = self.held[::-1]
        if query.before:
            refs = refs[[ref.batch_id for ref in refs].index(query.before) + 1 :]
        listed, num_bytes = [], 0
        for ref in refs[: query.max_batches]:
            num_bytes += ref.num_bytes
            if num_bytes > query.max_bytes:
                break
            listed.append(ref)
        return Listing(batches=tuple(listed))

    async def fetch(self, _peer_id: PeerId, refs: list[BatchRef], _source: object) -> None:
        await trio.lowlevel.checkpoint()
        self.fetched.append(list(refs))
        self.here |= {ref.batch_id for ref in refs}


@pytest.mark.parametrize("room", [0, 100, 4096])
async def test_however_much_is_listed_a_round_asks_for_no_more_than_there_is_room_for(
    room: int,
) -> None:
    peers = Peers()
    shelf = Shelf(peers, random.Random(room), 2000, 256)
    space = BufferSpace(groups_since=lambda _since: room, groups_per_publisher=room // 8)
    async with running(shelf.put(backfill(peers, 1), space)):
        await trio.sleep(600)
    sizes = [sum(ref.num_groups for ref in refs) for refs in shelf.fetched]
    assert len(sizes) > 3
    # The last requested batch may exceed it.
    assert max(sizes) < max(room, BackfillSettings().least_groups) + 256
    for refs in shelf.fetched:
        by = Counter[PeerId]()
        for ref in refs:
            by[ref.publisher] += ref.num_groups
        assert max(by.values(), default=0) < room // 8 + 256


@pytest.mark.parametrize("seed", range(8))
async def test_all_that_was_missed_is_fetched_newest_or_not(seed: int) -> None:
    """After an absence, one listing is incomplete; afterwards a single one is requested."""
    rng, peers = random.Random(seed), Peers()
    shelf = Shelf(peers, rng, rng.randint(1, 2000), 8)
    space = BufferSpace(groups_since=lambda _since: 1 << 20, groups_per_publisher=1 << 20)
    peers.connected = set()
    async with running(shelf.put(backfill(peers, seed), space)):
        await trio.sleep(60)
        peers.change({OWN_SIDE[0]})
        await trio.sleep(10)
        assert [ref for refs in shelf.fetched for ref in refs] == shelf.held
        # It stays, or leaves for a while: in both cases batches published meanwhile arrive.
        for away_s in (0, 60):
            shelf.held += [shelf.batch(rng, 10_000, 8) for _ in range(rng.randint(256, 1500))]
            if away_s:
                peers.change({OWN_SIDE[0]})
                await trio.sleep(away_s)
                peers.change({OWN_SIDE[0]})
            await trio.sleep(200)
            assert shelf.here == {ref.batch_id for ref in shelf.held}
        before, rounds = shelf.num_listings, len(shelf.fetched)
        await trio.sleep(600)
        assert shelf.num_listings - before == len(shelf.fetched) - rounds > 4


async def test_what_is_here_ends_no_listing_of_the_time_away() -> None:
    """Since its return, gossip has delivered more than one listing contains."""
    rng, peers = random.Random(1), Peers()
    shelf = Shelf(peers, rng, 1000, 8)
    space = BufferSpace(groups_since=lambda _since: 1 << 20, groups_per_publisher=1 << 20)
    peers.connected = {OWN_SIDE[0]}
    async with running(shelf.put(backfill(peers, 1), space)):
        await trio.sleep(100)
        peers.change({OWN_SIDE[0]})
        await trio.sleep(60)
        missed = [shelf.batch(rng, 10_000, 8) for _ in range(300)]
        received = [shelf.batch(rng, 10_000, 8) for _ in range(600)]
        shelf.held += missed + received
        shelf.here |= {ref.batch_id for ref in received}
        peers.change({OWN_SIDE[0]})
        await trio.sleep(10)
        assert shelf.here == {ref.batch_id for ref in shelf.held}


async def test_what_was_missed_displaces_what_a_full_buffer_held_before() -> None:
    rng, peers = random.Random(1), Peers()
    shelf = Shelf(peers, rng, 0, 8)
    arrived = list[float]()
    space = BufferSpace(
        groups_since=lambda since: 4096 - sum(at >= since for at in arrived),
        groups_per_publisher=1 << 20,
    )
    peers.connected = {OWN_SIDE[0]}
    async with running(shelf.put(backfill(peers, 1), space)):
        await trio.sleep(100)
        arrived += [trio.current_time()] * 4096
        await trio.sleep(1)
        peers.change({OWN_SIDE[0]})
        await trio.sleep(60)
        shelf.held += [shelf.batch(rng, n, 8) for n in range(500)]
        peers.change({OWN_SIDE[0]})
        await trio.sleep(10)
        assert shelf.here == {ref.batch_id for ref in shelf.held}


async def test_what_was_listed_before_a_peer_fell_silent_is_fetched_and_the_rest_later() -> None:
    rng, peers = random.Random(1), Peers()
    shelf = Shelf(peers, rng, 1000, 8)
    space = BufferSpace(groups_since=lambda _since: 1 << 20, groups_per_publisher=1 << 20)
    listings = shelf.list_some

    async def twice(peer_id: PeerId, query: RecentQuery, kind: object) -> Listing:
        if shelf.num_listings == 2:
            shelf.num_listings += 1
            raise NoAnswerError("timeout")
        return await listings(peer_id, query, kind)

    peers.ask = twice  # type: ignore[method-assign,assignment]
    peers.connected = {OWN_SIDE[0]}
    async with running(shelf.put(backfill(peers, 1), space)):
        await trio.sleep(3)
        assert len(shelf.here) == 512
        await trio.sleep(10)
        assert len(shelf.here) == 1000


class Steps(trio.abc.Instrument):
    """Counts the steps of Trio's loop."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, _task: Any) -> None:
        self.count += 1


async def test_while_nothing_happens_it_hardly_wakes() -> None:
    async with running(backfill(Peers(), 1)):
        await trio.sleep(20)
        trio.lowlevel.add_instrument(steps := Steps())
        await trio.sleep(20)
        trio.lowlevel.remove_instrument(steps)
        assert steps.count < 20


async def test_an_incomplete_period_is_queried_again() -> None:
    peers, missing = Peers(), [True]
    peers.news = lambda _peer_id: True
    async with trio.open_nursery() as nursery:
        made = backfill(peers, 1, wants=lambda _ref, _source: missing[0])
        await nursery.start(made.run)
        began = trio.current_time()
        await trio.sleep(600)
        at, _, window_s = peers.requests[-1]
        assert window_s >= at - began
        missing[0] = False
        await trio.sleep(300)
        assert peers.requests[-1][2] <= 200
        nursery.cancel_scope.cancel()
