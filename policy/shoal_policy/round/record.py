"""The record of a round, from its groups and its update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shoal_ipc.skip_reason import SkipReason
from shoal_policy.choice.advantage import has_signal
from shoal_policy.choice.scored import ScoredGroup, TrainingSet, mean_reward
from shoal_policy.record.metrics import reward_spread
from shoal_policy.record.progress import RoundRecord, completion_metrics
from shoal_policy.rollouts import OwnGroup
from shoal_policy.update.grpo import UpdateStats
from shoal_wire.types import FinishReason


def build_record(
    number: int,
    training: TrainingSet,
    *,
    own: Sequence[OwnGroup],
    fresh: Sequence[ScoredGroup],
    stats: UpdateStats,
    **measured: Any,
) -> RoundRecord:
    """Return the line of round `number` in ``metrics.jsonl``.

    `fresh` are the groups of `own` with their rewards. `measured` are further fields of the record.
    """
    groups, external = training.groups, training.external
    reward_std, zero_share = reward_spread([group.rewards for group in groups])
    return RoundRecord(
        round=number,
        reward=mean_reward(groups),
        reward_local=mean_reward(fresh),
        reward_external=mean_reward(external.groups),
        reward_std=reward_std,
        frac_reward_zero_std=zero_share,
        groups_local=len(training.local),
        groups_external=len(external.groups),
        groups_with_signal=sum(has_signal(group.rewards) for group in groups),
        external_sampled=external.num_verified,
        external_no_reward=external.skipped[SkipReason.NO_REWARD],
        external_all_same=external.skipped[SkipReason.ALL_SAME],
        external_untokenizable=external.skipped[SkipReason.UNTOKENIZABLE],
        external_held_out=external.skipped[SkipReason.HELD_OUT],
        external_over_quota=external.skipped[SkipReason.OVER_QUOTA],
        external_unscored=external.skipped[SkipReason.UNSCORED],
        local_frac_reward_zero_std=reward_spread([one.rewards for one in fresh if one.rewards])[1],
        **measured,
        **_update_metrics(stats),
        **_local_metrics(own),
    )


def _update_metrics(stats: UpdateStats) -> dict[str, Any]:
    return {
        "loss": stats.loss,
        "grad_norm": stats.grad_norm,
        "entropy": stats.entropy,
        "clip_fraction": stats.clip_fraction_low + stats.clip_fraction_high,
        "clip_fraction_low": stats.clip_fraction_low,
        "clip_fraction_high": stats.clip_fraction_high,
        "ratio_max": stats.ratio_max,
        "kl": stats.kl,
        "sampling_logp_difference": stats.sampling_logp_difference,
        "steps_no_signal": stats.skipped_no_signal,
        "steps_nonfinite": stats.skipped_nonfinite,
        "token_budget": stats.token_budget,
        "num_tokens": stats.num_tokens,
    }


def _local_metrics(own: Sequence[OwnGroup]) -> dict[str, Any]:
    answers = [answer for group in own for answer in group.answers]
    num_cut = sum(answer.finish_reason is FinishReason.LENGTH for answer in answers)
    figures = completion_metrics([answer.num_completion_tokens for answer in answers], num_cut)
    return {**figures, "local_groups": len(own), "local_completions": len(answers)}
