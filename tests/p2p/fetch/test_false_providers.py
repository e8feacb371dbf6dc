"""Providers that lie, stall, cut short or never end: cut off, and the batch comes from another."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from shoal_p2p.fetch.client import NoAnswerError
from shoal_p2p.fetch.exchange import ExchangeSettings
from shoal_p2p.fetch.pull import PullLimits
from shoal_p2p.fetch.pull_queue import QueueLimits
from shoal_wire.limits import MAX_CHUNK_BYTES, MAX_REQUEST_BYTES, ROLLOUTS_PROTOCOL
from shoal_wire.manifest import Manifest
from shoal_wire.rollout_messages import (
    Answer,
    Chunk,
    ChunkQuery,
    Envelopes,
    Listing,
    Query,
    RecentQuery,
    SinceQuery,
)
from shoal_wire.types import PeerId, SignedBatch
from shoal_wire.verdict import Reason
from tests.support import factories as make
from tests.support.exchange_nodes import (
    NO_BACKFILL,
    QUICK,
    ExchangeNode,
    big_groups,
    open_node,
)
from tests.support.false_provider import FalseProvider, open_false_provider, open_three
from tests.support.nodes import until
from tests.support.rollout_answers import NOT_HELD, PENDING, answer_from, ref_of

HASTY = replace(NO_BACKFILL, answer_seconds=0.4)


@asynccontextmanager
async def opened(
    tmp_path: Path, settings: ExchangeSettings = NO_BACKFILL
) -> AsyncIterator[tuple[ExchangeNode, ExchangeNode, FalseProvider]]:
    """A node under test, an honest one, and a false provider that the first has met."""
    async with open_three(tmp_path, settings) as (victim, honest, false):
        false.gives([])
        await false.meet(victim.address, victim.peer_id)
        yield victim, honest, false


def big_batch(false: FalseProvider, size: int = 700_000) -> SignedBatch:
    return false.author.sign(*big_groups(0, size))


async def announce_held_by(holder: ExchangeNode, false: FalseProvider, batch: SignedBatch) -> None:
    """Announce a batch that the holder has too."""
    await holder.store_batch(batch.envelope)
    await false.announce(batch.envelope, sequence=batch.batch.sequence)


LIES: dict[str, tuple[Callable[[Any, int], Answer | bytes], Reason]] = {
    "garbage": (
        lambda query, size: Chunk(num_bytes=size, data=bytes(query.length)),
        Reason.WRONG_OBJECT,
    ),
    "a byte too few": (
        lambda query, size: Chunk(num_bytes=size, data=bytes(query.length - 1)),
        Reason.MALFORMED_ANSWER,
    ),
    "more than was asked for": (
        lambda _, size: Chunk(num_bytes=size, data=bytes(MAX_CHUNK_BYTES)),
        Reason.MALFORMED_ANSWER,
    ),
    "no answer": (lambda *_: b"\xff" * 50, Reason.MALFORMED_ANSWER),
    "too long": (lambda *_: bytes(MAX_CHUNK_BYTES + 64 * 1024), Reason.MALFORMED_ANSWER),
    "another kind": (lambda *_: Envelopes(envelopes=(b"x",)), Reason.MALFORMED_ANSWER),
}
"""A false answer to a request for part of a batch of that many bytes, and its reason."""


@pytest.mark.slow
async def test_a_lying_provider_is_blamed_and_another_one_used(tmp_path: Path) -> None:
    async with opened(tmp_path) as (victim, honest, _):
        await victim.host.dial(honest.address)
        for number, (lie, (answer, reason)) in enumerate(LIES.items(), start=1):
            async with open_false_provider(victim.manifest) as false:
                await false.meet(victim.address, victim.peer_id)
                batch = big_batch(false)
                size = len(batch.envelope)
                false.answer(lambda query, answer=answer, size=size: answer(query, size))
                await announce_held_by(honest, false, batch)
                await until(lambda number=number: victim.counts()["batches"]["pull"] == number)
                assert victim.blamed(false.peer_id) == [reason], lie
                # Once, and then no more for a long while.
                assert len(false.queries) == (2 if lie == "garbage" else 1)
        assert victim.blamed(honest.peer_id) == []


async def test_a_stalling_provider_is_left_for_another(tmp_path: Path) -> None:
    async with opened(tmp_path, HASTY) as (victim, honest, false):
        await victim.host.dial(honest.address)
        batch = big_batch(false)
        false.answer(lambda _query: None)
        await announce_held_by(honest, false, batch)
        await until(lambda: victim.counts()["batches"]["pull"] == 1)
        # Slow is no crime: it may be the network.
        assert victim.blamed(false.peer_id) == []
        assert victim.counts()["failures"] == {"timeout": 1}


async def test_a_peer_that_withholds_this_nodes_batches_still_serves_the_others(
    tmp_path: Path,
) -> None:
    """The question about another node with this key comes first, and is not vital."""
    async with opened(tmp_path, HASTY) as (victim, _honest, false):
        own = SinceQuery(publisher=victim.peer_id, after_sequence=0, max_batches=1)
        false.host.set_request_handler(
            ROLLOUTS_PROTOCOL, _never, max_request_bytes=MAX_REQUEST_BYTES
        )
        asker = victim.exchange.duplicate_identity._asker
        with pytest.raises(NoAnswerError, match="timeout"):
            await asker.ask(false.peer_id, own, Listing, is_vital=False)
        assert asker.is_usable(false.peer_id)
        assert victim.counts()["failures"] == {}
        with pytest.raises(NoAnswerError, match="timeout"):
            await asker.ask(false.peer_id, own, Listing)
        assert not asker.is_usable(false.peer_id)


async def _never(_peer: PeerId, _raw: bytes) -> bytes:
    await trio.sleep_forever()
    raise AssertionError("unreachable")


def only_first(batch: SignedBatch, data: bytes) -> Callable[[Query], Answer]:
    """Give `data` as the beginning of a batch, and nothing after that."""

    def answer(query: Query) -> Answer:
        if isinstance(query, ChunkQuery) and not query.offset:
            return Chunk(num_bytes=len(batch.envelope), data=data[: query.length])
        return NOT_HELD

    return answer


async def test_a_pull_goes_on_where_another_provider_stopped(tmp_path: Path) -> None:
    async with opened(tmp_path) as (victim, honest, false):
        await victim.host.dial(honest.address)
        batch = big_batch(false, 1_500_000)
        false.answer(only_first(batch, batch.envelope))
        await announce_held_by(honest, false, batch)
        await until(lambda: victim.counts()["batches"]["pull"] == 1)
        assert 0 < honest.counts()["bytes_out"] < len(batch.envelope)


async def test_mismatched_chunks_blame_no_provider_of_true_ones(tmp_path: Path) -> None:
    async with opened(tmp_path) as (victim, honest, false):
        await victim.host.dial(honest.address)
        batch = big_batch(false, 1_500_000)
        false.answer(only_first(batch, bytes(len(batch.envelope))))
        await announce_held_by(honest, false, batch)
        await until(lambda: victim.counts()["batches"]["pull"] == 1)
        assert victim.blamed(honest.peer_id) == []


async def test_who_announces_what_it_does_not_have_loses_a_little(tmp_path: Path) -> None:
    async with opened(tmp_path) as (victim, _honest, false):
        await false.announce(bytes(100_000))
        await until(lambda: victim.counts()["announced_abandoned"] == 1)
        assert victim.blamed(false.peer_id) == [Reason.UNFETCHABLE]
        assert victim.counts()["announced_running"] == 0


async def test_who_announces_and_is_gone_is_not_blamed(tmp_path: Path) -> None:
    settings = replace(NO_BACKFILL, pull=PullLimits(max_pause_seconds=0.2))
    async with opened(tmp_path, settings) as (victim, honest, false):
        await victim.meet(honest)
        false.answer(lambda _query: PENDING)
        await false.announce(bytes(100_000))
        await until(lambda: victim.counts()["announced_running"] == 1)
        await false.host.disconnect(victim.peer_id)
        await until(lambda: victim.counts()["announced_abandoned"] == 1)
        assert victim.blamed(false.peer_id) == []


@pytest.mark.parametrize("what", ["number", "signer", "garbage"])
async def test_an_announcement_of_something_else_is_its_signers_fault(
    tmp_path: Path, what: str
) -> None:
    async with opened(tmp_path) as (victim, _honest, false):
        other = make.Author(false.manifest, now_ms=false.author.now_ms)
        author = other if what == "signer" else false.author
        batch = author.batch(big_groups(0, 100_000), sequence=77)
        envelope = bytes(100_000) if what == "garbage" else author.envelope(batch)
        false.gives([envelope])
        sequence = 78 if what == "number" else 77
        await false.announce(envelope, sequence=sequence)
        await until(lambda: victim.blamed(false.peer_id))
        expected = Reason.MALFORMED_ENVELOPE if what == "garbage" else Reason.BAD_ANNOUNCEMENT
        assert victim.blamed(false.peer_id) == [expected]
        assert victim.blamed(other.peer_id) == []
        # The same bytes once more are not even fetched.
        num_queries = len(false.queries)
        await false.announce(envelope, sequence=sequence)
        await until(lambda: victim.verdicts[-1][2].reason is Reason.DUPLICATE)
        assert len(false.queries) == num_queries


async def test_a_flood_of_announcements_stays_within_its_bounds(tmp_path: Path) -> None:
    limits = QueueLimits(max_jobs_per_publisher=4)
    settings = replace(NO_BACKFILL, queue=limits)
    async with opened(tmp_path, settings) as (victim, honest, false):
        await victim.meet(honest)
        false.answer(lambda _query: PENDING)
        for number in range(60):
            await false.announce(b"%d" % number + bytes(1_000_000))
        await until(lambda: len(victim.verdicts) == 60)
        reasons = [judged.reason for _, _, judged in victim.verdicts]
        assert reasons.count(Reason.VALID) == 4
        assert reasons.count(Reason.OVER_QUOTA) == 56
        assert victim.counts()["announced_running"] <= 2
        # An honest big batch is not held up by them.
        groups = big_groups(0, 200_000)
        await honest.share(*groups)
        await until(lambda: len(victim.received_numbers()) == len(groups))


# Listings

EAGER = replace(QUICK, backfill=replace(QUICK.backfill, first_peers=1))


@pytest.mark.parametrize("lie", ["shard", "too many", "bytes", "sizes", "garbage", "signer"])
async def test_a_false_listing_costs_who_gave_it(tmp_path: Path, lie: str) -> None:
    manifest = make.swarm(shard_count=4)
    async with (
        open_node(tmp_path / "victim", manifest, settings=EAGER) as victim,
        open_false_provider(manifest) as false,
    ):
        signed = false.author.signed()
        ref = ref_of(signed)
        given = signed.envelope
        if lie == "sizes":
            ref = replace(ref, num_bytes=ref.num_bytes - 1)
        if lie == "signer":
            ref = replace(ref, publisher=make.Author(manifest).peer_id)
        if lie == "garbage":
            given = bytes(ref.num_bytes)

        def answer(query: Query) -> Answer:
            match query:
                case RecentQuery() if lie == "shard":
                    # As if it did not know which shard a publisher is on.
                    refs = [replace(ref, publisher=other_shard(manifest, query.shards))]
                case RecentQuery() if lie == "too many":
                    refs = [ref] * (query.max_batches + 1)
                case RecentQuery() if lie == "bytes":
                    refs = [replace(ref, num_bytes=query.max_bytes + 1)]
                case RecentQuery():
                    refs = [ref]
                case SinceQuery():
                    return NOT_HELD
                case _:
                    return answer_from(query, {ref.batch_id: given})
            return Listing(batches=tuple(refs))

        false.answer(answer)
        if lie == "shard":
            victim.exchange._backfill._shards = frozenset({0})
        await false.host.dial(victim.address)
        await until(lambda: victim.blamed(false.peer_id))
        good = {"sizes": Reason.WRONG_OBJECT, "garbage": Reason.WRONG_OBJECT}
        assert victim.blamed(false.peer_id) == [good.get(lie, Reason.MALFORMED_ANSWER)]
        assert victim.received_numbers() == set()


def other_shard(manifest: Manifest, shards: tuple[int, ...]) -> PeerId:
    while True:
        author = make.Author(manifest)
        if author.manifest.shard_of(author.peer_id) not in shards:
            return author.peer_id


async def test_what_a_provider_passes_on_is_judged_like_gossip(tmp_path: Path) -> None:
    manifest = make.swarm()
    async with (
        open_node(tmp_path / "victim", manifest, settings=EAGER) as victim,
        open_false_provider(manifest) as false,
    ):
        author = make.Author(manifest, now_ms=false.author.now_ms)
        bad = author.sign(make.group(of=make.task(1, question="forged")))
        old = author.sign(2, created_ms=make.NOW_MS)
        good = author.sign(3)
        batches = (bad, old, good)
        false.gives([one.envelope for one in batches], [ref_of(one) for one in batches])
        await false.host.dial(victim.address)
        await until(lambda: victim.received_numbers() == {3})
        # The signer for what it signed, the provider for what it could have seen.
        # A second list, while the batch of the first is judged, may cost the provider more.
        rejects = [v for v in victim.verdicts if v[2].outcome == "reject"]
        assert {v[0] for v in rejects} == {false.peer_id}
        assert {v[1] for v in rejects} <= {author.peer_id, false.peer_id}
        judged = next(v for v in rejects if v[1] == author.peer_id)
        assert judged[2].reason is Reason.QUESTION_MISMATCH
        assert Reason.TOO_OLD in [v[2].reason for v in victim.verdicts]
