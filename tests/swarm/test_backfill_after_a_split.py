"""Whom backfill asks, and about how long, when peers go and come back. Virtual time."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from shoal_p2p.fetch.backfill import Backfill, BackfillSettings
from shoal_p2p.fetch.client import NoAnswerError
from shoal_p2p.fetch.stats import FetchStats
from shoal_p2p.intake.validation import Source
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
    """Who is connected, and what each was asked."""

    def __init__(self) -> None:
        self.connected = {*OWN_SIDE, *FAR_SIDE}
        self.asked: list[tuple[float, PeerId, int]] = []
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
        self.asked.append((trio.current_time(), peer_id, query.max_age_seconds))
        return Listing(batches=(REF,) if self.news(peer_id) else ())

    def asked_since(self, start: float) -> list[tuple[float, PeerId, int]]:
        return [entry for entry in self.asked if entry[0] >= start]


def backfill(
    peers: Peers,
    seed: int,
    shards: Callable[[], frozenset[int]] = lambda: frozenset({0}),
    wants: Callable[[BatchRef, Source], bool] = lambda _ref, _source: True,
) -> Backfill:
    async def nothing(*_: object) -> None:
        await trio.lowlevel.checkpoint()

    means = SimpleNamespace(
        manifest=SimpleNamespace(
            rules=SimpleNamespace(max_age_seconds=3600), is_of=lambda *_: True
        ),
        host=peers,
        asker=peers,
        stats=FetchStats(),
        rng=random.Random(seed),
    )
    return Backfill(
        means=cast("Any", means),
        fetch=cast("Any", SimpleNamespace(fetch_listed=nothing, wants=wants)),
        shards=shards,
        wanted_groups=lambda: 100,
        twins=cast("Any", SimpleNamespace(ask=nothing)),
    )


@pytest.mark.parametrize("away_s", [60.0, 600.0])
@pytest.mark.parametrize("seed", range(4))
async def test_who_is_back_is_asked_about_the_time_it_was_away(seed: int, away_s: float) -> None:
    peers = Peers()
    async with running(backfill(peers, seed)):
        await trio.sleep(100)
        left = trio.current_time()
        peers.change(set(FAR_SIDE))
        await trio.sleep(away_s)
        back = trio.current_time()
        # The bootstrap is back first, and has nothing to tell.
        peers.change({SILENT, FAR_SIDE[0]})
        await trio.sleep(3)
        _, asked, window_s = peers.asked_since(back)[0]
        assert asked == FAR_SIDE[0]
        assert window_s >= back - left


async def test_who_comes_and_goes_causes_no_more_rounds_than_before() -> None:
    peers = Peers()
    async with running(backfill(peers, 1)):
        await trio.sleep(100)
        start = trio.current_time()
        for _ in range(60):
            peers.change({FAR_SIDE[0]})
            await trio.sleep(1)
        asked = peers.asked_since(start)
        assert 5 <= len(asked) <= 13, "one peer a round, and five seconds between rounds"


@pytest.mark.parametrize("seed", range(4))
async def test_those_who_bring_no_news_are_asked_more_rarely_and_with_news_others_at_once(
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
        # A stock of eight, then one a minute; and the regular ones, one in half to one and a half.
        assert 20 <= len(peers.asked_since(start)) <= 8 + 20 + 20
        peers.news = lambda peer_id: peer_id.startswith("far")
        back = trio.current_time()
        peers.change({PeerId(f"far-{n}") for n in range(2, 10)})
        await trio.sleep(150)
        rounds = peers.asked_since(back)
        told = [n for n, (_, peer_id, _) in enumerate(rounds[:-1]) if peer_id.startswith("far")]
        assert told
        assert all(rounds[n + 1][0] - rounds[n][0] < 7 for n in told)


async def test_rounds_that_bring_news_leave_the_stock_whole() -> None:
    peers = Peers()
    async with running(backfill(peers, 1)):
        await trio.sleep(100)
        peers.news = lambda _peer_id: True
        came: dict[PeerId, float] = {}
        for number in range(30):
            newcomer = PeerId(f"new-{number}")
            came[newcomer] = trio.current_time()
            peers.change({newcomer})
            await trio.sleep(10)
        asked = {peer_id: at for at, peer_id, _ in reversed(peers.asked)}
        late = [asked.get(peer_id, math.inf) - at for peer_id, at in came.items()]
        assert max(late[:-2]) < 20


async def test_another_shard_is_asked_about_without_waiting() -> None:
    peers, shards = Peers(), {0}
    made = backfill(peers, 1, lambda: frozenset(shards))
    async with running(made):
        for number in range(40):  # until rounds for newcomers have to wait
            peers.change({PeerId(f"new-{number}")})
            await trio.sleep(6)
        joined = trio.current_time()
        shards.add(1)
        made.note_shards()
        await trio.sleep(7)
        assert {window_s for _, _, window_s in peers.asked_since(joined)} == {3600}


@pytest.mark.parametrize("room", [0, 100, 4096])
async def test_however_much_is_listed_a_round_asks_for_no_more_than_there_is_room_for(
    room: int,
) -> None:
    rng, peers, asked = random.Random(room), Peers(), list[int]()
    listed = [
        replace(REF, batch_id=BatchId(rng.randbytes(32)), num_groups=rng.randint(1, 256))
        for _ in range(200)
    ]

    async def list_all(*_: object) -> Listing:
        await trio.lowlevel.checkpoint()
        return Listing(batches=tuple(listed))

    async def fetch(_peer_id: PeerId, refs: list[BatchRef], _source: object) -> None:
        await trio.lowlevel.checkpoint()
        asked.append(sum(ref.num_groups for ref in refs))

    peers.ask = list_all  # type: ignore[assignment]
    made = backfill(peers, 1)
    made._wanted_groups = lambda: room
    made._fetch.fetch_listed = fetch  # type: ignore[method-assign,assignment]
    async with running(made):
        await trio.sleep(600)
    assert len(asked) > 3
    # The last batch that is asked for may go beyond it.
    assert max(asked) < max(room, BackfillSettings().least_groups) + 256


class Steps(trio.abc.Instrument):
    """Counts what Trio's loop does."""

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


async def test_a_time_of_which_something_is_missing_is_asked_about_again() -> None:
    peers, missing = Peers(), [True]
    peers.news = lambda _peer_id: True
    async with trio.open_nursery() as nursery:
        made = backfill(peers, 1, wants=lambda _ref, _source: missing[0])
        await nursery.start(made.run)
        began = trio.current_time()
        await trio.sleep(600)
        at, _, window_s = peers.asked[-1]
        assert window_s >= at - began
        missing[0] = False
        await trio.sleep(300)
        assert peers.asked[-1][2] <= 200
        nursery.cancel_scope.cancel()
