"""Whom the evidence proves and condemns, over whole courses of the real standings and buffer.

A course is a publisher's skill, drawn by seed, and a trainer that is its rule alone: lease, verify,
report, train on what has signal.  Time is a number, so the same seed is the same course, and
hundreds of them take seconds.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pytest

from p2p.buffer.replay import ReplayBuffer
from p2p.standing.sampling import SamplingStandings, Standing, capped
from shoal_wire.types import GroupId, PeerId
from tests.p2p.buffer.entries import entry, limits

ANSWERS = 8
Rewards = tuple[float, ...]
Skill = Callable[[random.Random], Rewards]


def right(chance: float) -> Skill:
    """Answers that are right with a chance, each alone."""
    return lambda rng: tuple(float(rng.random() < chance) for _ in range(ANSWERS))


def token(rng: random.Random) -> Rewards:
    """Garbage for which a lenient verifier gives a little, now and then."""
    return tuple(rng.choice((0.0, 0.02)) for _ in range(ANSWERS))


HONEST: Mapping[str, Skill] = {
    "fresh": right(0.02),
    "weak": right(0.05),
    "fair": right(0.3),
    "good": right(0.6),
    "strong": right(0.9),
    "perfect": right(1.0),
}
LIARS: Mapping[str, Skill] = {
    "garbage": right(0.0),
    "plausible": right(0.002),
    "token": token,
}


class Course:
    """One node's buffer and standings among publishers, each by a network of its own."""

    def __init__(self, seed: int, skills: Mapping[str, Skill], *, groups: int) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.standings = SamplingStandings()
        self.buffer = ReplayBuffer(
            limits(max_groups=1e6, max_bytes=1e9, max_age_seconds=1e9),
            random.Random(self.rng.random()),
        )
        self._skills = skills
        self._earned: dict[GroupId, Rewards] = {}
        for name in skills:
            for _ in range(groups):
                item = replace(entry(len(self._earned), name), network=name, by_publisher=True)
                self._earned[item.group.group_id] = skills[name](self.rng)
                self.buffer.insert(item, 0.0)

    def ask(self, count: int) -> list[tuple[str, GroupId, Rewards]]:
        """Lease, verify and report; return whose groups came, in their order."""
        known, now = self.standings.known(self.now), self.now
        proven = [peer for peer, standing in known.items() if standing is Standing.PROVEN]
        self.buffer.set_tiers(proven=proven, useless=known.keys() - set(proven))
        publishers = self.buffer.publishers()
        weights = {peer: self.standings.weight_alone(peer, now) for peer in publishers}
        leased = self.buffer.lease(
            count, holder="t", now=now, lease_seconds=60.0, weights=weights, pots=capped
        )
        found = []
        for item in leased:
            publisher, group_id = item.group.publisher, item.group.group_id
            rewards = self._earned[group_id]
            self.standings.report(
                group_id, publisher=publisher, family="sums", rewards=rewards, own=False, now=now
            )
            found.append((str(publisher), group_id, rewards))
        return found

    def settle(self, consumed: list[GroupId]) -> None:
        """Consume these groups, and give back the rest."""
        self.buffer.consume(consumed)
        self.buffer.release_holder("t")


@dataclass(slots=True)
class Shares:
    """Of each publisher, what was drawn and what was trained on."""

    drawn: Counter[str]
    trained: Counter[str]

    @classmethod
    def of_rounds(cls, course: Course, rounds: int, *, wanted: int = 4) -> Shares:
        """Play rounds as the trainer does, with a budget of eight draws for each one wanted."""
        shares = cls(Counter(), Counter())
        for _ in range(rounds):
            kept = asked = 0
            while kept < wanted and asked < 8 * wanted:
                spent = []
                for name, group_id, rewards in course.ask(2 * wanted):
                    asked += 1
                    shares.drawn[name] += 1
                    has_signal = len(set(rewards)) > 1
                    if has_signal and kept >= wanted:
                        continue
                    spent.append(group_id)
                    if has_signal:
                        kept += 1
                        shares.trained[name] += 1
                course.settle(spent)
        return shares


def share(counter: Counter[str], name: str) -> float:
    return counter[name] / max(1, counter.total())


def wrongs_of(seed: int) -> list[str]:
    """Return what goes wrong in one course of six honest publishers and three liars."""
    course = Course(seed, {**HONEST, **LIARS}, groups=500)
    for _ in range(20 * 4):
        course.standings.report(
            GroupId(course.rng.randbytes(16)),
            publisher=PeerId("me"),
            family="sums",
            rewards=right(0.4)(course.rng),
            own=True,
            now=0.0,
        )
    Shares.of_rounds(course, 20)
    later = Shares.of_rounds(course, 150)
    return [
        *(f"{name} drawn" for name in LIARS if share(later.drawn, name) >= 0.01),
        *(f"{name} trained on" for name in LIARS if share(later.trained, name) >= 0.01),
        *(f"{name} lost" for name in list(HONEST)[1:] if share(later.drawn, name) <= 0.05),
    ]


@pytest.mark.slow
def test_of_a_hundred_courses_hardly_any_goes_wrong() -> None:
    """To doubt the weak less costs draws of liars, and the other way round: neither error is none.

    With a threshold of six useless groups it was one course in ten.
    """
    wrongs = {seed: found for seed in range(100) if (found := wrongs_of(seed))}
    assert len(wrongs) <= 5, wrongs


def share_of_liars(seed: int, *, nodes: int) -> float:
    """Return the liars' part of the draws in the second half of an hour, over many nodes.

    A hundred publishers, three of them liars, and two draws in five minutes: a node hardly meets
    anybody twice.
    """
    skills: dict[str, Skill] = {f"honest{n}": right(0.15) for n in range(97)}
    skills |= {f"liar{n}": right(0.0) for n in range(3)}
    drawn = Counter[str]()
    for node in range(nodes):
        course = Course(seed * 1000 + node, skills, groups=6)
        while course.now < 3600.0:
            course.now += 300.0 * course.rng.uniform(0.75, 1.25)
            found = course.ask(2)
            course.settle([group_id for _, group_id, _ in found])
            if course.now > 1800.0:
                drawn.update(name.rstrip("0123456789") for name, _, _ in found)
    return share(drawn, "liar")


def test_liars_fade_where_hardly_anybody_is_met_twice() -> None:
    assert share_of_liars(1, nodes=30) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 32))
def test_liars_fade_in_any_hour_of_a_hundred_nodes(seed: int) -> None:
    assert share_of_liars(seed, nodes=100) < 0.02
