"""Honest nodes of every skill and several kinds of liars, sampled by the real buffer and service.

The trainer is reduced to its rule: lease, verify, report, train on groups with signal, skip the
rest. Only the completions are simulated: a group's rewards are sampled by its publisher's skill.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from shoal_ipc import messages as m
from shoal_p2p.ipc.service import Service
from shoal_wire.digests import group_id
from shoal_wire.types import GroupId, PeerId
from tests.support import factories as make
from tests.support.local_node import LocalNode, open_local_node, wall_ms

LOCAL, EXTERNAL, OVERSAMPLE, ANSWERS = 4, 4, 8, 8
HOLDER = "trainer"

Rewards = tuple[float, ...]
Skill = Callable[[random.Random], Rewards]


def right(chance: float) -> Skill:
    """Completions that are right with a probability, independently."""
    return lambda rng: tuple(float(rng.random() < chance) for _ in range(ANSWERS))


def token(most: float) -> Skill:
    """Garbage for which a lenient verifier sometimes gives a small reward."""
    return lambda rng: tuple(rng.choice((0.0, most)) for _ in range(ANSWERS))


HONEST: dict[str, Skill] = {
    "fresh": right(0.02),
    "weak": right(0.05),
    "fair": right(0.3),
    "good": right(0.6),
    "strong": right(0.9),
    "perfect": right(1.0),
}
LIARS: dict[str, Skill] = {
    "garbage": right(0.0),
    "plausible": right(0.002),
    "token": token(0.02),
}


class TrainerScenario:
    """Publishers by name, the rewards of their groups, and this node's trainer."""

    def __init__(self, node: LocalNode, rng: random.Random) -> None:
        self._node = node
        self._rng = rng
        self._authors: dict[str, make.Author] = {}
        self.names: dict[PeerId, str] = {}
        self._earned: dict[GroupId, Rewards] = {}
        self._own: list[GroupId] = []
        self._next = 0
        self._service = Service(
            me=node.identity.peer_id,
            manifest=node.manifest,
            pool=node.pool,
            outbox=node.outbox,
            link=node.link,
            views={},
        )

    async def publish(self, name: str, skill: Skill, count: int, *, by: str = "") -> None:
        """Publish `count` groups with rewards by `skill`, delivered by `name` itself or `by`."""
        if name not in self._authors:
            self._authors[name] = make.Author(self._node.manifest, now_ms=wall_ms())
            self.names[self._authors[name].peer_id] = name
        author = self._authors[name]
        groups = []
        for _ in range(count):
            self._next += 1
            groups.append(make.group(self._next, (f"{name}", f"{self._next}")))
            self._earned[group_id(groups[-1])] = skill(self._rng)
        await self._node.receive(
            replace(author.sign(*groups), delivered_by=PeerId(by) if by else None)
        )

    async def start(self, *, own_groups: int = 1000) -> None:
        """Connect the trainer and publish all own groups; each round reports some of them."""
        hello = m.Hello(ipc_version=1, role=m.Role.TRAINER, pid=1)
        await self._service.hello(HOLDER, hello)
        groups = [make.group(1_000_000 + n, ("own", f"{n}")) for n in range(own_groups)]
        for start in range(0, own_groups, 250):
            batch = make.publish(groups[start : start + 250], key=start.to_bytes(8, "big"))
            assert isinstance(await self.ask(batch), m.PublishReply)
        self._own = [group_id(group) for group in groups]

    async def ask(self, body: m.Body) -> m.Body:
        return await self._service.handle(HOLDER, m.Role.TRAINER, body)

    async def run(self, own: Skill, rounds: int) -> tuple[Counter[str], Counter[str]]:
        """Run rounds; return how many groups of each publisher were sampled and trained on."""
        drawn: Counter[str] = Counter()
        trained: Counter[str] = Counter()
        for _ in range(rounds):
            await self._own_groups(own)
            await self._external(drawn, trained)
        return drawn, trained

    async def _own_groups(self, own: Skill) -> None:
        for _ in range(LOCAL):
            await self._report(self._own.pop(), self._node.identity.peer_id, own(self._rng))

    async def _external(self, drawn: Counter[str], trained: Counter[str]) -> None:
        kept = budget = 0
        while kept < EXTERNAL and budget < EXTERNAL * OVERSAMPLE:
            reply = await self.ask(m.Sample(num_external=2 * EXTERNAL))
            assert isinstance(reply, m.SampleReply)
            if not reply.groups:
                return
            budget += len(reply.groups)
            spent, spare = [], []
            for item in reply.groups:
                name = self.names[item.publisher]
                rewards = self._earned[item.group_id]
                await self._report(item.group_id, item.publisher, rewards)
                drawn[name] += 1
                if len(set(rewards)) > 1 and kept >= EXTERNAL:
                    spare.append(item.group_id)
                    continue
                spent.append(item.group_id)
                if len(set(rewards)) > 1:
                    kept += 1
                    trained[name] += 1
            await self.ask(m.Report(consumed_ids=tuple(spent), released_ids=tuple(spare)))

    async def _report(self, of: GroupId, publisher: PeerId, rewards: Rewards) -> None:
        report = m.GroupReport(group_id=of, publisher=publisher, rewards=rewards)
        await self.ask(m.Report(groups=(report,)))


def share(counter: Counter[str], names: object) -> float:
    return sum(counter[name] for name in names) / max(1, counter.total())  # type: ignore[attr-defined]


SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))]


@pytest.mark.parametrize("seed", SEEDS)
async def test_liars_lose_their_share_within_twenty_rounds_and_no_honest_node_is_banned(
    tmp_path: Path, seed: int
) -> None:
    async with open_local_node(tmp_path) as node:
        scenario = TrainerScenario(node, random.Random(seed))
        await scenario.start()
        for name, skill in (HONEST | LIARS).items():
            await scenario.publish(name, skill, 500)
        await scenario.run(right(0.4), rounds=20)
        drawn, trained = await scenario.run(right(0.4), rounds=150)
        assert trained.total() == 150 * EXTERNAL
        for liar in LIARS:
            # A verifier that rewards liars a little is the node's own, so it has no better
            # judgement.
            assert share(trained, [liar]) < (0.03 if liar == "token" else 0.01)
            assert share(drawn, [liar]) < 0.02, "uniform sampling would give a ninth"
        for useful in ("weak", "fair", "good", "strong"):
            assert share(drawn, [useful]) > 0.1, "every useful publisher keeps a full share"
        assert share(drawn, ["fresh"]) > 0.01, "a seventh of the signal: sampled less, but sampled"
        now = trio.current_time()
        for peer_id, name in scenario.names.items():
            assert node.reputation.score(peer_id, now) == 0.0, f"{name}: reports never ban"
            assert node.reputation.ban_due(peer_id, now) is None


async def test_a_fresh_node_that_learns_is_drawn_again(tmp_path: Path) -> None:
    async with open_local_node(tmp_path) as node:
        scenario = TrainerScenario(node, random.Random(4))
        await scenario.start()
        for name, skill in HONEST.items():
            await scenario.publish(name, skill, 300)
        await scenario.publish("beginner", right(0.0), 20)
        await scenario.run(right(0.4), rounds=15)
        beginner = next(peer for peer, name in scenario.names.items() if name == "beginner")
        now = trio.current_time()
        assert node.reputation.sampling.weight(beginner, now) < 0.3
        await scenario.publish("beginner", right(0.5), 300)
        later = now + 3 * 900.0
        assert node.reputation.sampling.weight(beginner, later) > 0.3, "time forgives"
        for row in (node.reputation.sampling.row(beginner, later),):
            node.reputation.sampling.restore(beginner, row, now, age_s=0.0)
        drawn, _ = await scenario.run(right(0.4), rounds=30)
        assert share(drawn, ["beginner"]) > 0.05


async def test_a_hundred_names_of_a_liar_get_no_more_than_its_network(tmp_path: Path) -> None:
    async with open_local_node(tmp_path) as node:
        scenario = TrainerScenario(node, random.Random(6))
        await scenario.start()
        for name in ("fair", "good", "strong"):
            await scenario.publish(name, HONEST[name], 400)
        await scenario.run(right(0.4), rounds=5)
        names = [f"liar-{number}" for number in range(100)]
        node.pool._network_of = lambda _publisher: "of the liar"
        for name in names:
            await scenario.publish(name, right(0.0), 5, by="liar")
        drawn, trained = await scenario.run(right(0.4), rounds=20)
        assert share(drawn, names) < 0.3, "a quarter, as each of the honest"
        assert share(trained, names) == 0.0
