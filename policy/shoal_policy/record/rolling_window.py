"""Statistics over the latest rounds, from which alarms are computed. Pure values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from shoal_policy.record.progress import RoundRecord

KEPT_ROUNDS: Final = 250
"""Rounds in memory; where they contain fewer answers, these suffice."""

SKIP_REASONS: Final[Mapping[str, str]] = {
    "external_no_reward": "earned nothing",
    "external_all_same": "earned equal rewards",
    "external_untokenizable": "have correct answers that this tokenizer cannot represent",
    "external_held_out": "answer held-out questions",
    "external_over_quota": "exceeded their source's quota",
    "external_unscored": "got no reward: this node's OpenEnv server or judge was down or slow",
}
"""Reasons for skipping external groups, by the field of `RoundRecord` that counts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingWindow:
    """Statistics over the latest rounds."""

    rounds: int
    is_full: bool
    """True if there are enough rounds and answers to judge."""
    answers: int
    groups: int
    reward: float
    equal_share: float
    truncated_share: float
    verified: int
    trained: int
    skipped: Mapping[str, int]
    """External groups, by the field of `RoundRecord` that counts why they were skipped."""

    @classmethod
    def of(
        cls, rounds: Sequence[RoundRecord], least_rounds: int, least_answers: int
    ) -> RollingWindow:
        """Return the smallest window of latest rounds that is large enough, else all rounds."""
        taken, answers = 0, 0
        for one in reversed(rounds):
            if taken >= least_rounds and answers >= least_answers:
                break
            taken, answers = taken + 1, answers + one.local_completions
        latest = list(rounds)[len(rounds) - taken :]
        return cls(
            rounds=taken,
            is_full=(taken >= least_rounds and answers >= least_answers) or taken >= KEPT_ROUNDS,
            answers=answers,
            groups=sum(one.local_groups for one in latest),
            reward=_mean((one.reward_local, one.local_completions) for one in latest),
            equal_share=_mean((one.local_frac_reward_zero_std, one.local_groups) for one in latest),
            truncated_share=_mean(
                (one.completion_clipped_ratio, one.local_completions) for one in latest
            ),
            verified=sum(one.external_sampled for one in latest),
            trained=sum(one.groups_external for one in latest),
            skipped={name: sum(getattr(one, name) for one in latest) for name in SKIP_REASONS},
        )


def _mean(weighted: Iterable[tuple[float | None, int]]) -> float:
    """Return the weighted mean; a missing value counts as 0."""
    pairs = list(weighted)
    total = sum(weight for _, weight in pairs)
    return sum((value or 0) * weight for value, weight in pairs) / total if total else 0.0
