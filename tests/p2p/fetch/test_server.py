"""Giving batches to others: within quotas, whatever they ask and however slowly they read."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import trio.testing
from hypothesis import example, given, settings
from hypothesis import strategies as st
from libp2p.custom_types import TProtocol
from libp2p.peer.id import ID

from shoal_p2p.fair.buckets import Rate, TokenBucket
from shoal_p2p.fetch import client as asker_module
from shoal_p2p.fetch.batch_index import BatchIndex
from shoal_p2p.fetch.server import RolloutServer, ServeLimits
from shoal_p2p.fetch.stats import FetchStats
from shoal_p2p.intake.ledger import Equivocation
from shoal_p2p.net.host import RequestError
from shoal_p2p.net.request import RequestLimits, write_frame
from shoal_wire.limits import MAX_ANSWER_BYTES, MAX_CHUNK_BYTES, ROLLOUTS_PROTOCOL
from shoal_wire.rollout_codec import RolloutProtocolError, decode_answer, encode_query
from shoal_wire.rollout_messages import (
    Answer,
    BatchRefusalReason,
    Chunk,
    ChunkQuery,
    Envelopes,
    Listing,
    Query,
    RecentQuery,
    Refusal,
    SinceQuery,
    WholeQuery,
)
from shoal_wire.types import BatchId, PeerId
from shoal_wire.verdict import Reason, Verdict
from tests.support import factories as make
from tests.support.exchange_nodes import NO_BACKFILL, big_groups, open_node
from tests.support.nodes import open_test_host

ASKER = PeerId("asker")
RECENT = RecentQuery(shards=(0,), max_batches=64, max_bytes=1 << 30, max_age_seconds=3600)


def network_of(peer_id: PeerId) -> str:
    """Return the network of a peer that is named `network/name`."""
    return peer_id.split("/")[0]


class Desk:
    """A server over batches in memory."""

    def __init__(self, limits: ServeLimits | None = None, **rules: Any) -> None:
        self.manifest = make.swarm(**rules)
        self.author = make.Author(self.manifest)
        self.now_ms = make.NOW_MS
        self.shelf = BatchIndex(self.manifest)
        self.envelopes: dict[BatchId, bytes] = {}
        self.stats = FetchStats()
        self.pending: set[BatchId] = set()
        self.verdicts: list[tuple[PeerId | None, Verdict]] = []
        self.server = RolloutServer(
            shelf=self.shelf,
            store=cast("Any", self),
            is_pending=self.pending.__contains__,
            report=lambda _forwarder, signer, judged: self.verdicts.append((signer, judged)),
            stats=self.stats,
            wall_ms=lambda: self.now_ms,
            network_of=network_of,
            limits=limits,
        )

    async def envelope_part(self, name: BatchId, offset: int, length: int) -> bytes | None:
        found = self.envelopes.get(name)
        return None if found is None else found[offset : offset + length]

    def put(self, *groups: int, author: make.Author | None = None, **changes: Any) -> BatchId:
        by = author or self.author
        by.now_ms = self.now_ms
        signed = by.sign(*(groups or (1,)), **changes)
        self.envelopes[signed.batch_id] = signed.envelope
        self.shelf.put(signed, received_ms=self.now_ms)
        return signed.batch_id

    async def ask(self, query: Query, peer: PeerId = ASKER) -> Answer:
        return decode_answer(await self.server.answer(peer, encode_query(query)))

    async def listed(self, query: Query, peer: PeerId = ASKER) -> list[BatchId]:
        answer = await self.ask(query, peer)
        assert isinstance(answer, Listing)
        return [ref.batch_id for ref in answer.batches]


async def test_recent_batches_are_listed_newest_first_within_the_request() -> None:
    desk = Desk()
    old = desk.put(1)
    desk.now_ms += 60_000
    ids = [desk.put(number) for number in range(2, 6)]
    newest = ids[::-1]
    three = sum(len(desk.envelopes[batch_id]) for batch_id in newest[:3])
    assert await desk.listed(RECENT) == [*newest, old]
    assert await desk.listed(replace(RECENT, max_batches=2)) == newest[:2]
    assert await desk.listed(replace(RECENT, max_bytes=three)) == newest[:3]
    assert await desk.listed(replace(RECENT, max_bytes=three - 1)) == newest[:2]
    assert await desk.listed(replace(RECENT, max_age_seconds=59)) == newest
    (other,) = {1, 2} - {*desk.manifest.path(desk.author.peer_id)}
    assert await desk.listed(replace(RECENT, shards=(other,))) == []
    # No peer needs its own batches.
    assert await desk.listed(RECENT, desk.author.peer_id) == []
    # What is too old for the swarm would only be ignored.
    desk.now_ms += 1000 * desk.manifest.rules.max_age_seconds - 30_000
    assert await desk.listed(replace(RECENT, max_age_seconds=1 << 31)) == newest


@given(data=st.data())
@settings(max_examples=25)
async def test_listings_one_below_the_other_name_each_batch_once(data: st.DataObject) -> None:
    desk = Desk()
    ids = [desk.put(number) for number in range(data.draw(st.integers(1, 20)))]
    found: list[BatchId] = []
    query = RECENT
    while page := await desk.listed(
        replace(
            query, max_batches=data.draw(st.integers(1, 8)), before=BatchId(b"".join(found[-1:]))
        )
    ):
        found += page
        # What comes meanwhile is newer.
        desk.put(100 + len(found))
    assert found == ids[::-1]
    gone = data.draw(st.sampled_from(ids))
    desk.shelf.remove(gone)
    answer = await desk.ask(replace(query, before=gone))
    assert answer == Refusal(reason=BatchRefusalReason.NOT_HELD)


async def test_two_batches_of_one_number_are_shown_to_their_signer_alone() -> None:
    desk = Desk()
    me = desk.author.peer_id
    desk.put(1, sequence=4)
    first, last = desk.put(2, sequence=5), desk.put(3, sequence=6)
    second = desk.author.sign(7, sequence=5)
    pair = Equivocation(publisher=me, sequence=5, first=first, second=second.batch_id)
    await desk.server.show_to_signer(pair, second.envelope)
    desk.shelf.remove(first)
    query = SinceQuery(publisher=me, after_sequence=4, max_batches=9)
    assert await desk.listed(query) == [last]
    assert set(await desk.listed(query, me)) == {first, second.batch_id, last}
    assert await desk.listed(replace(query, after_sequence=5), me) == [last]
    whole = WholeQuery(batch_ids=(first, second.batch_id))
    assert await desk.ask(whole) == Envelopes(envelopes=())
    expected = (desk.envelopes[first], second.envelope)
    assert await desk.ask(whole, me) == Envelopes(envelopes=expected)
    # What is no batch that fits into one answer is not kept, and takes the place of the pair.
    for statement in (b"", b"x", bytes(1 << 17)):
        await desk.server.show_to_signer(pair, statement)
        assert await desk.listed(query, me) == [last]


async def test_only_the_requested_shards_are_listed() -> None:
    desk = Desk(shard_count=4)
    authors = [make.Author(desk.manifest) for _ in range(16)]
    ids = {desk.put(i, author=by): by.peer_id for i, by in enumerate(authors)}
    for shard in range(4):
        found = await desk.listed(replace(RECENT, shards=(shard,)))
        assert {desk.manifest.shard_of(ids[name]) for name in found} <= {shard}
        expected = [n for n, peer in ids.items() if desk.manifest.shard_of(peer) == shard]
        assert sorted(found) == sorted(expected)


async def test_a_publishers_batches_above_a_number_are_listed_lowest_first() -> None:
    desk = Desk()
    ids = {number: desk.put(number, sequence=number) for number in (5, 3, 9, 7)}
    desk.put(1, author=make.Author(desk.manifest), sequence=8)
    query = SinceQuery(publisher=desk.author.peer_id, after_sequence=3, max_batches=2)
    assert await desk.listed(query) == [ids[5], ids[7]]
    assert await desk.listed(replace(query, publisher=PeerId("unknown"))) == []


async def test_whole_batches_are_sent_in_the_requested_order_as_far_as_they_fit() -> None:
    desk = Desk(max_batch_bytes=4 << 20)
    small, other = desk.put(1), desk.put(2)
    big = desk.author.sign(*big_groups(10, 2 * MAX_CHUNK_BYTES))
    desk.envelopes[big.batch_id] = big.envelope
    desk.shelf.put(big, received_ms=desk.now_ms)
    unknown = BatchId(bytes(32))
    answer = await desk.ask(WholeQuery(batch_ids=(other, unknown, big.batch_id, small, other)))
    assert answer == Envelopes(envelopes=(desk.envelopes[other], desk.envelopes[small]))


async def test_chunks_are_exact_and_end_with_the_envelope() -> None:
    desk = Desk()
    name = desk.put(1)
    envelope = desk.envelopes[name]
    size = len(envelope)

    async def chunk(offset: int, length: int) -> bytes:
        answer = await desk.ask(ChunkQuery(batch_id=name, offset=offset, length=length))
        assert isinstance(answer, Chunk)
        assert answer.num_bytes == size
        return answer.data

    assert await chunk(0, 10) + await chunk(10, MAX_CHUNK_BYTES) == envelope
    assert await chunk(size - 1, 1) == envelope[-1:]
    assert await chunk(size, 5) == b""
    assert await chunk(1 << 60, 5) == b""


async def test_a_missing_batch_is_reported_and_forgotten_when_its_file_is_lost() -> None:
    desk = Desk()
    query = ChunkQuery(batch_id=BatchId(bytes(32)), offset=0, length=1)
    assert await desk.ask(query) == Refusal(reason=BatchRefusalReason.NOT_HELD)
    desk.pending.add(query.batch_id)
    assert await desk.ask(query) == Refusal(reason=BatchRefusalReason.PENDING)
    name = desk.put(1)
    del desk.envelopes[name]
    lost = await desk.ask(replace(query, batch_id=name))
    assert lost == Refusal(reason=BatchRefusalReason.NOT_HELD)
    assert await desk.listed(RECENT) == []


async def test_requests_over_quota_are_put_off_and_others_are_not(
    autojump_clock: trio.testing.MockClock,
) -> None:
    few = ServeLimits(requests_per_peer=Rate(burst=3, per_second=1))
    desk = Desk(few)
    name = desk.put(1)
    for _ in range(3):
        assert await desk.listed(RECENT) == [name]
    refusal = await desk.ask(RECENT)
    assert refusal == Refusal(reason=BatchRefusalReason.BUSY, retry_after_ms=1000)
    assert await desk.listed(RECENT, PeerId("other")) == [name]
    assert desk.verdicts == []
    await trio.sleep(1)
    assert await desk.listed(RECENT) == [name]
    assert desk.stats.refused["over_quota"] == 1


async def test_bytes_over_quota_are_put_off(autojump_clock: trio.testing.MockClock) -> None:
    desk = Desk(ServeLimits(bytes_per_peer=Rate(burst=600, per_second=100)))
    names = [desk.put(number) for number in range(4)]
    query = WholeQuery(batch_ids=tuple(names))
    got = await desk.ask(query)
    assert isinstance(got, Envelopes)
    refusal = await desk.ask(query)
    assert isinstance(refusal, Refusal)
    await trio.sleep(refusal.retry_after_ms / 1000)
    assert await desk.ask(query) == got


async def test_who_asks_on_without_waiting_is_a_flood(
    autojump_clock: trio.testing.MockClock,
) -> None:
    desk = Desk(
        ServeLimits(
            requests_per_peer=Rate(burst=1, per_second=1),
            refusals_per_peer=Rate(burst=3, per_second=1),
        )
    )
    await desk.ask(RECENT)
    for _ in range(3):
        assert isinstance(await desk.ask(RECENT), Refusal)
    with pytest.raises(RolloutProtocolError):
        await desk.ask(RECENT)
    assert [(peer, judged.reason) for peer, judged in desk.verdicts] == [
        (ASKER, Reason.BAD_REQUEST)
    ]


@pytest.mark.parametrize("network", ["another's", network_of(ASKER)])
async def test_a_refusal_for_what_others_take_is_no_offence(
    network: str, autojump_clock: trio.testing.MockClock
) -> None:
    """A client that obeys the retry time is never taken for a flood; one that does not wait is."""
    desk = Desk(ServeLimits(bytes_of_all=Rate(burst=100, per_second=100)))
    shared = desk.server._shared
    for _ in range(200):
        # Others always request more than there is, so it gets a retry time.
        while shared.wait_s(ASKER, trio.current_time()) <= 0:
            shared.take(network, 10, trio.current_time())
        refusal = await desk.ask(RECENT)
        assert isinstance(refusal, Refusal)
        assert refusal.retry_after_ms < 1000
        await trio.sleep(refusal.retry_after_ms / 1000)
    assert desk.verdicts == []
    shared.take(network, 1e9, trio.current_time())
    with pytest.raises(RolloutProtocolError):
        for _ in range(200):
            await desk.ask(RECENT)
    assert {judged.reason for _, judged in desk.verdicts} == {Reason.BAD_REQUEST}


def share_is_kept(num_names: list[int], num_asks: int, late_s: int) -> None:
    """Hostile networks of `names` peers request all the time; one honest network joins later.

    Each peer requests `num_asks` times in a quarter of a second and ignores replies.
    """
    clock = trio.testing.MockClock()

    async def run() -> None:
        size = 128  # what an answer with 100 bytes of a batch has, at the most
        much = Rate(burst=1 << 40, per_second=1 << 40)
        of_all = Rate(burst=256 * size, per_second=64 * size)
        desk = Desk(
            ServeLimits(
                requests_per_peer=much,
                bytes_per_peer=much,
                bytes_of_all=of_all,
            )
        )
        chunk_query = encode_query(ChunkQuery(batch_id=desk.put(1), offset=0, length=100))

        async def bytes_for(name: str) -> int:
            raw = await desk.server.answer(PeerId(name), chunk_query)
            return len(raw) if isinstance(decode_answer(raw), Chunk) else 0

        hostile, honest = [0.0] * len(num_names), 0
        for step in range(4 * (late_s + 20)):
            clock.jump(0.25)
            for network, names in enumerate(num_names):
                for number in range(names * num_asks):
                    hostile[network] += await bytes_for(f"{network}/{number % names}")
            while step >= 4 * late_s and (got := await bytes_for("honest/itself")):
                honest += got
        # Answers are whole, and counted once they are known.
        assert honest >= 0.9 * 20 * of_all.per_second / (len(num_names) + 2)
        for taken in hostile:  # no network, alone or not, has over half of what there is
            assert taken <= (of_all.burst + of_all.per_second * (late_s + 20)) / 2 + 2 * size

    trio.run(run, clock=clock)


any_networks = given(
    num_names=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    num_asks=st.integers(1, 4),
    late_s=st.integers(0, 8),
)


@pytest.mark.slow
@any_networks
@example(num_names=[25, 25], num_asks=4, late_s=8)
@example(num_names=[1, 1], num_asks=4, late_s=0)
@settings(max_examples=3)
def test_however_many_names_and_networks_ask_another_network_keeps_its_share(
    num_names: list[int], num_asks: int, late_s: int
) -> None:
    share_is_kept(num_names, num_asks, late_s)


@pytest.mark.slow
@any_networks
@settings(max_examples=40)
def test_the_same_of_four_times_as_many_swarms(
    num_names: list[int], num_asks: int, late_s: int
) -> None:
    share_is_kept(num_names, num_asks, late_s)


@given(
    st.lists(
        # Mostly at once, or no quota would ever be reached.
        st.tuples(st.just(0.0) | st.floats(0, 0.3), st.just(0) | st.integers(0, 1 << 20)),
        min_size=100,
        max_size=300,
    ),
    st.floats(0, 2),
)
@settings(max_examples=25)
def test_any_series_of_requests_stays_within_the_free_allowance_of_peers(
    asks: list[tuple[float, int]], delay_s: float
) -> None:
    """The asker's pace against the server's quotas, for any wishes and any delay of the way."""
    served, mine = (
        [TokenBucket(rate, 0.0) for rate in rates]
        for rates in (
            (ServeLimits().requests_per_peer, ServeLimits().bytes_per_peer),
            map(
                asker_module._under,
                (ServeLimits().requests_per_peer, ServeLimits().bytes_per_peer),
            ),
        )
    )
    now = 0.0
    for pause_s, size in asks:
        now += pause_s
        now += max(bucket.wait_s(1, now) for bucket in mine)
        arrives = now + delay_s
        assert all(bucket.available(arrives) >= 1 for bucket in served)
        for bucket, amount in zip(served, (1, size), strict=True):
            bucket.take(amount, arrives)
        mine[0].take(1, now)
        now = arrives + delay_s
        mine[1].take(size, now)


async def test_an_asker_with_many_wishes_is_never_put_off(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The asker itself, with the pace that nodes have, at a server as nodes are."""
    desk = Desk()

    class Way:
        async def request(self, _peer: PeerId, _protocol: str, raw: bytes, **_: object) -> bytes:
            return await desk.server.answer(ASKER, raw)

    asker = asker_module.RolloutClient(
        host=cast("Any", Way()), report=lambda *_judged: None, stats=FetchStats()
    )
    async with trio.open_nursery() as nursery:
        for _ in range(300):
            nursery.start_soon(asker.ask, PeerId("server"), RECENT, Listing)
    assert desk.stats.served["recent"] == 300
    assert not desk.stats.refused["over_quota"]
    assert desk.verdicts == []


@given(st.binary(max_size=120) | st.sampled_from([b"", b"\x0a\x00", b"\xff" * 4097]))
@settings(max_examples=60)
def test_any_bytes_are_answered_or_held_against_the_asker(raw: bytes) -> None:
    async def run() -> None:
        desk = Desk()
        desk.put(1)
        try:
            decode_answer(await desk.server.answer(ASKER, raw))
        except RolloutProtocolError:
            assert [judged.reason for _, judged in desk.verdicts] == [Reason.BAD_REQUEST]
        else:
            assert desk.verdicts == []

    trio.run(run)


# On the wire


@pytest.mark.parametrize("reads", [True, False])
async def test_who_does_not_send_and_who_does_not_read_is_cut_off(
    tmp_path: Path, reads: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    # Beyond any patience here, but for the deadline under test.
    streams = RequestLimits(
        read_deadline_s=0.2 if reads else 3600.0,
        write_deadline_s=3600.0 if reads else 0.3,
        max_concurrent=4,
        max_concurrent_per_peer=4,
    )
    async with (
        open_node(
            tmp_path / "n", make.swarm(), settings=replace(NO_BACKFILL, streams=streams)
        ) as node,
        open_test_host() as stranger,
    ):
        await stranger.dial(node.address)
        library, peer = cast("Any", stranger.libp2p_host), ID.from_base58(node.peer_id)
        own = await node.share(*big_groups(0, 1_500_000))
        query = ChunkQuery(batch_id=own.batch_id, offset=0, length=MAX_CHUNK_BYTES)
        for _ in range(4):
            stream = await library.new_stream(peer, [TProtocol(ROLLOUTS_PROTOCOL)])
            if reads:
                await stream.write(b"\0\0")
            else:
                await write_frame(stream, encode_query(query))
        # Every slot is taken, and none would ever be given back.

        async def get() -> bool:
            little = encode_query(replace(query, length=1))
            try:
                raw = await stranger.request(
                    node.peer_id, ROLLOUTS_PROTOCOL, little, max_response_bytes=MAX_ANSWER_BYTES
                )
            except RequestError:
                return False
            return isinstance(decode_answer(raw), Chunk)

        with trio.fail_after(20):
            while not await get():  # noqa: ASYNC110 - what frees the slot is the node's deadline
                await trio.sleep(0.05)
    assert "took too long" in caplog.text, "not by what the library does after some seconds"
