"""Courses of made-up trainings, round by round: what `shoal_policy.record.learning` is tried on."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from shoal_policy.record.learning import TrainingHistory
from shoal_policy.record.progress import RoundRecord
from tests.policy.record.test_progress import record

GROUPS, LENGTH = 4, 8

Skill = Callable[[int], float]
"""Round → chance that an answer is right."""


@dataclass(frozen=True, kw_only=True)
class TrainingScenario:
    """How a training goes."""

    own: Skill
    alike: float = 0.0
    """Chance that a question's answers are right or wrong together."""
    cut: float = 0.1
    drawn: int = 32
    used: float = 0.2
    """Share of those drawn."""
    easy: float = 0.0
    """Share of the rest whose answers are all right, or that exceed their network's share."""

    def run(self, rounds: int, seed: int = 0, start: int = 0) -> Iterator[RoundRecord]:
        """Yield each round's record."""
        chance = random.Random(seed)
        for number in range(start + 1, start + rounds + 1):
            yield self._round(number, chance)

    def _round(self, number: int, chance: random.Random) -> RoundRecord:
        skill = self.own(number)
        groups = [self._group(skill, chance) for _ in range(GROUPS)]
        used = sum(chance.random() < self.used for _ in range(self.drawn))
        easy = sum(chance.random() < self.easy for _ in range(self.drawn - used))
        over = sum(chance.random() < 0.5 for _ in range(easy))
        return record(
            number,
            sum(map(sum, groups)) / (GROUPS * LENGTH),
            local_groups=GROUPS,
            local_completions=GROUPS * LENGTH,
            local_frac_reward_zero_std=sum(len(set(one)) == 1 for one in groups) / GROUPS,
            completion_clipped_ratio=sum(chance.random() < self.cut for _ in range(32)) / 32,
            external_sampled=self.drawn,
            groups_external=used,
            external_no_reward=self.drawn - used - easy,
            external_all_same=easy - over,
            external_untokenizable=0,
            external_held_out=0,
            external_over_quota=over,
            external_unscored=0,
            rewards_out_of_range=0,
        )

    def _group(self, skill: float, chance: random.Random) -> list[float]:
        if chance.random() < self.alike:
            return LENGTH * [float(chance.random() < skill)]
        return [float(chance.random() < skill) for _ in range(LENGTH)]


def steady(share: float) -> Skill:
    """A skill that stays."""
    return lambda _number: share


def rising(first: float, last: float, rounds: int) -> Skill:
    """A skill that goes from `first` to `last`, and stays there."""
    return lambda number: first + (last - first) * min(1.0, number / rounds)


def found(learning: TrainingHistory, scenario: Iterator[RoundRecord]) -> dict[str, int]:
    """Play a course; return the findings that ever stood, and the first round of each."""
    seen: dict[str, int] = {}
    for one in scenario:
        learning.add(one)
        for check, since in learning.active.items():
            seen.setdefault(str(check), since)
    return seen
