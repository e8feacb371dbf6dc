"""What a batch costs that is small on the wire: bounded, off the loop, and counted.

Nothing here is timed: the parts opened on the loop are counted, and so is the work.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_base.bounded import QUEUE_BYTES
from shoal_p2p.gossip.rate_limiter import FloodLimits, RateLimiter
from shoal_p2p.intake.batch_decoder import (
    HEAVY_BYTES,
    MAX_OPEN_BYTES,
    MAX_OPEN_BYTES_OF_NETWORK,
    MAX_OPEN_BYTES_OF_PEER,
    PARSED_BYTES,
    BatchDecoder,
)
from shoal_p2p.intake.validation import Rejected, weight_of, work_of
from shoal_p2p.rollouts.outbox import new_pace, wait_s_of
from shoal_wire.codec import batch_to_bytes
from shoal_wire.limits import MAX_COMPLETIONS_PER_BATCH
from shoal_wire.types import PeerId, RolloutGroup
from shoal_wire.verdict import Reason
from tests.support import factories as make
from tests.support.intake_bench import IntakeBench


@pytest.fixture
async def bench() -> IntakeBench:
    """The intake of a swarm of large batches."""
    return IntakeBench(make.swarm(max_batch_bytes=8 << 20))


def expensive(count: int = 256, completions: int = 64) -> list[RolloutGroup]:
    """Groups of one task that zstd makes next to nothing of."""
    task = make.task(1)
    return [make.group(of=task, texts=[f"{n}"] * completions) for n in range(count)]


async def test_what_unpacks_to_much_is_not_opened_on_the_loop(bench: IntakeBench) -> None:
    most_expensive = expensive()
    assert len(make.Author().envelope(make.Author().batch(most_expensive))) < 8 * 1024
    assert (await bench.bring(*most_expensive)).reason is Reason.VALID
    assert bench.in_threads == 1
    assert (await bench.bring(make.group(1), make.group(2))).reason is Reason.VALID
    assert bench.in_threads == 1


@pytest.mark.parametrize(
    ("groups", "completions", "chars", "in_thread"),
    [
        (8, 8, 200, 0),  # what a node shares
        (16, 8, 200, 0),
        (8, 8, 600, 1),  # over 32 KiB
        (8, 256, 4, 1),  # small, and full of completions
        (60, 1, 200, 1),  # and of groups
    ],
)
async def test_a_middling_batch_is_opened_on_the_loop_if_little_is_in_it(
    bench: IntakeBench, groups: int, completions: int, chars: int, in_thread: int
) -> None:
    texts = [f"{n:0{chars}}" for n in range(completions)]
    batch = make.Author().batch([make.group(n, texts=texts) for n in range(groups)])
    assert len(batch_to_bytes(batch)) > HEAVY_BYTES
    assert (len(batch_to_bytes(batch)) > PARSED_BYTES) == (chars == 600)
    await bench.bring(*batch.groups)
    assert bench.in_threads == in_thread


async def test_log_probabilities_are_counted_before_they_are_read(bench: IntakeBench) -> None:
    claims = (-1.0,) * 14_000
    claiming = replace(make.completion("x" * 3600), num_tokens=14_000, logprobs=claims)
    assert (await bench.bring(RolloutGroup(task=make.task(1), completions=(claiming,)))).reason
    assert bench.in_threads == 1


async def test_its_digests_and_weights_are_known_when_it_leaves_the_thread(
    bench: IntakeBench,
) -> None:
    async with bench.running():
        assert (await bench.bring(*expensive(200))).reason is Reason.VALID
        await trio.testing.wait_all_tasks_blocked()
    (kept,) = bench.kept
    assert all(group.known_id and group.known_weight for group in kept.batch.groups)


async def test_a_verdict_says_what_it_cost_whatever_it_is(bench: IntakeBench) -> None:
    small = await bench.bring(make.group(1))
    large = await bench.bring(*expensive())
    assert 0 < 100 * small.work_s < large.work_s
    late = make.Author(bench.manifest, now_ms=make.NOW_MS - 10**8)
    refused = await bench.bring(*expensive(), author=late)
    assert refused.reason is Reason.TOO_OLD
    assert refused.work_s == pytest.approx(large.work_s, rel=0.01)


async def test_more_completions_than_a_batch_may_have_are_not_looked_at(bench: IntakeBench) -> None:
    assert (await bench.bring(*expensive())).reason is Reason.VALID
    over = [*expensive(), make.group(2)]
    assert sum(len(group.completions) for group in over) > MAX_COMPLETIONS_PER_BATCH
    judged = await bench.bring(*over)
    assert judged.reason is Reason.BAD_COUNT
    assert judged.work_s == 0.0


async def test_one_forwarder_holds_no_more_open_than_its_share(bench: IntakeBench) -> None:
    """The worker is slow: batches wait for it unpacked."""
    by = make.fresh_identity().peer_id
    bench.fake.gate = trio.Event()
    verdicts: list[Reason] = []
    texts = [f"{n}" + 30_000 * "x" for n in range(60)]
    size = len(batch_to_bytes(make.Author().batch([make.group(1, texts=texts)])))

    async def judge(number: int, forwarder: PeerId) -> None:
        verdicts.append((await bench.bring(make.group(number, texts=texts), by=forwarder)).reason)

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(judge, number, by)
        await trio.testing.wait_all_tasks_blocked()
        fit = MAX_OPEN_BYTES_OF_PEER // size
        assert verdicts == [Reason.BUSY] * (20 - fit)
        nursery.start_soon(judge, 99, make.fresh_identity().peer_id)
        await trio.testing.wait_all_tasks_blocked()
        assert len(verdicts) == 20 - fit, "another's is judged"
        bench.fake.gate.set()
    assert verdicts.count(Reason.VALID) == fit + 1


async def test_the_queue_for_the_buffer_is_bounded_by_what_it_holds(bench: IntakeBench) -> None:
    texts = [f"{n}" + 30_000 * "x" for n in range(60)]
    group = make.group(1, texts=texts)
    for _ in range(40):
        judged = await bench.bring(group)
    assert judged.reason is Reason.BUSY
    held = bench.intake.queue_length() * weight_of(group)
    assert QUEUE_BYTES < held < QUEUE_BYTES + 2 * weight_of(group)


@settings(max_examples=80)
@given(
    calls=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9_000_000), st.booleans())),
)
def test_no_order_of_messages_holds_more_open(calls: list[tuple[int, int, bool]]) -> None:
    """By ten names of two networks."""
    opener, held = BatchDecoder(IntakeBench().in_thread), dict[int, list[Any]]()
    for name, size, leaves in calls:
        if leaves and held.get(name):
            held[name].pop().__exit__(None, None, None)
            continue
        room = opener.reserve((f"network {name % 2}", str(name)), size)
        with suppress(Rejected):
            room.__enter__()
            held.setdefault(name, []).append(room)
        bounds = (MAX_OPEN_BYTES, MAX_OPEN_BYTES_OF_NETWORK, MAX_OPEN_BYTES_OF_PEER)
        assert all(size <= bounds[len(share)] for share, size in opener._open_bytes.items())
    for rooms in held.values():
        for room in rooms:
            room.__exit__(None, None, None)
    assert not opener._open_bytes


async def test_forwarders_take_turns_at_the_thread() -> None:
    order: list[str] = []

    async def in_thread(sync_fn: Callable[..., Any], *args: Any, **_how: object) -> Any:
        await trio.testing.wait_all_tasks_blocked()
        return sync_fn(*args)

    opener = BatchDecoder(in_thread)
    async with trio.open_nursery() as nursery:
        for network, name in [("greedy", f"{n}") for n in range(3)] + [("modest", "it")]:
            note = lambda network=network: order.append(network)  # noqa: E731
            nursery.start_soon(opener.in_thread, note, (network, name))
            await trio.lowlevel.checkpoint()
    assert order.index("modest") <= 1


# What a connection may make others work.

LIMITS = FloodLimits()


def test_who_makes_much_work_waits_and_pays_if_it_goes_on() -> None:
    flow = RateLimiter(LIMITS).for_peer(PeerId("a"), 0.0)
    flow.charge_work(LIMITS.work_burst, 0.0, own_message=True)
    assert flow.wait_s(0.0) == 0.0
    flow.charge_work(0.2, 0.0, own_message=True)
    assert flow.wait_s(0.0) == pytest.approx(1.0)
    assert flow.is_to_blame(0.0)
    assert flow.charge_pause(1.0, 1.0) == 0
    assert flow.charge_pause(2.0, 3.0) == 2


def test_a_forwarder_of_expensive_batches_waits_and_is_not_charged() -> None:
    flow = RateLimiter(LIMITS).for_peer(PeerId("a"), 0.0)
    for _ in range(100):
        flow.charge_work(1.0, 0.0, own_message=False)
    assert 0.0 < flow.wait_s(0.0) < 5.0, "an honest sender gives up after five seconds"
    assert not flow.is_to_blame(0.0)


def test_names_of_one_network_share_what_they_may_make_others_work() -> None:
    gate = RateLimiter(LIMITS)
    for name in range(50):
        peer = PeerId(str(name))
        gate.network_of[peer] = "net"
        flow = gate.for_peer(peer, 0.0)
        flow.charge_work(0.1, 0.0, own_message=True)
    assert flow.wait_s(0.0) > 1.0
    assert not flow.is_to_blame(0.0)


@pytest.mark.parametrize("completions", [2, 8, 64, 256])
def test_an_honest_publisher_at_its_full_quota_never_waits(completions: int) -> None:
    """As much as the outbox lets out, for ten minutes, in batches as large as may be."""
    flow, pace, now = RateLimiter(LIMITS).for_peer(PeerId("a"), 0.0), new_pace(0.0), 0.0
    count = min(512, MAX_COMPLETIONS_PER_BATCH // completions)
    batch = make.Author().batch([make.group(1, texts=[f"{n}" for n in range(completions)])] * count)
    work_s = work_of(batch.groups)
    while now < 600.0:
        now += wait_s_of(pace, count, now)
        assert flow.wait_s(now) == 0.0
        pace.take(count, now)
        flow.charge_work(work_s, now, own_message=True)
        now += 1e-6
