"""In a swarm too large to know every peer, liars are hardly ever sampled."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from shoal_p2p.buffer.replay import MIN_USEFUL_PUBLISHERS, UNKNOWN_SHARE, ReplayBuffer
from shoal_p2p.reputation.publisher_weights import PublisherWeights
from shoal_wire.types import GroupId, PeerId
from tests.p2p.buffer.entries import entry, limits

ANSWERS, OWN_RIGHT = 8, 0.4
ROUND_S, DRAWS = 16.0, 4
SKILLS = (0.05, 0.3, 0.6, 0.9)


class Large:
    """A shard of many publishers, each heard from a few networks, and one node that draws.

    Every publisher always has a group ready.
    """

    def __init__(self, num_publishers: int, liars: float, seed: int, networks: int = 20) -> None:
        self.rng = random.Random(seed)
        self.weights = PublisherWeights()
        most = num_publishers + 1
        self.buffer = ReplayBuffer(
            limits(max_groups=most, max_age_seconds=1e7, max_bytes=100 * most),
            random.Random(seed),
        )
        names = [PeerId(f"p{number}") for number in range(num_publishers)]
        self.skill = {
            name: 0.0 if self.rng.random() < liars else self.rng.choice(SKILLS) for name in names
        }
        self.network = {name: f"n{self.rng.randrange(networks)}" for name in names}
        self.number, self.now = 0, 0.0
        for name in names:
            self.publish(name)

    def publish(self, name: PeerId) -> None:
        self.number += 1
        item = entry(self.number, name, received_at=self.now)
        network = self.network[name]
        self.buffer.insert(replace(item, network=network, connection=network), self.now)

    def rewards(self, right: float) -> list[float]:
        return [float(self.rng.random() < right) for _ in range(ANSWERS)]

    def report(self, group_id: GroupId, name: PeerId, rewards: list[float], *, own: bool) -> None:
        self.weights.report(
            group_id, publisher=name, family="f", rewards=rewards, own=own, now=self.now
        )

    def play(self, rounds: int) -> Counter[PeerId]:
        """Play rounds; return whose groups were drawn, how often."""
        drawn: Counter[PeerId] = Counter()
        for _ in range(rounds):
            self.now += ROUND_S
            for _ in range(DRAWS):
                self.number += 1
                own = GroupId(b"own%13d" % self.number)
                self.report(own, PeerId("me"), self.rewards(OWN_RIGHT), own=True)
            for item in self.buffer.lease(
                DRAWS,
                holder="t",
                now=self.now,
                lease_seconds=1e6,
                weight_of=lambda name, source: self.weights.weight(name, self.now, source),
                has_signal=lambda name: self.weights.has_signal(name, self.now),
            ):
                name = item.group.publisher
                self.report(item.group.group_id, name, self.rewards(self.skill[name]), own=False)
                self.buffer.consume([item.group.group_id])
                self.publish(name)
                drawn[name] += 1
        return drawn

    def liars_share(self, drawn: Counter[PeerId]) -> float:
        lies = sum(count for name, count in drawn.items() if not self.skill[name])
        return lies / drawn.total()


SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 21))]


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_tenth_of_1250_publishers_lie_and_get_no_fiftieth_of_the_draws(seed: int) -> None:
    scenario = Large(1250, 0.1, seed)
    scenario.play(115)
    drawn = scenario.play(225)
    assert scenario.liars_share(drawn) <= 0.02
    assert len(drawn) > 2 * MIN_USEFUL_PUBLISHERS, "nor do the first that were useful get all"


def test_a_newcomer_to_a_large_swarm_is_found() -> None:
    scenario = Large(100, 0.1, seed=2)
    scenario.play(200)
    newcomer = PeerId("newcomer")
    scenario.skill[newcomer], scenario.network[newcomer] = 0.6, "its own"
    scenario.publish(newcomer)
    scenario.play(225)
    assert scenario.weights.has_signal(newcomer, scenario.now)


def drawn_of(known: int, strangers: int, count: int) -> Counter[bool]:
    """Sample from publishers with and without signal; return how often each was sampled."""
    buffer = ReplayBuffer(limits(max_groups=10_000), random.Random(3))
    names = [f"known{n}" for n in range(known)] + [f"stranger{n}" for n in range(strangers)]
    for number in range(20 * count):
        buffer.insert(entry(number, names[number % len(names)]), 0.0)
    items = buffer.lease(
        count,
        holder="t",
        now=0.0,
        lease_seconds=1.0,
        has_signal=lambda name: name.startswith("known"),
        by_shares=False,
    )
    assert len(items) == count
    return Counter(item.group.publisher.startswith("known") for item in items)


def test_strangers_share_a_small_part_of_the_draws_once_enough_are_known() -> None:
    drawn = drawn_of(MIN_USEFUL_PUBLISHERS, 200, 400)
    assert 0 < drawn[False] < 3 * UNKNOWN_SHARE * 400


def test_in_a_small_swarm_all_are_drawn_alike() -> None:
    drawn = drawn_of(MIN_USEFUL_PUBLISHERS - 1, MIN_USEFUL_PUBLISHERS - 1, 400)
    assert 0.4 * 400 < drawn[False] < 0.6 * 400


def test_where_the_known_have_nothing_left_strangers_are_drawn() -> None:
    buffer = ReplayBuffer(limits(), random.Random(3))
    for number in range(MIN_USEFUL_PUBLISHERS):
        buffer.insert(entry(number, f"known{number}"), 0.0)
    for number in range(50):
        buffer.insert(entry(100 + number, f"stranger{number}"), 0.0)
    items = buffer.lease(
        66,
        holder="t",
        now=0.0,
        lease_seconds=1.0,
        has_signal=lambda name: name.startswith("known"),
    )
    assert len(items) == 66
