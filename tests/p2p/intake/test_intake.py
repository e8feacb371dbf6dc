"""Judgement of what gossip brings: the rows of the verdict table that need more than the bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing

from shoal_p2p.events import Source
from shoal_p2p.intake.intake import WAITING_BATCHES
from shoal_p2p.intake.ledger import LedgerLimits, PublisherLedger
from shoal_tasks.errors import UnknownFamily, WorkerUnavailable
from shoal_wire.types import SignedBatch
from shoal_wire.verdict import Outcome, Reason
from tests.support import factories as make
from tests.support.intake_bench import IntakeBench


class IntakeFixture(IntakeBench):
    """One node's intake, and a peer that brings its own batches to it."""

    def __init__(self, queue_batches: int = 16, **options: Any) -> None:
        super().__init__(queue_batches=queue_batches, **options)
        self.peer = make.Author(self.manifest)
        self.reasons: list[Reason] = []

    async def judge(self, raw: bytes, author: make.Author | None = None) -> Reason:
        sender = (author or self.peer).peer_id
        verdict = await self.intake.validate(raw, sender, sender)
        assert (verdict.outcome is Outcome.ACCEPT) == (verdict.reason is Reason.VALID)
        return verdict.reason

    async def judge_in_turn(self, raw: bytes) -> None:
        """Judge in a task of its own: the reason joins `reasons` when it is known."""
        self.reasons.append(await self.judge(raw))


@pytest.fixture
async def bench() -> IntakeFixture:
    return IntakeFixture()


async def test_a_valid_batch_is_stored_as_its_received_bytes(bench: IntakeFixture) -> None:
    raw = bench.peer.sign(1, 2).envelope
    async with bench.running():
        assert await bench.judge(raw) is Reason.VALID
        await trio.testing.wait_all_tasks_blocked()
    assert [kept.envelope for kept in bench.kept] == [raw]
    assert bench.kept[0].publisher == bench.peer.peer_id
    assert len(bench.kept[0].batch.groups) == 2


@pytest.mark.parametrize(("num_chars", "kept"), [(1, [15, 5]), (30_000, [1, 2, 1])])
async def test_what_waits_for_the_buffer_is_kept_together(num_chars: int, kept: list[int]) -> None:
    """Up to a number and a weight, in the order in which it came; less what has become double."""
    bench, parts = IntakeFixture(queue_batches=32), list[int]()

    async def keep(batches: Sequence[SignedBatch]) -> None:
        parts.append(len(batches))
        bench.kept += batches

    bench.intake._receivers = replace(bench.intake._receivers, keep=keep)
    texts = [num_chars * f"{number % 10}" for number in range(20)]
    groups = [make.group(number, texts=texts) for number in range(sum(kept) + 1)]
    batches = [bench.peer.batch([one], sequence=7 + number) for number, one in enumerate(groups)]
    for batch in batches:
        assert await bench.judge(bench.peer.envelope(batch)) is Reason.VALID
    second = replace(batches[0], round=batches[0].round + 1)
    assert await bench.judge(bench.peer.envelope(second)) is Reason.EQUIVOCATION
    async with bench.running():
        await trio.testing.wait_all_tasks_blocked()
    assert parts == kept
    assert [signed.batch for signed in bench.kept] == batches[1:]
    assert bench.intake._queued_bytes == 0


async def test_the_real_worker_confirms_true_questions_and_refuses_false_ones() -> None:
    bench = IntakeFixture(questions=make.SharedWorker())
    true = make.group(of=make.task(5, question=make.real_question(5)))
    false = make.group(of=make.task(6, question=make.real_question(5)))
    assert await bench.judge(bench.peer.envelope(bench.peer.batch([true]))) is Reason.VALID
    both = bench.peer.envelope(bench.peer.batch([true, false]))
    assert await bench.judge(both) is Reason.QUESTION_MISMATCH


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (WorkerUnavailable("busy"), Reason.WORKER_UNAVAILABLE),
        (UnknownFamily("gone"), Reason.UNKNOWN_FAMILY),
    ],
)
async def test_our_own_fault_is_no_ones_offence(
    bench: IntakeFixture, error: Exception, reason: Reason
) -> None:
    bench.fake.error = error
    raw = bench.peer.envelope()
    verdict = await bench.intake.validate(raw, bench.peer.peer_id, bench.peer.peer_id)
    assert (verdict.outcome, verdict.reason) == (Outcome.IGNORE, reason)
    bench.fake.error = None
    # What was not judged is not remembered: the same batch may come again.
    assert await bench.judge(raw) is Reason.VALID


async def test_two_copies_validated_at_once_are_kept_once(bench: IntakeFixture) -> None:
    bench.fake.gate = trio.Event()
    raw = bench.peer.envelope()
    async with bench.running():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.judge_in_turn, raw)
            nursery.start_soon(bench.judge_in_turn, raw)
            await trio.testing.wait_all_tasks_blocked()
            assert bench.fake.waiting == 2
            bench.fake.gate.set()
        await trio.testing.wait_all_tasks_blocked()
    assert sorted(bench.reasons) == [Reason.DUPLICATE, Reason.VALID]
    assert len(bench.kept) == 1


async def test_two_batches_under_one_number_are_rejected_and_kept_as_evidence(
    bench: IntakeFixture,
) -> None:
    first = bench.peer.sign(1, sequence=9)
    second = bench.peer.sign(2, sequence=9)
    third = bench.peer.sign(3, sequence=9)
    assert await bench.judge(first.envelope) is Reason.VALID
    assert await bench.judge(second.envelope) is Reason.EQUIVOCATION
    # From now on the number is invalid, for the first copy too; the pair is reported once.
    assert await bench.judge(first.envelope) is Reason.EQUIVOCATION
    assert await bench.judge(third.envelope) is Reason.EQUIVOCATION
    assert bench.accused == [(make.equivocation(first, second), second.envelope)]
    assert await bench.judge(bench.peer.envelope(bench.peer.batch(sequence=10))) is Reason.VALID


async def test_two_batches_under_one_number_at_once_are_found_out(bench: IntakeFixture) -> None:
    bench.fake.gate = trio.Event()
    envelopes = [bench.peer.sign(number, sequence=4).envelope for number in (1, 2)]
    async with trio.open_nursery() as nursery:
        for raw in envelopes:
            nursery.start_soon(bench.judge_in_turn, raw)
        await trio.testing.wait_all_tasks_blocked()
        bench.fake.gate.set()
    assert sorted(bench.reasons) == [Reason.EQUIVOCATION, Reason.VALID]
    assert len(bench.accused) == 1


async def test_the_first_of_a_pair_is_not_kept_even_if_it_still_waits(bench: IntakeFixture) -> None:
    honest = bench.peer.envelope(bench.peer.batch(sequence=1))
    assert await bench.judge(honest) is Reason.VALID
    for number in (1, 2):
        raw = bench.peer.sign(number, sequence=2).envelope
        await bench.judge(raw)
    async with bench.running():
        await trio.testing.wait_all_tasks_blocked()
    assert [kept.batch.sequence for kept in bench.kept] == [1]


async def test_an_invalid_batch_does_not_shadow_the_true_one(bench: IntakeFixture) -> None:
    bad = bench.peer.batch([make.group(of=make.task(1, question="forged"))], sequence=3)
    good = bench.peer.batch([make.group(1)], sequence=3)
    assert await bench.judge(bench.peer.envelope(bad)) is Reason.QUESTION_MISMATCH
    assert await bench.judge(bench.peer.envelope(good)) is Reason.VALID


async def test_a_quota_that_others_have_used_up_is_not_the_publishers_offence() -> None:
    """Old batches are replayed all at once; then the publisher itself sends, within its rate."""
    limits = LedgerLimits(groups_per_second=1.0, burst_groups=4.0)
    bench = IntakeFixture(ledger=PublisherLedger(limits), queue_batches=64)
    stranger = make.Author(bench.manifest)
    for number in range(4):
        raw = bench.peer.sign(number).envelope
        await bench.intake.validate(raw, bench.peer.peer_id, stranger.peer_id)
    over = [bench.peer.sign(n).envelope for n in range(4, 20)]
    verdict = await bench.intake.validate(over[0], bench.peer.peer_id, stranger.peer_id)
    assert verdict.reason is Reason.OVER_QUOTA
    reasons = [await bench.judge(raw) for raw in over[1:]]
    assert reasons[:4] == [Reason.BUSY] * 4, "its own quota"
    assert set(reasons[4:]) == {Reason.OVER_QUOTA}


async def test_a_full_queue_ignores_and_takes_the_batch_later() -> None:
    bench = IntakeFixture(queue_batches=2)
    envelopes = [bench.peer.sign(number).envelope for number in range(3)]
    assert [await bench.judge(raw) for raw in envelopes] == [
        Reason.VALID,
        Reason.VALID,
        Reason.BUSY,
    ]
    assert bench.intake.queue_length() == 2
    async with bench.running():
        await trio.testing.wait_all_tasks_blocked()
        assert await bench.judge(envelopes[2]) is Reason.VALID
        await trio.testing.wait_all_tasks_blocked()
    assert [kept.batch.sequence for kept in bench.kept] == [1, 2, 3]


async def test_a_message_waits_unopened_while_many_batches_wait_for_the_buffer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """So it costs nothing if it has to come again, and its sender is not read meanwhile."""
    bench = IntakeFixture(queue_batches=256)
    *first, last = [bench.peer.sign(number).envelope for number in range(WAITING_BATCHES + 1)]
    assert {await bench.judge(raw) for raw in first} == {Reason.VALID}
    before = bench.fake.num_requested
    with trio.move_on_after(3600) as wait:
        await bench.judge(last)
    assert wait.cancelled_caught
    assert bench.fake.num_requested == before
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.judge_in_turn, last)
        await trio.sleep(0.5)
        assert not bench.reasons
        async with bench.running():
            await trio.sleep(0.5)
            assert bench.reasons == [Reason.VALID]


async def test_messages_wait_until_it_is_known_what_is_on_disk(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Else the second batch under a number would count as the first."""
    is_open = trio.Event()
    bench = IntakeFixture(is_open=is_open)
    first = bench.peer.sign(1, sequence=5)
    second = bench.peer.sign(2, sequence=5).envelope
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.judge_in_turn, second)
        await trio.sleep(1.0)
        assert not bench.reasons
        bench.ledger.remember(bench.peer.peer_id, 5, first.batch_id, trio.current_time())
        is_open.set()
    assert bench.reasons == [Reason.EQUIVOCATION]
    assert len(bench.accused) == 1


async def test_a_relay_takes_an_announcement_for_its_batch() -> None:
    limits = LedgerLimits(groups_per_second=1.0, burst_groups=3.0)
    bench = IntakeFixture(ledger=PublisherLedger(limits))

    def announced(groups: int) -> bytes:
        batch = bench.peer.sign(*range(groups))
        return bench.peer.announcement(batch.envelope, num_groups=groups)

    first = announced(2)
    assert await bench.judge(first) is Reason.VALID
    assert await bench.judge(first) is Reason.DUPLICATE
    # It counts against the publisher's quota, though nothing is kept of it.
    assert await bench.judge(announced(2)) is Reason.OVER_QUOTA
    assert await bench.judge(announced(1), make.Author(bench.manifest)) is Reason.SIGNER_NOT_SENDER
    assert bench.kept == []


async def test_a_refusal_names_the_family_that_it_read(bench: IntakeFixture) -> None:
    me, peer = bench.peer.peer_id, bench.peer.peer_id
    old = bench.peer.envelope(bench.peer.batch(created_ms=1))
    known = bench.peer.envelope()
    assert await bench.judge(known) is Reason.VALID
    for raw, reason in ((old, Reason.TOO_OLD), (known, Reason.DUPLICATE)):
        judged = await bench.intake.validate(raw, me, peer)
        assert (judged.reason, judged.family) == (reason, make.GCD.name)
    taken = await bench.intake.validate_fetched(
        old, publisher=peer, sequence=9, num_groups=1, source=Source.GAP
    )
    assert (taken.reason, taken.family) == (Reason.TOO_OLD, make.GCD.name)
    assert (await bench.intake.validate(b"junk", me, peer)).family == ""
