"""The outbox: what was acknowledged goes out, once, in order, as the same bytes."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shoal_p2p.fair.buckets import Rate
from shoal_p2p.intake.ledger import LedgerLimits
from shoal_p2p.intake.validation import open_announcement, open_message, open_payload
from shoal_p2p.rollouts import outbox as outbox_module
from shoal_p2p.rollouts.outbox import (
    _PACE_SHARE,
    MAX_PACED_GROUPS,
    Outbox,
    OutboxFullError,
    OversizeBatchError,
)
from shoal_p2p.store.store import Store
from shoal_wire.codec import batch_to_bytes, decode_batch
from shoal_wire.envelope import open_envelope
from shoal_wire.limits import ANNOUNCEMENT_PAYLOAD_TYPE, MAX_BATCH_BYTES, MAX_GROUPS_PER_BATCH
from shoal_wire.types import RolloutBatch
from tests.support import factories as make
from tests.support.doubles.gossip import FakeGossip
from tests.support.doubles.store import full_disk, open_store
from tests.support.exchange_nodes import noise
from tests.support.local_node import wall_ms
from tests.support.nodes import until

PEER = make.fresh_identity()


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "RETRY_S", 0.01)


class Bench:
    """An outbox over a real store, with a clock that a test may put forward."""

    def __init__(self, store: Store, gossip: FakeGossip, **rules: Any) -> None:
        self.manifest = make.swarm(**rules)
        self.skew_ms = 0
        self.store = store
        self.gossip = gossip
        self.outbox = Outbox(
            manifest=self.manifest,
            identity=PEER,
            store=store,
            gossip=gossip,
            wall_ms=lambda: wall_ms() + self.skew_ms,
        )

    async def share(self, number: int) -> None:
        await self.outbox.accept(make.publish([make.group(number)], key=b"key %d" % number))

    async def drained(self) -> None:
        """Wait until nothing waits any more."""
        with trio.fail_after(20):
            await self.outbox.drained()

    async def sent(self) -> list[RolloutBatch]:
        """Return the batches that went out, once nothing waits."""
        await self.drained()
        return [contents(data) for _, data in self.gossip.published]

    async def numbers(self) -> list[int]:
        """Return their sequence numbers."""
        return [batch.sequence for batch in await self.sent()]


def contents(envelope: bytes) -> RolloutBatch:
    return decode_batch(open_envelope(envelope).payload, max_bytes=MAX_BATCH_BYTES)


@asynccontextmanager
async def opened(
    data_dir: Path, gossip: FakeGossip | None = None, *, send: bool = True, **rules: Any
) -> AsyncIterator[Bench]:
    """One start of an outbox; leaving the context is as sudden as a kill."""
    async with (
        open_store(data_dir / "node.db", peer_id=PEER.peer_id) as store,
        trio.open_nursery() as nursery,
    ):
        bench = Bench(store, gossip or FakeGossip(), **rules)
        if send:
            await nursery.start(bench.outbox.run)
        yield bench
        nursery.cancel_scope.cancel()


async def test_batches_go_out_in_order_as_peers_accept_them(tmp_path: Path) -> None:
    async with opened(tmp_path) as bench:
        for number in range(5):
            await bench.share(number)
        assert await bench.numbers() == [1, 2, 3, 4, 5]
        context = make.context(bench.manifest, make.fresh_identity().peer_id)
        for topic, data in bench.gossip.published:
            message = open_message(data, author=PEER.peer_id, context=context)
            open_payload(message, author=PEER.peer_id, context=context, now_ms=wall_ms())
            assert topic == bench.manifest.topic(bench.manifest.shard_of(PEER.peer_id))
        assert bench.outbox.num_batches_sent == 5


async def test_a_restart_sends_the_same_bytes_each_naming_the_one_before(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, send=False) as bench:
        first = await bench.outbox.accept(make.publish([make.group(1)], key=b"a"))
        second = await bench.outbox.accept(make.publish([make.group(2)], key=b"b"))
        assert (first.sequence, second.sequence) == (1, 2)
        assert bench.gossip.published == []
    async with opened(tmp_path) as bench:
        await bench.share(3)
        numbers = [(batch.sequence, batch.previous_sequence) for batch in await bench.sent()]
        assert [data for _, data in bench.gossip.published][:2] == [
            first.signed.envelope,  # type: ignore[union-attr]
            second.signed.envelope,  # type: ignore[union-attr]
        ]
        assert numbers == [(1, 0), (2, 1), (3, 2)]
    async with opened(tmp_path) as bench:
        assert bench.outbox.num_unsent == 0
        assert bench.gossip.published == []


async def test_a_resend_is_the_same_batch_before_and_after_a_restart(tmp_path: Path) -> None:
    request = make.publish([make.group(1)], key=b"once")
    async with opened(tmp_path) as bench:
        first = await bench.outbox.accept(request)
        again = await bench.outbox.accept(request)
        assert await bench.numbers() == [1]
    async with opened(tmp_path) as bench:
        later = await bench.outbox.accept(request)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert bench.gossip.published == []
    for resent in (again, later):
        assert not resent.is_new
        assert (resent.sequence, resent.batch_id) == (first.sequence, first.batch_id)
    assert first.is_new


async def test_a_batch_too_old_for_the_swarm_is_given_up_and_counted(tmp_path: Path) -> None:
    async with opened(tmp_path, FakeGossip(peers=0), max_age_seconds=60) as bench:
        await bench.share(1)
        bench.skew_ms = 59_000
        await trio.sleep(0.03)
        assert bench.outbox.num_unsent == 1
        bench.skew_ms = 61_000
        await until(lambda: bench.outbox.num_unsent == 0)
        assert bench.outbox.num_batches_expired == 1
        bench.gossip.peers = 1
        bench.skew_ms = 0
        await bench.share(2)
        assert await bench.numbers() == [2]
        assert await bench.store.unsent() == []


async def test_too_many_unsent_give_up_the_oldest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "MAX_UNSENT", 3)
    async with opened(tmp_path, FakeGossip(peers=0)) as bench:
        for number in range(5):
            await bench.share(number)
            assert bench.outbox.num_unsent <= 3
        assert (bench.outbox.num_batches_expired, bench.outbox.num_batches_sent) == (2, 0)
        bench.gossip.peers = 1
        assert await bench.numbers() == [3, 4, 5]


async def test_a_trainer_that_makes_more_than_peers_take_leaves_no_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is not sent has had no number: each batch that goes out names the one before it."""
    monkeypatch.setattr(
        outbox_module,
        "LedgerLimits",
        lambda: LedgerLimits(groups_per_second=60.0, burst_groups=40.0),
    )
    refused = 0
    async with opened(tmp_path) as bench:
        for number in range(120):
            groups = [make.group(4 * number + i) for i in range(4)]
            try:
                await bench.outbox.accept(
                    make.publish(groups, key=b"key %d" % number), max_groups=20
                )
            except OutboxFullError as error:
                assert "60 groups a second" in str(error)
                refused += 1
            await trio.sleep(0.005)
        assert refused > 20
        assert refused == bench.outbox.num_batches_postponed
        sent = await bench.sent()
        assert bench.outbox.num_batches_expired == 0
        assert [batch.sequence for batch in sent] == list(range(1, 121 - refused))
        assert [batch.previous_sequence for batch in sent] == list(range(120 - refused))
        again = await bench.outbox.accept(make.publish([make.group(1)], key=b"key 0"), max_groups=0)
        assert (again.sequence, again.is_new) == (1, False)


@settings(max_examples=4)
@given(num_groups=st.integers(6, MAX_PACED_GROUPS), overload=st.floats(1.1, 4.0))
@example(num_groups=73, overload=4.0)
def test_what_is_accepted_goes_out_soon_and_all_that_peers_take_is_sent(
    num_groups: int, overload: float
) -> None:
    pace = _PACE_SHARE * LedgerLimits().groups_per_second
    sent: list[float] = []

    async def hear(_topic: str, _data: bytes) -> int:
        await trio.lowlevel.checkpoint()
        sent.append(trio.current_time())
        return 1

    async def main() -> None:
        gossip, accepted = FakeGossip(), list[float]()
        gossip.publish = hear  # type: ignore[assignment,method-assign]
        groups = [make.group(number) for number in range(num_groups)]
        with tempfile.TemporaryDirectory() as folder:
            async with opened(Path(folder), gossip) as bench:
                while (now := trio.current_time()) < 20:
                    request = make.publish(groups, key=b"%d" % len(accepted))
                    try:
                        await bench.outbox.accept(request, max_groups=MAX_PACED_GROUPS)
                        accepted.append(now)
                    except OutboxFullError:
                        await trio.sleep(0.5)  # as a trainer does
                        continue
                    await trio.sleep(num_groups / pace / overload)
                await bench.outbox.drained()
        # The first ones wait for the pace: no peer has been seen to receive them yet.
        delays = [out - at for out, at in zip(sent, accepted, strict=True) if at > sent[0]]
        assert max(delays) <= 2.5 + num_groups / pace
        assert num_groups * len(sent) >= 0.9 * pace * 20

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


async def test_while_the_swarm_is_behind_the_trainer_waits_and_nothing_accepted_is_lost(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    gossip = FakeGossip()
    async with opened(tmp_path, gossip) as bench:
        accepted, errors = 0, []
        for number in range(240):
            gossip.late = 8.0 if 40 <= number < 100 else 0.0
            try:
                await bench.share(number)
                accepted += 1
            except OutboxFullError as error:
                errors.append((number, str(error)))
            await trio.sleep(0.5)
        assert await bench.numbers() == list(range(1, accepted + 1))
        assert {"s behind" in text for _, text in errors} == {True}
        assert 40 < len(errors) < 160
        assert min(number for number, _ in errors) >= 40
        assert bench.outbox.num_batches_expired == 0
        assert bench.outbox.late_s == 0


async def test_a_node_does_not_begin_with_a_burst(tmp_path: Path) -> None:
    """It may have been restarted, and peers have counted what it sent before."""
    async with opened(tmp_path) as bench:
        await bench.share(1)
        assert await bench.numbers() == [1]
        assert bench.outbox._pace.available(trio.current_time()) < 100


async def test_a_batch_over_the_swarms_cap_is_refused_and_leaves_no_gap(tmp_path: Path) -> None:
    async with opened(tmp_path, max_batch_bytes=4096) as bench:
        too_long = make.publish([make.group(1, (noise(2000), "7"))], key=b"long")
        with pytest.raises(OversizeBatchError, match="4096"):
            await bench.outbox.accept(too_long)
        await bench.share(2)
        assert await bench.numbers() == [1]


async def test_a_big_batch_is_announced_as_what_it_is(tmp_path: Path) -> None:
    async with opened(tmp_path, max_message_bytes=1024) as bench:
        await bench.share(1)
        own = await bench.outbox.accept(make.publish([make.group(2, (noise(900), "7"))], key=b"b"))
        await bench.drained()
        (_, small), (_, message) = bench.gossip.published
        context = make.context(bench.manifest, make.fresh_identity().peer_id)
        author = PEER.peer_id
        assert contents(small).sequence == 1
        opened_message = open_message(message, author=author, context=context)
        announcement = open_announcement(
            opened_message, author=author, context=context, now_ms=wall_ms()
        )
        envelope = own.signed.envelope  # type: ignore[union-attr]
        batch = contents(envelope)
        assert (announcement.batch_id, announcement.num_bytes) == (own.batch_id, len(envelope))
        assert (announcement.sequence, announcement.previous_sequence, announcement.num_groups) == (
            2,
            1,
            1,
        )
        assert announcement.created_ms == batch.created_ms
        assert (
            announcement.expires_ms
            == batch.created_ms + 1000 * bench.manifest.rules.max_age_seconds
        )
        assert bench.outbox.num_batches_announced == 1


async def test_the_bound_on_the_unpacked_batch_is_that_of_peers(tmp_path: Path) -> None:
    # Peers take a batch of exactly that many bytes, and none that is a byte longer.
    request = make.publish([make.group(n, ("7" * 3000,) * 4) for n in range(12)], key=b"full")
    async with opened(tmp_path, send=False) as bench:
        (length,) = {len(batch_to_bytes(bench.outbox.seal(request, 5, 4).batch))}
    async with opened(tmp_path, max_batch_bytes=length - 1) as bench:
        with pytest.raises(OversizeBatchError, match="unpacked"):
            bench.outbox.seal(request, 5, 4)
    async with opened(tmp_path, max_batch_bytes=length) as bench:
        signed = bench.outbox.seal(request, 5, 4)
        author, context = PEER.peer_id, make.context(bench.manifest, make.fresh_identity().peer_id)
        message = open_message(signed.envelope, author=author, context=context)
        received = open_payload(message, author=author, context=context, now_ms=wall_ms())
        assert received == signed


async def test_a_batch_of_too_many_groups_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as bench:
        groups = [make.group(number) for number in range(MAX_GROUPS_PER_BATCH + 1)]
        with pytest.raises(OversizeBatchError, match="groups"):
            await bench.outbox.accept(make.publish(groups))
        assert (await bench.outbox.accept(make.publish(groups[:-1]))).is_new


async def test_a_disk_that_fails_does_not_end_the_outbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as bench:
        monkeypatch.setattr(bench.store, "mark_sent", full_disk)
        await bench.share(1)
        await bench.share(2)
        assert await bench.numbers() == [1, 2]


async def test_announcements_go_out_no_faster_than_peers_pull(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Rate(burst=2, per_second=0.001)
    monkeypatch.setattr(outbox_module, "ANNOUNCED_PER_SECOND", slow)
    async with opened(tmp_path, max_message_bytes=1024) as bench:
        for number in range(4):
            groups = [make.group(number, (noise(900, number), "7"))]
            await bench.outbox.accept(make.publish(groups, key=b"%d" % number))
        await until(lambda: bench.outbox.num_batches_announced == 2)
        await trio.sleep(0.05)
        context = make.context(bench.manifest, make.fresh_identity().peer_id)
        types = [
            open_message(data, author=PEER.peer_id, context=context).payload_type
            for _, data in bench.gossip.published
        ]
        assert types == [ANNOUNCEMENT_PAYLOAD_TYPE] * 2
        assert bench.outbox.num_unsent == 2
