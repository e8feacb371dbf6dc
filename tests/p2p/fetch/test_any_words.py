"""Whatever a stranger lists, announces, gives and changes of honest peers' batches: every honest
one arrives, once and as it was signed, and only the unknown peer is blamed."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_p2p.events import Source
from shoal_p2p.fetch.batches import BatchFetch
from shoal_p2p.fetch.client import NoAnswerError, RolloutClient
from shoal_p2p.fetch.context import FetchContext
from shoal_p2p.fetch.pending_fetches import PendingFetches
from shoal_p2p.fetch.pull_queue import PullJob
from shoal_p2p.fetch.stats import FetchStats
from shoal_p2p.intake.ledger import PublisherLedger
from shoal_wire.digests import batch_id
from shoal_wire.limits import ROLLOUTS_PROTOCOL
from shoal_wire.rollout_codec import decode_query, encode_answer
from shoal_wire.rollout_messages import BatchRef
from shoal_wire.types import BatchId, PeerId
from shoal_wire.verdict import Outcome, Verdict
from tests.support import factories as make
from tests.support.doubles.host import FakeHost
from tests.support.exchange_nodes import big_groups
from tests.support.intake_bench import IntakeBench
from tests.support.rollout_answers import answer_from, ref_of
from tests.wire import envelope_mutations as mutations

MANIFEST = make.swarm(max_batch_bytes=4 << 20)
ME, ANN, BOB, HOLDER, STRANGER = (make.Author(MANIFEST) for _ in range(5))
HONEST = [
    ANN.sign(1),
    ANN.sign(2),
    ANN.sign(*big_groups(10, 70_000)),
    BOB.sign(3),
    BOB.sign(*big_groups(20, 70_000)),
]
TRUE = {signed.batch_id: signed.envelope for signed in HONEST}
OWN = ME.sign(5)
NAMES = [author.peer_id for author in (ME, ANN, BOB, HOLDER, STRANGER)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An honest batch as the stranger tells of it, and the bytes that it gives for it."""

    ref: BatchRef
    given: bytes
    how: str
    """gossip, gap, backfill or pull."""


_LIES: dict[str, st.SearchStrategy[Any]] = {
    "publisher": st.sampled_from(NAMES),
    "sequence": st.integers(1, 4),
    "num_bytes": st.sampled_from([1, 1000, 66_000, 200_000]),
    "num_groups": st.sampled_from([1, 2, 5, 256]),
    "batch_id": st.sampled_from([s.batch_id for s in [*HONEST, OWN]]),
}
_OWN_WORDS = ("sequence", "num_groups", "batch_id", "num_bytes")
"""The fields by which the stranger describes a batch that it announces as its own."""


@st.composite
def offers(draw: st.DrawFn) -> Offer:
    signed = draw(st.sampled_from([*HONEST, OWN]))
    given = signed.envelope
    # Few lies at a time: most of those with many are found out by the first.
    lies = draw(st.sets(st.sampled_from([*_LIES, "given"]), max_size=2))
    if "given" in lies:
        given = draw(mutations.respelled(given) | mutations.mutated(given))
    ref = replace(ref_of(signed), batch_id=BatchId(batch_id(given)), num_bytes=len(given))
    changes = {name: draw(_LIES[name]) for name in sorted(lies - {"given"})}
    how = draw(st.sampled_from(["gossip", "gap", "backfill", "pull"]))
    return Offer(ref=replace(ref, **changes), given=given, how=how)


class Bench(IntakeBench):
    """Intake and fetching of one node, which can ask a peer that holds all honest batches, and the
    stranger; and who was blamed."""

    def __init__(self) -> None:
        ledger, stats = PublisherLedger(), FetchStats()
        wanted = PendingFetches(me=ME.peer_id, manifest=MANIFEST, ledger=ledger, stats=stats)
        super().__init__(MANIFEST, me=ME.peer_id, ledger=ledger, announcements=wanted)
        self.lies: dict[BatchId, bytes] = {}
        self.blamed: set[PeerId | None] = set()
        host = FakeHost(answers={ROLLOUTS_PROTOCOL: self._answer})
        for peer in (HOLDER, STRANGER):
            host.connect(peer.peer_id)
        means = FetchContext(
            manifest=MANIFEST,
            host=host,
            asker=RolloutClient(host=host, report=self._report, stats=stats),
            ledger=ledger,
            stats=stats,
            report=self._report,
            wall_ms=lambda: make.NOW_MS,
            rng=random.Random(1),
        )
        self.fetch = BatchFetch(means=means, wanted=wanted, take=self._take)

    async def _answer(self, peer_id: PeerId, payload: bytes) -> bytes:
        await trio.sleep(0.01)
        held = self.lies if peer_id == STRANGER.peer_id else TRUE
        return encode_answer(answer_from(decode_query(payload), held))

    async def _take(self, raw: bytes, job: PullJob, provider: PeerId) -> Verdict:
        return await self.intake.validate_fetched(
            raw,
            publisher=job.publisher,
            sequence=job.sequence,
            num_groups=job.num_groups,
            source=job.source,
            provider=provider,
        )

    def _report(self, forwarder: PeerId, signer: PeerId | None, judged: Verdict) -> None:
        if judged.outcome is Outcome.REJECT:
            self.blamed |= {forwarder, signer}

    async def hear(self, offer: Offer) -> None:
        """Meet one offer of the stranger's."""
        me = STRANGER.peer_id
        self.lies[offer.ref.batch_id] = offer.given
        match offer.how:
            case "gossip":
                self._report(me, me, await self.intake.validate(offer.given, me, me))
            case "pull":
                listed = {name: getattr(offer.ref, name) for name in _OWN_WORDS}
                message = STRANGER.announcement(**listed)
                self._report(me, me, await self.intake.validate(message, me, me))
            case _:
                await self._list(me, [offer.ref], Source(offer.how))

    async def _list(self, peer: PeerId, refs: list[BatchRef], source: Source) -> None:
        with suppress(NoAnswerError):
            await self.fetch.fetch_listed(peer, refs, source)

    async def settle(self, rng: random.Random) -> None:
        """Wait for what is pulled, and hear of what is missing from who holds it, a few times."""
        for _ in range(3):
            refs = [ref_of(signed) for signed in HONEST]
            rng.shuffle(refs)
            await self._list(HOLDER.peer_id, refs, Source.BACKFILL)
            await trio.sleep(300)


def live(listed: list[Offer], seed: int) -> Bench:
    """Meet what the stranger tells, honest messages between, and end with a fair chance."""
    rng = random.Random(seed)

    async def main() -> Bench:
        bench = Bench()
        async with trio.open_nursery() as nursery:
            await nursery.start(bench.intake.run)
            await nursery.start(bench.fetch.run)
            for offer in listed:
                nursery.start_soon(bench.hear, offer)
                await trio.sleep(rng.choice([0.0, 0.005, 30.0]))
                if rng.random() < 0.3:
                    signed = rng.choice(HONEST)
                    await bench.intake.validate(signed.envelope, signed.publisher, HOLDER.peer_id)
            await bench.settle(rng)
            nursery.cancel_scope.cancel()
        return bench

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def check(listed: list[Offer], seed: int) -> None:
    bench = live(listed, seed)
    assert bench.blamed <= {STRANGER.peer_id}
    assert bench.accused == []
    assert sorted(s.envelope for s in bench.kept) == sorted(s.envelope for s in HONEST)


@given(st.lists(offers(), max_size=6), st.integers(0, 2**16))
@settings(max_examples=25)
def test_only_the_unknown_peer_is_blamed_and_all_honest_batches_arrive(
    listed: list[Offer], seed: int
) -> None:
    check(listed, seed)


@pytest.mark.slow
@pytest.mark.timeout(900)
@given(st.lists(offers(), max_size=20), st.integers(0, 2**16))
@settings(max_examples=1500)
def test_the_same_of_thousands_of_strangers(listed: list[Offer], seed: int) -> None:
    check(listed, seed)
