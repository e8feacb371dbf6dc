"""Whatever a stranger lists, announces, gives and changes of honest peers' batches: every honest
one arrives, once and as it was signed, and nobody is blamed but the stranger."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_lab.simulation.parts import at_once
from shoal_p2p.fetch.asker import RolloutAsker
from shoal_p2p.fetch.batches import BatchFetch
from shoal_p2p.fetch.means import FetchMeans
from shoal_p2p.fetch.pull_queue import PullJob
from shoal_p2p.fetch.stats import FetchStats
from shoal_p2p.fetch.wanted import WantedBatches
from shoal_p2p.intake.intake import Intake, Receivers
from shoal_p2p.intake.ledger import Equivocation, PublisherLedger
from shoal_p2p.intake.validation import Source
from shoal_p2p.net.request import RequestError, RequestFailure
from shoal_wire.digests import batch_id
from shoal_wire.rollout_codec import decode_query, encode_answer
from shoal_wire.rollout_messages import (
    Answer,
    BatchRef,
    BatchRefusalReason,
    Chunk,
    ChunkQuery,
    Envelopes,
    Refusal,
    WholeQuery,
)
from shoal_wire.types import BatchId, PeerId, SignedBatch
from shoal_wire.verdict import Outcome, Verdict
from tests.support import factories as make
from tests.support.doubles.worker import InstantWorker
from tests.support.exchange_nodes import big_groups
from tests.support.false_provider import ref_of
from tests.wire import envelope_mutations as mutations

MANIFEST = make.swarm(max_batch_bytes=4 << 20)
ME, ANN, BOB, HOLDER, STRANGER = (make.Author(MANIFEST) for _ in range(5))
HONEST = [
    ANN.signed(ANN.batch([make.group(1)])),
    ANN.signed(ANN.batch([make.group(2)])),
    ANN.signed(ANN.batch(big_groups(10, 70_000))),
    BOB.signed(BOB.batch([make.group(3)])),
    BOB.signed(BOB.batch(big_groups(20, 70_000))),
]
OWN = ME.signed(ME.batch([make.group(5)]))
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


@dataclass(slots=True)
class Net:
    """Whom the node under test can ask: one that holds all honest batches, and the stranger."""

    lies: dict[BatchId, bytes] = field(default_factory=dict)

    def connected_peers(self) -> frozenset[PeerId]:
        return frozenset({HOLDER.peer_id, STRANGER.peer_id})

    async def request(
        self, peer_id: PeerId, _protocol_id: str, payload: bytes, **_how: Any
    ) -> bytes:
        await trio.sleep(0.01)
        if peer_id not in self.connected_peers():
            raise RequestError(RequestFailure.NOT_CONNECTED, "")
        true = {signed.batch_id: signed.envelope for signed in HONEST}
        held = self.lies if peer_id == STRANGER.peer_id else true
        return encode_answer(_answer(decode_query(payload), held))


def _answer(query: object, held: dict[BatchId, bytes]) -> Answer:
    match query:
        case WholeQuery():
            return Envelopes(envelopes=tuple(held[n] for n in query.batch_ids if n in held))
        case ChunkQuery() if query.batch_id in held:
            raw = held[query.batch_id]
            return Chunk(num_bytes=len(raw), data=raw[query.offset :][: query.length])
        case _:
            return Refusal(reason=BatchRefusalReason.NOT_HELD)


class Bench:
    """Intake and fetching of one node; who was blamed, accused, and what was kept."""

    def __init__(self) -> None:
        self.net = Net()
        self.kept: list[SignedBatch] = []
        self.accused: list[Equivocation] = []
        self.blamed: set[PeerId | None] = set()
        self.ledger, stats = PublisherLedger(), FetchStats()
        self.wanted = WantedBatches(
            me=ME.peer_id, manifest=MANIFEST, ledger=self.ledger, stats=stats
        )
        self.intake = Intake(
            context=make.context(MANIFEST, ME.peer_id),
            questions=InstantWorker(),
            ledger=self.ledger,
            receivers=Receivers(keep=self._keep, accuse=self._accuse, announcements=self.wanted),
            wall_ms=lambda: make.NOW_MS,
            in_thread=at_once,
        )
        means = FetchMeans(
            manifest=MANIFEST,
            host=cast("Any", self.net),
            asker=RolloutAsker(host=cast("Any", self.net), report=self._report, stats=stats),
            ledger=self.ledger,
            stats=stats,
            report=self._report,
            wall_ms=lambda: make.NOW_MS,
            rng=random.Random(1),
        )
        self.fetch = BatchFetch(means=means, wanted=self.wanted, take=self._take)

    async def _take(self, raw: bytes, job: PullJob, provider: PeerId) -> Verdict:
        return await self.intake.take(
            raw,
            publisher=job.publisher,
            sequence=job.sequence,
            num_groups=job.num_groups,
            source=job.source,
            provider=provider,
        )

    async def _keep(self, batches: Sequence[SignedBatch]) -> None:
        self.kept += batches

    async def _accuse(self, pair: Equivocation, _statement: bytes) -> None:
        self.accused.append(pair)

    def _report(self, forwarder: PeerId, signer: PeerId | None, judged: Verdict) -> None:
        if judged.outcome is Outcome.REJECT:
            self.blamed |= {forwarder, signer}

    async def hear(self, offer: Offer) -> None:
        """Meet one offer of the stranger's."""
        me = STRANGER.peer_id
        self.net.lies[offer.ref.batch_id] = offer.given
        match offer.how:
            case "gossip":
                self._report(me, me, await self.intake.validate(offer.given, me, me))
            case "pull":
                message = announcement_of(offer.ref)
                self._report(me, me, await self.intake.validate(message, me, me))
            case _:
                await self._list(me, [offer.ref], Source(offer.how))

    async def _list(self, peer: PeerId, refs: list[BatchRef], source: Source) -> None:
        try:
            await self.fetch.fetch_listed(peer, refs, source)
        except Exception as error:
            if type(error).__name__ != "NoAnswerError":
                raise

    async def settle(self, rng: random.Random) -> None:
        """Wait for what is pulled, and hear of what is missing from who holds it, a few times."""
        for _ in range(3):
            refs = [ref_of(signed) for signed in HONEST]
            rng.shuffle(refs)
            await self._list(HOLDER.peer_id, refs, Source.BACKFILL)
            await trio.sleep(300)


def announcement_of(ref: BatchRef) -> bytes:
    """The stranger says that this batch is its own."""
    told = {
        name: getattr(ref, name) for name in ("sequence", "num_groups", "batch_id", "num_bytes")
    }
    return STRANGER.announcement(**told)


def live(told: list[Offer], seed: int) -> Bench:
    """Meet what the stranger tells, honest messages between, and end with a fair chance."""
    rng = random.Random(seed)

    async def main() -> Bench:
        bench = Bench()
        async with trio.open_nursery() as nursery:
            await nursery.start(bench.intake.run)
            await nursery.start(bench.fetch.run)
            for offer in told:
                nursery.start_soon(bench.hear, offer)
                await trio.sleep(rng.choice([0.0, 0.005, 30.0]))
                if rng.random() < 0.3:
                    signed = rng.choice(HONEST)
                    await bench.intake.validate(signed.envelope, signed.publisher, HOLDER.peer_id)
            await bench.settle(rng)
            nursery.cancel_scope.cancel()
        return bench

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def check(told: list[Offer], seed: int) -> None:
    bench = live(told, seed)
    assert bench.blamed <= {STRANGER.peer_id}
    assert bench.accused == []
    assert sorted(s.envelope for s in bench.kept) == sorted(s.envelope for s in HONEST)


@given(st.lists(offers(), max_size=6), st.integers(0, 2**16))
@settings(max_examples=25)
def test_nobody_but_the_stranger_pays_and_all_honest_batches_arrive(
    told: list[Offer], seed: int
) -> None:
    check(told, seed)


@pytest.mark.slow
@pytest.mark.timeout(900)
@given(st.lists(offers(), max_size=20), st.integers(0, 2**16))
@settings(max_examples=1500)
def test_the_same_of_thousands_of_strangers(told: list[Offer], seed: int) -> None:
    check(told, seed)
