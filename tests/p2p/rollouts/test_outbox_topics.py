"""The outbox of a node with several topics: each batch on its own, and none waits for another's."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import trio

from shoal_p2p.node import Node
from shoal_p2p.rollouts.outbox import MAX_PACED_GROUPS, Outbox, split_by_topic
from shoal_tasks.run_memory import save_manifest
from shoal_tasks.swarm import families_of
from shoal_wire.codec import decode_batch
from shoal_wire.envelope import open_envelope
from shoal_wire.limits import MAX_BATCH_BYTES
from shoal_wire.manifest import make_manifest
from shoal_wire.types import RolloutBatch, RolloutGroup
from tests.support import factories as make
from tests.support.doubles.store import open_store
from tests.support.local_node import wall_ms
from tests.support.peers import INSTANT, open_peer
from tests.wire.test_topic_keys import rows

PEER = make.fresh_identity()
SPECS = [rows(number) for number in range(3)]
MANIFEST = make_manifest("swarm", families_of([*make.SPECS, *SPECS]))
TOPICS = [MANIFEST.topic(MANIFEST.path(PEER.peer_id, MANIFEST.keys[s.name])[0]) for s in SPECS]


def group_of(family: int, number: int = 0) -> RolloutGroup:
    return make.group(of=make.task_of(SPECS[family], (1 << 20) + number, "1?"))


class Topics:
    """Gossip in which some topics have no subscriber."""

    def __init__(self, *subscribed: str) -> None:
        self.subscribed = set(subscribed)
        self.published: list[tuple[str, RolloutBatch]] = []

    async def publish(self, topic: str, data: bytes) -> int:
        await trio.lowlevel.checkpoint()
        if topic not in self.subscribed:
            return 0
        batch = decode_batch(open_envelope(data).payload, max_bytes=MAX_BATCH_BYTES)
        self.published.append((topic, batch))
        return 1

    def lag_s(self, _sent_since: float) -> float | None:
        return None


async def send(folder: Path, gossip: Topics, *groups: RolloutGroup, seconds: float = 1.0) -> Outbox:
    """Accept a request for these groups in an outbox that runs; return it after a while."""
    async with (
        open_store(folder / "node.db", peer_id=PEER.peer_id) as store,
        trio.open_nursery() as nursery,
    ):
        outbox = Outbox(
            manifest=MANIFEST,
            identity=PEER,
            store=store,
            gossip=gossip,
            wall_ms=wall_ms,
        )
        await nursery.start(outbox.run)
        for part in split_by_topic(make.publish(groups), MANIFEST):
            await outbox.accept(part)
        await trio.sleep(seconds)
        nursery.cancel_scope.cancel()
    return outbox


def test_a_request_is_split_by_topic_in_the_same_way_each_time() -> None:
    mixed = [make.group(1), group_of(0), group_of(1), make.group(2), group_of(0, 5)]
    request = make.publish(mixed)
    parts = split_by_topic(request, MANIFEST)
    assert [len(part.groups) for part in parts] == [2, 2, 1]
    assert Counter(g.task for p in parts for g in p.groups) == Counter(g.task for g in mixed)
    assert len({part.client_key for part in parts}) == 3
    assert split_by_topic(request, MANIFEST) == parts
    alone = make.publish([make.group(1), make.group(2)])
    assert split_by_topic(alone, MANIFEST) == [alone]


async def test_a_family_that_no_peer_accepted_holds_up_no_other(tmp_path: Path) -> None:
    gossip = Topics(TOPICS[1], TOPICS[2])
    outbox = await send(tmp_path, gossip, group_of(0), group_of(1), group_of(2))
    assert [topic for topic, _ in gossip.published] == TOPICS[1:]
    assert outbox.num_unsent == 1
    full = MAX_PACED_GROUPS
    assert outbox._full(1, full) == "", "what no peer hears does not stop the trainer either"
    gossip.subscribed.add(TOPICS[0])
    await send(tmp_path, gossip, group_of(1, 1))
    assert gossip.published[2][0] == TOPICS[0], "it waited, and went out after a restart"


async def test_a_restart_continues_the_numbers_of_each_topic(tmp_path: Path) -> None:
    """Also where batches were sent before: otherwise peers would not miss a lost last one."""
    save_manifest(tmp_path, MANIFEST)
    sent: list[RolloutBatch] = []
    for first in (0, 3):
        async with open_peer(Node, tmp_path, parts=INSTANT) as node:
            for number in range(first, first + 3):
                request = make.publish([group_of(number % 2, number)], key=b"%d" % number)
                own = await node.outbox.accept(request)
                node.pool.keep_own(own.signed)
                await node.store.mark_sent(own.sequence)
                sent.append(own.signed.batch)
    numbers = [batch.sequence for batch in sent]
    places = [numbers.index(b.previous_sequence) if b.previous_sequence else None for b in sent]
    assert places == [None, None, 0, 1, 2, 3]


async def test_the_number_before_is_that_of_the_same_topic(tmp_path: Path) -> None:
    """Otherwise each listener of one family would request the batches of all others as missing."""
    gossip = Topics(*TOPICS)
    async with (
        open_store(tmp_path / "node.db", peer_id=PEER.peer_id) as store,
        trio.open_nursery() as nursery,
    ):
        outbox = Outbox(
            manifest=MANIFEST, identity=PEER, store=store, gossip=gossip, wall_ms=wall_ms
        )
        await nursery.start(outbox.run)
        for number, family in enumerate((0, 1, 0, 0, 1, 2)):
            await outbox.accept(make.publish([group_of(family, number)], key=b"%d" % number))
        with trio.fail_after(20):
            await outbox.drained()
        nursery.cancel_scope.cancel()
    found = [(batch.sequence, batch.previous_sequence) for _, batch in gossip.published]
    assert sorted(found) == [(1, 0), (2, 0), (3, 1), (4, 3), (5, 2), (6, 0)]
