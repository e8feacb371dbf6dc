"""What a stranger says of an honest peer's batches, or makes of their bytes, costs the stranger."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import trio

from shoal_p2p.fetch import duplicate_identity
from shoal_p2p.net.refusals import DialError
from shoal_p2p.store import statements
from shoal_p2p.store.types import StoreLimits
from shoal_wire.digests import batch_id
from shoal_wire.envelope import peer_id_of
from shoal_wire.rollout_messages import BatchRef, Listing, RecentQuery, SinceQuery, WholeQuery
from shoal_wire.types import BatchId, SignedBatch
from shoal_wire.verdict import Reason
from tests.support import factories as make
from tests.support.exchange_nodes import NO_BACKFILL, QUICK, ExchangeNode, big_groups, open_node
from tests.support.false_provider import open_three
from tests.support.nodes import PATIENCE_S, until
from tests.support.rollout_answers import ref_of
from tests.wire import envelope_mutations as mutations
from tests.wire.small_order import small_order_encodings

EAGER = replace(
    QUICK,
    backfill=replace(QUICK.backfill, first_peers=1, every_seconds=0.3),
    answer_seconds=20.0,
)
CALM = replace(NO_BACKFILL, answer_seconds=20.0)


def copies_of(signed: SignedBatch) -> tuple[list[bytes], list[BatchRef]]:
    """Return the other spellings of a batch, and how a listing names them as its publisher's."""
    copies = list(mutations.other_spellings(signed.envelope).values())
    refs = [
        replace(ref_of(signed), batch_id=BatchId(batch_id(raw)), num_bytes=len(raw))
        for raw in copies
    ]
    return copies, refs


def has(node: ExchangeNode, signed: SignedBatch) -> bool:
    return node.exchange.shelf.get(signed.batch_id) is not None


async def test_copies_that_anybody_could_make_cost_their_publisher_nothing(tmp_path: Path) -> None:
    async with open_three(tmp_path, EAGER) as (victim, honest, stranger):
        await victim.meet(honest)
        signed = await honest.share(1)
        await until(lambda: has(victim, signed))
        copies, refs = copies_of(signed)
        stranger.gives(copies, refs)
        await stranger.host.dial(victim.address)
        await until(lambda: len(victim.blamed(stranger.peer_id)) == len(copies))
        assert set(victim.blamed(stranger.peer_id)) == {Reason.NOT_CANONICAL}
        assert victim.blamed(honest.peer_id) == []
        assert victim.received_numbers() == {1}
        assert await victim.live.store.evidence() == []


async def test_a_changed_copy_that_comes_first_is_not_kept_and_the_true_one_is_fetched(
    tmp_path: Path,
) -> None:
    async with open_three(tmp_path, EAGER) as (victim, honest, stranger):
        victim.deaf = True
        signed = await honest.share(1)
        copies, refs = copies_of(signed)
        stranger.gives(copies, refs)
        await stranger.host.dial(victim.address)
        await until(lambda: len(victim.blamed(stranger.peer_id)) == len(copies))
        assert victim.received_numbers() == set()
        assert len(victim.exchange.shelf) == 0
        await victim.host.dial(honest.address)
        await until(lambda: has(victim, signed))
        assert victim.received_numbers() == {1}
        assert victim.blamed(honest.peer_id) == []


async def test_listed_batches_of_a_weak_key_are_not_requested_and_not_blamed(
    tmp_path: Path,
) -> None:
    async with open_three(tmp_path, EAGER) as (victim, honest, stranger):
        victim.deaf = True
        signed = await honest.share(1)
        ref = ref_of(signed)
        weak = [
            replace(ref, publisher=peer_id_of(key), batch_id=BatchId(bytes(31) + bytes([number])))
            for number, key in enumerate(small_order_encodings())
        ]
        stranger.gives([signed.envelope], [*weak, ref])
        await stranger.host.dial(victim.address)
        await until(lambda: has(victim, signed))
        wanted = [q.batch_ids for q in stranger.queries if isinstance(q, WholeQuery)]
        assert set().union(*wanted) == {signed.batch_id}
        assert victim.blamed(stranger.peer_id) == []


async def test_changed_copies_of_the_nodes_own_batches_are_no_duplicate_identity(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_three(tmp_path, EAGER) as (victim, _honest, stranger):
        own = await victim.share(1)
        copies, refs = copies_of(own)
        stranger.gives(copies, refs)
        await stranger.host.dial(victim.address)
        await until(lambda: victim.blamed(stranger.peer_id))
        assert not victim.exchange.duplicate_identity.found
        assert "identity.key" not in caplog.text
        assert set(victim.blamed(stranger.peer_id)) == {Reason.NOT_CANONICAL}


async def test_an_unknown_batch_signed_by_this_nodes_key_is_a_duplicate_identity(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_three(tmp_path, EAGER) as (victim, _honest, stranger):
        duplicate = make.Author(
            victim.manifest, identity=victim.identity, now_ms=stranger.author.now_ms
        )
        theirs = duplicate.signed()
        stranger.gives([theirs.envelope], [ref_of(theirs)])
        await stranger.host.dial(victim.address)
        await until(lambda: victim.exchange.duplicate_identity.found)
        assert "identity.key" in caplog.text
        assert victim.blamed(stranger.peer_id) == []


async def test_a_copy_of_the_whole_folder_is_a_duplicate_identity_after_any_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It continues from the same number, so its batches are no newer than this node's."""
    monkeypatch.setattr(duplicate_identity, "FEW", 3)
    monkeypatch.setattr(duplicate_identity, "_LOOK_BACK", 2)
    async with open_three(tmp_path, CALM) as (victim, _honest, stranger):
        own = [await victim.share(number) for number in range(6)]
        copy = make.Author(victim.manifest, identity=victim.identity, now_ms=stranger.author.now_ms)
        copy.sequence = own[-2].batch.sequence  # what it signs next has the number of our last
        theirs = copy.signed()
        assert theirs.batch.sequence == own[-1].batch.sequence
        held = sorted([*own[:-1], theirs], key=lambda signed: signed.batch.sequence)
        stranger.gives([signed.envelope for signed in held], list(map(ref_of, held)))
        await stranger.host.dial(victim.address)
        await until(lambda: victim.host.is_connected(stranger.peer_id))
        await victim.exchange.duplicate_identity.ask(stranger.peer_id)
        assert victim.exchange.duplicate_identity.found


async def until_found(node: ExchangeNode, witness: ExchangeNode) -> None:
    """Dial the witness whenever the other node of this identity has taken the connection."""
    with trio.fail_after(PATIENCE_S):
        while not node.exchange.duplicate_identity.found:
            if not node.host.is_connected(witness.peer_id):
                with contextlib.suppress(DialError):
                    await node.host.dial(witness.address)
            await trio.sleep(0.1)


async def test_a_copied_folder_is_named_to_both_of_its_owners(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They take the connection to the witness from each other, as two nodes of one name do."""
    manifest, identity = make.swarm(), make.fresh_identity()
    async with (
        open_node(tmp_path / "witness", manifest, settings=CALM) as witness,
        open_node(tmp_path / "first", manifest, identity=identity, settings=CALM) as first,
    ):
        await witness.meet(first)
        await first.share(1)
        await until(lambda: witness.received_numbers() == {1})
        ignored = shutil.ignore_patterns("node.sock", "lock")
        await trio.to_thread.run_sync(
            partial(shutil.copytree, tmp_path / "first", tmp_path / "copy", ignore=ignored)
        )
        await first.share(2)
        await until(lambda: witness.received_numbers() == {1, 2})
        async with open_node(tmp_path / "copy", manifest, identity=identity, settings=CALM) as copy:
            await copy.meet(witness)
            await copy.share(3)
            await until(lambda: "signed two batches as number" in caplog.text)
            await until_found(copy, witness)
            await until_found(first, witness)
        assert not witness.exchange.duplicate_identity.found


async def test_own_batches_that_this_node_has_deleted_are_no_duplicate_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing begins with the oldest, and a node knows its latest ten thousand alone."""
    few = partial(StoreLimits, max_client_keys=2)
    monkeypatch.setattr(statements, "StoreLimits", few)
    async with open_three(tmp_path, CALM) as (victim, _honest, stranger):
        own = [await victim.share(number) for number in range(4)]
        assert not await victim.live.store.is_own(own[0].batch_id)
        stranger.gives([signed.envelope for signed in own], list(map(ref_of, own)))
        await stranger.host.dial(victim.address)
        for _ in range(2):
            await victim.exchange.duplicate_identity.ask(stranger.peer_id)
        assert not victim.exchange.duplicate_identity.found
        assert victim.blamed(stranger.peer_id) == []


async def test_the_nodes_own_batch_listed_as_anothers_costs_who_listed_it(tmp_path: Path) -> None:
    async with open_three(tmp_path, EAGER) as (victim, honest, stranger):
        own = await victim.share(1)
        ref = replace(ref_of(own), publisher=honest.peer_id)
        stranger.gives([own.envelope], [ref])
        await stranger.host.dial(victim.address)
        await until(lambda: victim.blamed(stranger.peer_id))
        assert victim.blamed(honest.peer_id) == []
        assert victim.blamed(stranger.peer_id) == [Reason.MALFORMED_ANSWER]


@pytest.mark.parametrize("size", [1000, 100_000], ids=["small", "big"])
async def test_a_batch_listed_under_a_false_number_is_taken_under_its_own(
    tmp_path: Path, size: int
) -> None:
    async with open_three(tmp_path, EAGER) as (victim, honest, stranger):
        victim.deaf = True
        signed = await honest.share(*big_groups(0, size))
        false = replace(ref_of(signed), sequence=signed.batch.sequence + 1)
        stranger.gives([signed.envelope], [false])
        await stranger.host.dial(victim.address)
        await until(lambda: victim.blamed(stranger.peer_id) == [Reason.MALFORMED_ANSWER])
        await victim.host.dial(honest.address)
        await until(lambda: has(victim, signed))
        assert victim.blamed(honest.peer_id) == []


async def test_who_lists_fewer_groups_than_there_are_pays_and_the_batch_comes_as_it_is(
    tmp_path: Path,
) -> None:
    """By what is listed a node decides how much it asks for."""
    async with open_three(tmp_path, EAGER) as (victim, honest, stranger):
        victim.deaf = True
        signed = await honest.share(1, 2, 3)
        stranger.gives([signed.envelope], [replace(ref_of(signed), num_groups=1)])
        await stranger.host.dial(victim.address)
        await until(lambda: victim.blamed(stranger.peer_id) == [Reason.MALFORMED_ANSWER])
        assert not has(victim, signed)
        await victim.host.dial(honest.address)
        await until(lambda: has(victim, signed))
        assert victim.blamed(honest.peer_id) == []


async def test_an_announcement_of_anothers_batch_does_not_shut_out_its_own(tmp_path: Path) -> None:
    async with open_three(tmp_path) as (victim, honest, stranger):
        await victim.host.dial(honest.address)
        stranger.gives([])
        await stranger.meet(victim.address, victim.peer_id)
        author = make.Author(honest.manifest, identity=honest.identity)
        author.now_ms = stranger.author.now_ms
        signed = author.sign(*big_groups(0, 100_000))
        await honest.store_batch(signed.envelope)
        # First as the stranger's, while the job runs and when it has ended.
        await stranger.announce(signed.envelope, num_groups=len(signed.batch.groups))
        await until(lambda: victim.blamed(stranger.peer_id) == [Reason.BAD_ANNOUNCEMENT])
        message = honest.outbox._announce(signed)
        topic = honest.manifest.topic(honest.manifest.shard_of(honest.peer_id))
        await honest.gossip.publish(topic, message)
        await until(lambda: has(victim, signed))
        assert victim.blamed(honest.peer_id) == []


async def test_false_listings_take_nothing_of_a_publishers_share_of_pulls(tmp_path: Path) -> None:
    async with open_three(tmp_path, EAGER) as (victim, honest, stranger):
        victim.deaf = True
        signed = await honest.share(*big_groups(0, 100_000))
        ref = ref_of(signed)
        made_up = [
            replace(ref, batch_id=BatchId(bytes([n]) * 32), sequence=ref.sequence + n)
            for n in range(1, 60)
        ]
        # It lists them, and never answers who asks for them.
        stranger.answer(
            lambda query: (
                Listing(batches=tuple(made_up))
                if isinstance(query, RecentQuery | SinceQuery)
                else None
            )
        )
        await stranger.host.dial(victim.address)
        queue = victim.live.exchange._book.wanted.queue
        await until(lambda: queue.num_running > 0)
        await victim.host.dial(honest.address)
        with trio.fail_after(5):
            await until(lambda: has(victim, signed))
