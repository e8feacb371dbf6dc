"""Invented gaps cost the peer that named them, and honest gaps are still filled.

The repair itself, its asking and fetching replaced by neighbours that take their time.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import pytest
import trio
import trio.testing

from shoal_p2p.events import BatchAccepted, Source
from shoal_p2p.fetch.client import NoAnswerError
from shoal_p2p.fetch.context import FetchContext
from shoal_p2p.fetch.gap_repair import GapDetector, GapRepair
from shoal_p2p.fetch.stats import FetchStats
from shoal_p2p.intake.ledger import PublisherLedger
from shoal_wire.rollout_messages import BatchRef, Listing, SinceQuery
from shoal_wire.types import BatchId, PeerId
from tests.support import factories as make

NEIGHBOURS = tuple(PeerId(f"neighbour{n}") for n in range(6))
HONEST = tuple(PeerId(f"honest{n}") for n in range(4))
ANSWER_S = 0.15


def name_of(publisher: PeerId, sequence: int) -> BatchId:
    return BatchId(f"{publisher}/{sequence}".encode().ljust(32)[:32])


class Bench:
    """A node's gap repair, and neighbours that hold every batch of the honest publishers."""

    def __init__(self) -> None:
        self.ledger = PublisherLedger()
        self.stats = FetchStats()
        self.watch = GapDetector(ledger=self.ledger, stats=self.stats, rng=random.Random(1))
        self.requests: Counter[PeerId] = Counter()
        means = FetchContext(
            manifest=make.swarm(),
            host=cast("Any", self),
            asker=cast("Any", self),
            ledger=self.ledger,
            stats=self.stats,
            report=lambda *_: None,
            wall_ms=lambda: 0,
            rng=random.Random(2),
        )
        self.silent_until = 0.0
        self.repair = GapRepair(means=means, fetch=cast("Any", self), watch=self.watch)

    def connected_peers(self) -> frozenset[PeerId]:
        return frozenset(NEIGHBOURS)

    def is_usable(self, _peer_id: PeerId) -> bool:
        return True

    def is_pending(self, _batch_id: BatchId) -> bool:
        return False

    async def ask(self, _peer_id: PeerId, query: SinceQuery, _kind: type[Listing]) -> Listing:
        self.requests[query.publisher] += 1
        await trio.sleep(ANSWER_S)
        if trio.current_time() < self.silent_until:
            raise NoAnswerError("timeout")
        if query.publisher not in HONEST:
            return Listing(batches=())
        sequence = query.after_sequence + 1
        name = name_of(query.publisher, sequence)
        ref = BatchRef(
            batch_id=name, publisher=query.publisher, sequence=sequence, num_bytes=1, num_groups=1
        )
        return Listing(batches=(ref,))

    async def fetch_listed(self, peer_id: PeerId, refs: Sequence[BatchRef], source: Source) -> int:
        await trio.sleep(ANSWER_S)
        for ref in refs:
            self.hear(ref.publisher, ref.sequence, 0, by=peer_id, source=source)
        return len(refs)

    def hear(
        self,
        publisher: PeerId,
        sequence: int,
        previous: int,
        *,
        by: PeerId,
        source: Source = Source.GOSSIP,
    ) -> None:
        now = trio.current_time()
        self.ledger.record(publisher, sequence, name_of(publisher, sequence), 1, now)
        accepted = BatchAccepted(
            publisher=publisher,
            sequence=sequence,
            previous_sequence=previous,
            num_groups=1,
            source=source,
            delivered_by=by,
        )
        self.watch.on_event(accepted)

    async def publish(self, publisher: PeerId, rng: random.Random) -> None:
        """Publish two batches a second; every second one is lost on its way to us."""
        for sequence in range(1, 70):
            if sequence % 2:
                self.hear(publisher, sequence, sequence - 1, by=rng.choice(NEIGHBOURS))
            await trio.sleep(0.5)

    async def invent(self, names: int, by: Sequence[PeerId]) -> None:
        """Publish sixty batches a second; each names one that never existed."""
        for number in range(60 * 35):
            publisher = PeerId(f"eve{number % names}")
            self.hear(publisher, 2 * number + 2, 2 * number + 1, by=by[number % len(by)])
            await trio.sleep(1 / 60)


async def run(names: int, by: Sequence[PeerId] = ()) -> Bench:
    bench, rng = Bench(), random.Random(3)
    async with trio.open_nursery() as nursery:
        await nursery.start(bench.repair.run)
        for publisher in HONEST:
            nursery.start_soon(bench.publish, publisher, rng)
        if names:
            nursery.start_soon(bench.invent, names, by)
        await trio.sleep(40)
        nursery.cancel_scope.cancel()
    return bench


@pytest.mark.slow
async def test_honest_repair_keeps_its_pace_while_strangers_invent_gaps(
    autojump_clock: trio.testing.MockClock,
) -> None:
    calm = await run(0)
    assert calm.stats.gaps_filled > 100
    for names, by in (
        (1, ["eve"]),
        (400, ["eve"]),
        (40, NEIGHBOURS),
    ):
        attacked = await run(names, [PeerId(each) for each in by])
        state = f"{names} names by {by}: {attacked.stats}"
        assert attacked.stats.gaps_filled >= 0.9 * calm.stats.gaps_filled, state
        in_vain = sum(count for who, count in attacked.requests.items() if who not in HONEST)
        # Per connection two dozen tries and one in four seconds, of one or two questions.
        assert in_vain <= 2 * (24 + 40 / 4) * len(by), state
        assert len(attacked.watch.gaps) < 512


async def test_a_gap_survives_a_time_without_answers(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bench = Bench()
    bench.silent_until = trio.current_time() + 300
    async with trio.open_nursery() as nursery:
        await nursery.start(bench.repair.run)
        bench.hear(HONEST[0], 1, 0, by=NEIGHBOURS[0])
        bench.hear(HONEST[0], 3, 2, by=NEIGHBOURS[0])
        await trio.sleep(250)
        assert not bench.ledger.knows(HONEST[0], 2)
        await trio.sleep(70)
        assert bench.ledger.knows(HONEST[0], 2)
        assert bench.stats.gaps_abandoned == 0
        nursery.cancel_scope.cancel()
