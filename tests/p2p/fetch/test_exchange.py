"""Late joiners, dropped messages and big batches, between real nodes on loopback."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from shoal_base.waits import REPLY_S
from shoal_p2p.events import BatchWithdrawn
from shoal_p2p.intake.ledger import LedgerLimits
from shoal_p2p.node import Node
from shoal_p2p.peer import NUMBERS
from shoal_p2p.state_file import STATE_FILE, read_state, write_state
from shoal_wire.verdict import Reason
from tests.support import factories as make
from tests.support.exchange_nodes import (
    NO_BACKFILL,
    QUICK,
    big_groups,
    open_exchange,
    open_node,
)
from tests.support.local_node import wall_ms
from tests.support.nodes import until
from tests.support.peers import INSTANT, address_of, open_peer

MIB = 1 << 20


def gaps_of(counts: dict[str, Any]) -> dict[str, int]:
    return {name: counts[f"gaps_{name}"] for name in ("open", "seen", "filled", "abandoned")}


async def test_a_late_joiner_gets_what_was_shared_before_its_time(tmp_path: Path) -> None:
    async with open_exchange(tmp_path, 3) as (old, other, joiner):
        await other.meet(old)
        for number in range(10):
            await old.share(number)
        await old.share(*(big := big_groups(100, 200_000)))
        shared = {*range(10), *range(100, 100 + len(big))}
        await until(lambda: other.received_numbers() == shared)
        own = await other.share(50)
        await until(lambda: old.received_numbers() == {50})
        # Gossip offers its latest messages again: they are not to be had that way here.
        joiner.deaf = True
        # It requests batches of other publishers and none of its own.
        await joiner.host.dial(other.address)
        await until(lambda: joiner.received_numbers() == {*shared, 50})
        counts = joiner.counts()
        assert counts["batches"]["backfill"] == 12
        assert counts["batches"]["gossip"] == 0
        assert counts["gaps_seen"] == 0
        held = {entry.group.batch_id for entry in joiner.buffer.external_groups()}
        assert own.batch_id in held
        # Two further holders have nothing new: nothing comes twice.
        rounds = counts["backfill_rounds"]
        await joiner.host.dial(old.address)
        await until(lambda: joiner.counts()["backfill_rounds"] > rounds)
        assert joiner.counts()["bytes_in"] == counts["bytes_in"]


async def test_a_neighbour_fills_a_gap_when_the_publisher_has_left(tmp_path: Path) -> None:
    async with open_exchange(tmp_path, 3, settings=NO_BACKFILL) as (publisher, middle, end):
        await middle.meet(publisher)
        await end.meet(middle)
        await publisher.share(1)
        await until(lambda: end.received_numbers() == {1})
        end.deaf = True
        for number in (2, 3, 4):
            await publisher.share(number)
        await until(lambda: middle.received_numbers() == {1, 2, 3, 4} and len(end.verdicts) == 4)
        end.deaf = False
        await publisher.share(5)
        await until(lambda: end.received_numbers() == {1, 2, 3, 4, 5})
        assert not end.host.is_connected(publisher.peer_id)
        counts = end.counts()
        assert counts["batches"] == {"gossip": 2, "backfill": 0, "gap": 3, "pull": 0}
        # One number was named; asking from there brought the ones before it along.
        assert gaps_of(counts) == {"open": 0, "seen": 1, "filled": 1, "abandoned": 0}


@pytest.mark.slow
async def test_a_gap_that_no_peer_can_fill_is_abandoned(tmp_path: Path) -> None:
    async with open_exchange(tmp_path, 2, settings=NO_BACKFILL) as (publisher, receiver):
        await receiver.meet(publisher)
        await publisher.share(1)
        lost = await publisher.share(2)
        await until(lambda: receiver.received_numbers() == {1, 2})
        receiver.deaf = True
        lost = await publisher.share(3)
        await until(lambda: len(receiver.verdicts) == 3)
        receiver.deaf = False
        publisher.exchange.shelf.on_event(BatchWithdrawn(batch_id=lost.batch_id))
        await publisher.share(4)
        await until(lambda: receiver.counts()["gaps_abandoned"] == 1)
        assert receiver.received_numbers() == {1, 2, 4}
        assert gaps_of(receiver.counts()) == {"open": 0, "seen": 1, "filled": 0, "abandoned": 1}
        assert receiver.blamed(publisher.peer_id) == []


async def test_a_big_batch_comes_by_pull_one_copy_each(tmp_path: Path) -> None:
    size = 1_000_000
    async with open_exchange(tmp_path, 4, settings=NO_BACKFILL, max_batch_bytes=8 * MIB) as nodes:
        for i, node in enumerate(nodes):
            await node.meet(*nodes[:i])
        groups = big_groups(0, size)
        own = await nodes[0].share(*groups)
        assert len(own.envelope) > size * 0.9
        everything = set(range(len(groups)))
        await until(lambda: all(node.received_numbers() == everything for node in nodes[1:]))
        for node in nodes[1:]:
            counts = node.counts()
            assert counts["batches"] == {"gossip": 0, "backfill": 0, "gap": 0, "pull": 1}
            assert counts["bytes_in"]["pull"] == len(own.envelope)
        given = sum(node.counts()["bytes_out"] for node in nodes)
        assert given == 3 * len(own.envelope)


async def test_big_batches_go_on_to_those_who_do_not_know_the_publisher(tmp_path: Path) -> None:
    async with open_exchange(tmp_path, 3, settings=NO_BACKFILL) as (publisher, middle, end):
        await middle.meet(publisher)
        await end.meet(middle)
        await publisher.share(1)
        groups = big_groups(10, 400_000)
        big = await publisher.share(*groups)
        await publisher.share(2)
        await until(lambda: len(end.received_numbers()) == 2 + len(groups))
        assert not end.host.is_connected(publisher.peer_id)
        assert end.counts()["batches"]["pull"] == 1
        assert middle.counts()["bytes_out"] == len(big.envelope)


async def test_what_is_only_on_disk_is_served_after_a_restart(tmp_path: Path) -> None:
    manifest = make.swarm()
    async with open_node(tmp_path / "p", manifest) as publisher:
        identity = publisher.identity
        await publisher.share(1)
    async with (
        open_node(tmp_path / "p", manifest, identity=identity) as publisher,
        open_node(tmp_path / "j", manifest) as joiner,
    ):
        joiner.deaf = True
        await joiner.host.dial(publisher.address)
        await until(lambda: joiner.received_numbers() == {1})


async def test_who_was_away_gets_all_that_was_published_at_the_full_rate_meanwhile(
    tmp_path: Path,
) -> None:
    """And its publisher's quota is whole for what it says now."""
    manifest, away_key = make.swarm(), make.fresh_identity()
    ann = make.Author(manifest, now_ms=wall_ms())
    limits, patient = LedgerLimits(), replace(QUICK, answer_seconds=REPLY_S)
    away_s, size = 30, 64
    # What a quota allows a publisher in that time, at any peer that was there.
    missed = int(limits.burst_groups + away_s * limits.groups_per_second) // size

    def next_batch() -> bytes:
        first = size * ann.sequence
        return ann.envelope(ann.batch([make.group(first + i) for i in range(size)]))

    async with open_node(tmp_path / "stays", manifest) as stays:
        await stays.store_batch(next_batch())
        async with open_node(
            tmp_path / "away", manifest, identity=away_key, settings=patient
        ) as away:
            await away.host.dial(stays.address)
            await until(lambda: len(away.exchange.shelf) == 1)
        for _ in range(missed):
            await stays.store_batch(next_batch())
        async with open_node(
            tmp_path / "away", manifest, identity=away_key, settings=patient
        ) as away:
            assert len(away.received_numbers()) == size
            await away.host.dial(stays.address)
            await until(lambda: len(away.received_numbers()) == size * (1 + missed))
            assert away.counts()["failures"] == {}
            for _ in range(int(limits.burst_groups) // size):
                judged = await away.live.member.intake.validate(
                    next_batch(), ann.peer_id, stays.peer_id
                )
                assert judged.reason is Reason.VALID


async def test_a_restarted_node_numbers_its_messages_above_all_before(tmp_path: Path) -> None:
    """Also where its clock was an hour ahead and was put right meanwhile."""
    manifest, identity = make.swarm(), make.fresh_identity()
    path, ahead = tmp_path / STATE_FILE, 0

    def kept() -> int:
        return int(read_state(path, NUMBERS) or 0)

    for number in range(3):
        async with open_node(tmp_path, manifest, identity=identity) as node:
            await node.share(number)
            await until(lambda least=ahead: kept() > least)
        ahead = kept() + 3600 * 10**9
        write_state(path, NUMBERS, str(ahead).encode())


@pytest.mark.slow
async def test_who_was_away_gets_more_than_one_listing_holds(tmp_path: Path) -> None:
    """Also of a publisher of more batches than the ledger remembers the numbers of."""
    manifest = make.swarm()
    busy, *rest = (make.Author(manifest, now_ms=wall_ms()) for _ in range(4))
    missed = [busy] * (LedgerLimits().max_sequences + 100) + rest * 100
    async with open_node(tmp_path / "stays", manifest) as stays:
        for number, author in enumerate(missed):
            await stays.store_batch(author.envelope(author.batch([make.group(number)])))
        patient = replace(QUICK, answer_seconds=REPLY_S)
        async with open_node(tmp_path / "away", manifest, settings=patient) as away:
            await away.host.dial(stays.address)
            await until(lambda: len(away.received_numbers()) == len(missed))
            assert away.counts()["failures"] == {}


async def test_an_equivocator_is_found_out_by_its_announcement(tmp_path: Path) -> None:
    async with open_exchange(tmp_path, 2, settings=NO_BACKFILL) as (publisher, receiver):
        await receiver.meet(publisher)
        first = await publisher.share(1)
        await until(lambda: receiver.received_numbers() == {1})
        author = make.Author(publisher.manifest, identity=publisher.identity, now_ms=wall_ms())
        other = author.batch(big_groups(5, 100_000), sequence=first.batch.sequence)
        message = publisher.outbox._announce(author.signed(other))
        topic = publisher.manifest.topic(publisher.manifest.shard_of(publisher.peer_id))
        await publisher.gossip.publish(topic, message)
        await until(lambda: receiver.received_numbers() == set())
        await until(lambda: "equivocation" in receiver.blamed(publisher.peer_id))
        assert receiver.exchange.shelf.get(first.batch_id) is None


async def test_a_node_that_ends_at_once_has_handed_on_its_last_big_batch(tmp_path: Path) -> None:
    big = big_groups(0, 600_000)
    async with open_peer(Node, tmp_path / "stays", parts=INSTANT) as stays:
        at = (address_of(stays),)
        async with open_peer(Node, tmp_path / "leaves", parts=INSTANT, bootstrap=at) as leaves:
            topic = leaves.member.manifest.topic(0)
            await until(lambda: leaves.member.gossip.mesh().get(topic))
            own = await leaves.outbox.accept(make.publish(big, key=b"last"))
            assert own.signed is not None
            leaves.pool.keep_own(own.signed)
        await until(lambda: stays.buffer.stats(trio.current_time()).groups == len(big))
