"""The latest rounds taken together: what a training is judged by. Pure values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from shoal_policy.record.progress import RoundRecord

KEPT_ROUNDS: Final = 250
"""Rounds remembered; where they hold fewer answers, these are enough."""

PASSED_OVER: Final[Mapping[str, str]] = {
    "external_no_reward": "earned nothing",
    "external_all_same": "earned the same throughout",
    "external_untokenizable": "held right answers that this model cannot read as its own",
    "external_held_out": "answered questions kept for evaluation",
    "external_over_quota": "were of sources that had given enough",
    "external_unscored": "got no reward: this node's OpenEnv server or judge was away or slow",
}
"""Why groups of others are passed over: the field of `RoundRecord` that counts them, and in words.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingWindow:
    """The latest rounds, taken together."""

    rounds: int
    enough: bool
    """True if they are as many as a judgement needs."""
    answers: int
    groups: int
    reward: float
    same: float
    cut: float
    drawn: int
    used: int
    passed_over: Mapping[str, int]
    """Groups of others, by the field of `RoundRecord` that counts why they were passed over."""

    @classmethod
    def of(
        cls, rounds: Sequence[RoundRecord], least_rounds: int, least_answers: int
    ) -> RollingWindow:
        """Take together the fewest of the latest rounds that are enough, else all there are."""
        taken, answers = 0, 0
        for one in reversed(rounds):
            if taken >= least_rounds and answers >= least_answers:
                break
            taken, answers = taken + 1, answers + one.local_completions
        latest = list(rounds)[len(rounds) - taken :]
        return cls(
            rounds=taken,
            enough=(taken >= least_rounds and answers >= least_answers) or taken >= KEPT_ROUNDS,
            answers=answers,
            groups=sum(one.local_groups for one in latest),
            reward=_mean((one.reward_local, one.local_completions) for one in latest),
            same=_mean((one.local_frac_reward_zero_std, one.local_groups) for one in latest),
            cut=_mean((one.completion_clipped_ratio, one.local_completions) for one in latest),
            drawn=sum(one.external_sampled for one in latest),
            used=sum(one.groups_external for one in latest),
            passed_over={name: sum(getattr(one, name) for one in latest) for name in PASSED_OVER},
        )


def _mean(weighted: Iterable[tuple[float | None, int]]) -> float:
    """Return the weighted mean; a figure that a round did not know counts as 0."""
    pairs = list(weighted)
    total = sum(weight for _, weight in pairs)
    return sum((value or 0) * weight for value, weight in pairs) / total if total else 0.0
