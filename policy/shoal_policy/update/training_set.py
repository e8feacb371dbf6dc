"""Turn groups with rewards into the rows of an update."""

from __future__ import annotations

from collections.abc import Sequence

from shoal_policy.choice.advantage import AdvantageScale, completion_share, group_advantages
from shoal_policy.choice.scored import ScoredGroup
from shoal_policy.choice.strategy import ExternalStrategy
from shoal_policy.model.loading import Policy
from shoal_policy.model.prompting import prompt_ids
from shoal_policy.update.rows import TrainGroup


def train_group(
    policy: Policy,
    group: ScoredGroup,
    strategy: ExternalStrategy,
    scale: AdvantageScale,
    own_completions: int,
) -> TrainGroup:
    """Return what the update takes of a group: of others' only what the strategy trains on.

    However many completions a group of others has, it weighs no more than an own one of
    `own_completions` can.
    """
    advantages = group_advantages(group.rewards, scale)
    indices: Sequence[int] = range(len(advantages))
    share = 1.0
    if group.source is not None:
        indices = strategy.trained_on(advantages)
        share = completion_share(len(advantages), own_completions)
    prompt = prompt_ids(policy, group.question)
    return TrainGroup(
        prompt_ids=prompt,
        num_shared=policy.shots.num_shared(prompt),
        completions=[group.completions[index] for index in indices],
        advantages=[advantages[index] for index in indices],
        external=group.external,
        claimed_logprobs=group.claimed and [group.claimed[index] for index in indices],
        start_logprobs=group.started and [group.started[index] for index in indices],
        share=share,
        unread=group.unread and [group.unread[index] for index in indices],
        said=group.said and [group.said[index] for index in indices],
    )


def num_tokens(groups: Sequence[TrainGroup]) -> int:
    """Return the tokens of all rows of a training set, each with its prompt."""
    return sum(
        len(group.prompt_ids) * len(group.completions) + sum(map(len, group.completions))
        for group in groups
    )
