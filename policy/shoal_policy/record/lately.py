"""The memory by which a training is judged: rounds, and evaluations. Pure values.

RoundRecord ──▶ RoundFigures ─┐
                              ├──▶ Observed ──▶ `shoal_policy.record.learning_rules`
held-out ──▶ Evaluation ──────┘
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

from shoal_policy.record.progress import RoundRecord
from shoal_policy.record.wrong_answer import WrongAnswer

ROUNDS: Final = 30
"""Least rounds that are judged together."""
ANSWERS: Final = 500
"""Least own answers that are judged together: of a policy that is right once in a hundred, none of
them earns anything once in 150 times."""
CUT_ROUNDS: Final = 10
"""As `ROUNDS`, of what the token limit cuts: it shows at once, and costs every round until then."""
CUT_ANSWERS: Final = 100  # enough to tell 90 % from 75 % of them
KEPT_ROUNDS: Final = 250
"""Rounds remembered; where they hold fewer answers, these are enough."""
KEPT_EVALUATIONS: Final = 24  # twice as many as the longest rule looks at

PASSED_OVER: Final[Mapping[str, str]] = {
    "external_no_reward": "earned nothing",
    "external_all_same": "earned the same throughout",
    "external_unread": "held right answers that this model cannot read as its own",
    "external_reserved": "answered questions kept for evaluation",
    "external_refused": "were of sources that had given enough",
}
"""Why groups of others are passed over: the field of `RoundRecord` that counts them, and in words.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFigures:
    """The figures kept of a round, by their names in `RoundRecord`; 0 for what it did not know."""

    round: int
    own_answers: int
    reward_local: float
    own_groups: int
    own_frac_reward_zero_std: float
    completion_clipped_ratio: float
    external_drawn: int
    groups_external: int
    external_no_reward: int
    external_all_same: int
    external_unread: int
    external_reserved: int
    external_refused: int

    @classmethod
    def of(cls, record: RoundRecord) -> RoundFigures:
        """Return what is kept of `record`."""
        return cls(**{one.name: getattr(record, one.name) or 0 for one in fields(cls)})


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentRounds:
    """The latest rounds, taken together."""

    rounds: int
    enough: bool
    """Whether they are as many as a judgement needs."""
    answers: int
    groups: int
    reward: float
    same: float
    cut: float
    drawn: int
    used: int
    passed_over: Mapping[str, int]
    """Groups of others, by the field of `RoundRecord` that counts why they were passed over."""

    @property
    def passed(self) -> Mapping[str, int]:
        """The same, by the reason in words."""
        return {words: self.passed_over[name] for name, words in PASSED_OVER.items()}

    @classmethod
    def of(
        cls, rounds: Sequence[RoundFigures], least_rounds: int, least_answers: int
    ) -> RecentRounds:
        """Take together the fewest of the latest rounds that are enough, else all there are."""
        taken, answers = 0, 0
        for one in reversed(rounds):
            if taken >= least_rounds and answers >= least_answers:
                break
            taken, answers = taken + 1, answers + one.own_answers
        latest = rounds[len(rounds) - taken :]
        groups = sum(one.own_groups for one in latest)
        return cls(
            rounds=taken,
            enough=(taken >= least_rounds and answers >= least_answers) or taken >= KEPT_ROUNDS,
            answers=answers,
            groups=groups,
            reward=_mean((one.reward_local, one.own_answers) for one in latest),
            same=_mean((one.own_frac_reward_zero_std, one.own_groups) for one in latest),
            cut=_mean((one.completion_clipped_ratio, one.own_answers) for one in latest),
            drawn=sum(one.external_drawn for one in latest),
            used=sum(one.groups_external for one in latest),
            passed_over={name: sum(getattr(one, name) for one in latest) for name in PASSED_OVER},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A held-out evaluation beside what the own answers earned then."""

    round: int
    passed: float
    """pass@1."""
    items: int
    own: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """All that findings are made from."""

    lately: RecentRounds
    lately_cut: RecentRounds
    """Fewer rounds: those by which is judged what the token limit cuts."""
    evaluations: Sequence[Evaluation]
    """Oldest first."""
    best: float
    """The most that the own answers earned `lately`, ever."""
    best_round: int
    wrong: WrongAnswer | None
    """An own answer that earned nothing."""


def _mean(weighted: Iterable[tuple[float, int]]) -> float:
    pairs = list(weighted)
    total = sum(weight for _, weight in pairs)
    return sum(value * weight for value, weight in pairs) / total if total else 0.0
