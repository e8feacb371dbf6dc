"""An early copy of an honest group cannot keep the original out: schedules and a model."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import trio
import trio.testing

from shoal_p2p.buffer.types import BufferEntry
from shoal_p2p.rollouts.duplicate_index import MAX_COPIES, DuplicateIndex
from shoal_wire.digests import group_id
from shoal_wire.types import BatchId, GroupId, PeerId, RolloutGroup, SignedBatch
from shoal_wire.verdict import Outcome, Reason
from tests.p2p.buffer.entries import entry
from tests.support import factories as make
from tests.support.local_node import LocalNode, open_local_node, wall_ms

MANIFEST = make.swarm()
ME = make.fresh_identity()
SCHEDULES, STEPS, COPIERS = 20, 14, 3
TRAINER = "trainer"


@dataclass
class Content:
    """Some groups that an author made, who else signed them, and what has to become of them."""

    groups: list[RolloutGroup]
    author: make.Author
    copiers: list[make.Author]
    sent: dict[PeerId, SignedBatch] = field(default_factory=dict)
    twice: set[PeerId] = field(default_factory=set)
    leased: set[GroupId] = field(default_factory=set)
    consumed: set[GroupId] = field(default_factory=set)

    @property
    def ids(self) -> set[GroupId]:
        return set(map(group_id, self.groups))

    def expected(self) -> set[GroupId]:
        """Return the groups that have to be here, leased or not."""
        brought: set[GroupId] = set()
        for publisher, signed in self.sent.items():
            if publisher not in self.twice:
                brought |= set(map(group_id, signed.batch.groups))
        return brought - self.consumed


class Schedule:
    """Random steps of copiers, an author and a trainer against one node after another."""

    def __init__(self, rng: random.Random, first_number: int) -> None:
        self.rng = rng
        author, *copiers = [make.Author(MANIFEST, now_ms=wall_ms()) for _ in range(COPIERS + 1)]
        groups = [make.group(first_number + number) for number in range(rng.randint(1, 3))]
        self.content = Content(groups=groups, author=author, copiers=copiers)

    async def play(self, data_dir: Path) -> None:
        steps = [self.rng.choice(STEP_NAMES) for _ in range(STEPS)]
        while steps:
            async with open_local_node(data_dir, identity=ME, manifest=MANIFEST) as node:
                # As a trainer does that had them when the node went.
                node.buffer.hold(self.content.leased, TRAINER, trio.current_time(), 600.0)
                await self.check(node)
                while steps and (step := steps.pop()) != "restart":
                    await getattr(self, step)(node)
                    await self.check(node)
                await node.pool.write_all()  # as at an orderly end

    async def check(self, node: LocalNode) -> None:
        content = self.content
        with trio.fail_after(20):
            while node.live.member.intake.queue_length():
                await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        await node.pool._replace_removed()
        here = {
            entry.group.group_id: entry.group.publisher
            for entry in node.buffer.external_groups()
            if entry.group.group_id in content.ids
        }
        assert set(here) - content.leased == content.expected() - content.leased
        assert not set(here.values()) & content.twice
        assert not set(here) & content.consumed

    async def copy(self, node: LocalNode) -> None:
        await self.send(node, self.rng.choice(self.content.copiers))

    async def honest(self, node: LocalNode) -> None:
        await self.send(node, self.content.author)

    async def send(self, node: LocalNode, author: make.Author) -> None:
        content = self.content
        known = content.sent.get(author.peer_id)
        groups = content.groups
        if author is not content.author:
            groups = self.rng.sample(groups, self.rng.randint(1, len(groups)))
        signed = known or author.sign(*groups, sequence=1)
        verdict = await self.judge(node, signed)
        if author.peer_id in content.twice:
            assert verdict is Reason.EQUIVOCATION
        else:
            assert verdict is (Reason.DUPLICATE if known else Reason.VALID)
            content.sent[author.peer_id] = signed

    async def again(self, node: LocalNode) -> None:
        """One that signed twice brings the content again, under its next number."""
        for author in self.content.copiers:
            if author.peer_id in self.content.twice:
                author.sequence += 1
                withdrawn = self.content.sent[author.peer_id].batch.groups
                await self.judge(node, author.sign(*withdrawn))

    async def twice(self, node: LocalNode) -> None:
        guilty = self.rng.choice(self.content.copiers)
        if guilty.peer_id in self.content.sent:
            other = guilty.sign(9_999, sequence=1)
            assert await self.judge(node, other) is Reason.EQUIVOCATION
            self.content.twice.add(guilty.peer_id)

    async def judge(self, node: LocalNode, signed: SignedBatch) -> Reason:
        intake, publisher = node.live.member.intake, signed.publisher
        judged = await intake.validate(signed.envelope, publisher, publisher)
        assert (judged.reason is Reason.VALID) == (judged.outcome is Outcome.ACCEPT)
        return judged.reason

    async def lease(self, node: LocalNode) -> None:
        found = node.pool.lease(TRAINER, self.rng.randint(1, 3), lease_seconds=600.0)
        for leased_one in found:
            assert leased_one.group.group_id not in self.content.leased | self.content.consumed
            assert leased_one.group.group_id in self.content.ids
            self.content.leased.add(leased_one.group.group_id)

    async def settle(self, node: LocalNode) -> None:
        held = sorted(self.content.leased)
        used = self.rng.sample(held, self.rng.randint(0, len(held)))
        await node.pool.settle(TRAINER, used, [one for one in held if one not in used])
        self.content.leased.clear()
        self.content.consumed |= set(used)


STEP_NAMES = (
    *("copy", "copy", "honest", "twice", "twice", "again", "again"),
    *("lease", "lease", "settle", "restart", "restart"),
)


@pytest.mark.slow
async def test_what_a_copier_withdraws_is_taken_from_the_author(tmp_path: Path) -> None:
    """Over 20 schedules of 14 steps, each with restarts in it."""
    for seed in range(SCHEDULES):
        schedule, folder = Schedule(random.Random(seed), 10 * seed), tmp_path / str(seed)
        await trio.Path(folder).mkdir()
        try:
            await schedule.play(folder)
        except BaseException as error:
            error.add_note(f"schedule {seed}")
            raise


def copy_of(number: int, *, of: int = 1, network: str = "bad") -> BufferEntry:
    """The group `of` in a batch of a publisher of a network."""
    made = entry(of, str(number), received_at=float(number))
    batch = replace(made.group, batch_id=BatchId(bytes([number]) * 32))
    return replace(made, group=batch, network=network)


def test_a_copy_by_another_network_finds_room_among_many_of_one() -> None:
    copies, group = DuplicateIndex(10), copy_of(1).group.group_id
    for number in range(2 * MAX_COPIES):
        copies.add(copy_of(number))
        copies.add(copy_of(number))
    copies.add(copy_of(99, network="its own"))
    for number in range(100, 200):
        copies.add(copy_of(number))
    assert len(copies.batch_ids()) == MAX_COPIES
    taken = [copies.take(group) for _ in range(MAX_COPIES)]
    assert [one.received_at for one in taken if one] == [*map(float, range(MAX_COPIES - 1)), 99.0]
    assert (copies.take(group), list(copies)) == (None, [])


def test_copies_are_bounded_in_groups_and_forgotten() -> None:
    copies = DuplicateIndex(10)
    for number in range(30):
        copies.add(copy_of(number, of=number))
    assert list(copies) == [copy_of(1, of=number).group.group_id for number in range(20, 30)]
    copies.forget(copy_of(1, of=25).group.group_id)
    assert len(copies.batch_ids()) == 9
