"""Turns groups with rewards into the rows of an update."""

from __future__ import annotations

from collections.abc import Sequence

from shoal_policy.choice.advantage import AdvantageScale, completion_share, group_advantages
from shoal_policy.choice.scored import ScoredGroup
from shoal_policy.choice.strategy import ExternalStrategy
from shoal_policy.model.loading import Policy
from shoal_policy.model.prompting import prompt_ids
from shoal_policy.update.rows import TrainGroup


def build_train_group(
    policy: Policy,
    group: ScoredGroup,
    strategy: ExternalStrategy,
    scale: AdvantageScale,
    num_local_completions: int,
) -> TrainGroup:
    """Return what the update trains on of a group; of an external one, what the strategy selects.

    A large external group weighs no more than an own group of `num_local_completions` can.
    """
    advantages = group_advantages(group.rewards, scale)
    indices: Sequence[int] = range(len(advantages))
    share = 1.0
    if group.source is not None:
        indices = strategy.select_completions(advantages)
        share = completion_share(len(advantages), num_local_completions)
    prompt = prompt_ids(policy, group.question)
    return TrainGroup(
        prompt_ids=prompt,
        num_shared=policy.few_shot.num_shared(prompt),
        completions=[group.completions[index] for index in indices],
        advantages=[advantages[index] for index in indices],
        external=group.external,
        sampling_logprobs=group.sampling_logprobs
        and [group.sampling_logprobs[index] for index in indices],
        start_logprobs=group.start_logprobs and [group.start_logprobs[index] for index in indices],
        share=share,
        unscored_mask=group.unscored_mask and [group.unscored_mask[index] for index in indices],
        completion_positions=group.completion_positions
        and [group.completion_positions[index] for index in indices],
    )


def count_tokens(groups: Sequence[TrainGroup]) -> int:
    """Return the number of tokens of all rows of a training set, each with its prompt."""
    return sum(
        len(group.prompt_ids) * len(group.completions) + sum(map(len, group.completions))
        for group in groups
    )
