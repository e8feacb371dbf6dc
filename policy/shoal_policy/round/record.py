"""The record of a round: from the groups it had and the update it made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shoal_ipc import messages as m
from shoal_policy.choice.advantage import has_signal
from shoal_policy.choice.scored import ScoredGroup, TrainingSet, mean_reward
from shoal_policy.record.metrics import reward_spread
from shoal_policy.record.progress import RoundRecord, completion_figures
from shoal_policy.rollouts import OwnGroup
from shoal_policy.update.grpo import UpdateStats
from shoal_wire.types import FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A round after its update."""

    number: int
    own: Sequence[OwnGroup]
    fresh: Sequence[ScoredGroup]
    """All own groups with their rewards."""
    training: TrainingSet
    stats: UpdateStats
    server_difference: float | None
    """See `shoal_policy.generation.seam.Generator`."""
    outcomes: Sequence[m.GroupOutcome]
    """The fate of every group: `shoal_policy.round.learnt.outcomes`."""
    tokens_seen: int
    """Prompt and completion tokens of the training set."""
    seconds: float
    seconds_generate: float
    seconds_update: float


def record_of(played: Played) -> RoundRecord:
    """Return the line that stands for a round in ``metrics.jsonl``."""
    groups, external = played.training.groups, played.training.external
    spread = reward_spread([group.rewards for group in groups])
    return RoundRecord(
        round=played.number,
        reward=mean_reward(groups),
        reward_local=mean_reward(played.fresh),
        reward_external=mean_reward(external.groups),
        reward_std=spread.std,
        frac_reward_zero_std=spread.zero_share,
        groups_local=len(played.training.local),
        groups_external=len(external.groups),
        groups_with_signal=sum(has_signal(group.rewards) for group in groups),
        groups_looked_at=len(played.fresh) + external.num_drawn,
        signal_local=sum(one.signal for one in played.outcomes if not one.publisher),
        signal_external=sum(one.signal for one in played.outcomes if one.publisher),
        external_drawn=external.num_drawn,
        external_age_s=external.age_s,
        external_no_reward=external.passed_over.no_reward,
        external_all_same=external.passed_over.all_same,
        external_unread=external.passed_over.unread,
        external_reserved=external.passed_over.reserved,
        external_refused=external.passed_over.refused,
        own_frac_reward_zero_std=reward_spread(
            [one.rewards for one in played.fresh if one.rewards]
        ).zero_share,
        server_difference=played.server_difference,
        tokens_seen=played.tokens_seen,
        seconds=played.seconds,
        seconds_generate=played.seconds_generate,
        seconds_update=played.seconds_update,
        **_update_figures(played.stats),
        **_own_figures(played.own),
    )


def _update_figures(stats: UpdateStats) -> dict[str, Any]:
    external = stats.external
    return {
        "loss": stats.loss,
        "grad_norm": stats.grad_norm,
        "entropy": stats.entropy,
        "clip_fraction": stats.clip_fraction_low + stats.clip_fraction_high,
        "clip_fraction_low": stats.clip_fraction_low,
        "clip_fraction_high": stats.clip_fraction_high,
        "ratio_mean": stats.ratio_mean,
        "ratio_max": stats.ratio_max,
        "kl": stats.kl,
        "external_logprob": external.logprob_mean,
        "external_unlikely_share": external.unlikely_share,
        "sampling_logp_difference": external.served_difference,
        "steps_no_signal": stats.skipped_no_signal,
        "steps_nonfinite": stats.skipped_nonfinite,
        "token_budget": stats.token_budget,
        "num_tokens": stats.num_tokens,
    }


def _own_figures(own: Sequence[OwnGroup]) -> dict[str, Any]:
    answers = [answer for group in own for answer in group.answers]
    num_cut = sum(answer.finish_reason is FinishReason.LENGTH for answer in answers)
    figures = completion_figures([answer.num_said for answer in answers], num_cut)
    return {**figures, "own_groups": len(own), "own_answers": len(answers)}
