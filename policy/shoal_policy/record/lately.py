"""The memory by which a training is judged: rounds, and evaluations. Pure values.

RoundRecord ──▶ Played ─┐
                        ├──▶ Known ──▶ `shoal_policy.record.learning_rules`
held-out ──▶ Evaluation ┘
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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
CUT_ANSWERS: Final = 100
KEPT_ROUNDS: Final = 250
"""Rounds remembered; where they hold fewer answers, these are enough."""
KEPT_EVALUATIONS: Final = 24

PASSED_OVER: Final[Mapping[str, str]] = {
    "no_reward": "earned nothing",
    "all_same": "earned the same throughout",
    "unread": "held right answers that this model cannot read as its own",
    "reserved": "answered questions kept for evaluation",
    "refused": "were of sources that had given enough",
}
"""Why groups of others are passed over: the field of `Played` that counts them, and in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """The figures kept of a round."""

    round: int
    answers: int
    reward: float
    """Mean over own answers; 0 where there were none."""
    groups: int
    """Own fresh groups; what has `same` counted."""
    same: float
    """Share of them whose rewards are all equal."""
    cut: float
    """Share of own answers that ended at the token limit."""
    drawn: int
    used: int
    no_reward: int
    all_same: int
    unread: int
    reserved: int
    refused: int

    @classmethod
    def of(cls, record: RoundRecord) -> Played:
        """Return what is kept of `record`."""
        return cls(
            round=record.round,
            answers=record.own_answers,
            reward=record.reward_local or 0.0,
            groups=record.own_groups,
            same=record.own_frac_reward_zero_std or 0.0,
            cut=record.completion_clipped_ratio or 0.0,
            drawn=record.external_drawn,
            used=record.groups_external,
            no_reward=record.external_no_reward,
            all_same=record.external_all_same,
            unread=record.external_unread,
            reserved=record.external_reserved,
            refused=record.external_refused,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lately:
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
    """Groups of others, by the field of `Played` that counts why they were passed over."""

    @property
    def passed(self) -> Mapping[str, int]:
        """The same, by the reason in words."""
        return {words: self.passed_over[name] for name, words in PASSED_OVER.items()}

    @classmethod
    def of(cls, rounds: Sequence[Played], least_rounds: int, least_answers: int) -> Lately:
        """Take together the fewest of the latest rounds that are enough, else all there are."""
        taken, answers = 0, 0
        for one in reversed(rounds):
            if taken >= least_rounds and answers >= least_answers:
                break
            taken, answers = taken + 1, answers + one.answers
        latest = rounds[len(rounds) - taken :]
        groups = sum(one.groups for one in latest)
        return cls(
            rounds=taken,
            enough=(taken >= least_rounds and answers >= least_answers) or taken >= KEPT_ROUNDS,
            answers=answers,
            groups=groups,
            reward=_mean((one.reward, one.answers) for one in latest),
            same=_mean((one.same, one.groups) for one in latest),
            cut=_mean((one.cut, one.answers) for one in latest),
            drawn=sum(one.drawn for one in latest),
            used=sum(one.used for one in latest),
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
class Known:
    """All that findings are made from."""

    lately: Lately
    lately_cut: Lately
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
