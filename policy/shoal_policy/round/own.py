"""Own answers with their rewards, as the update takes them, by the model that generated them."""

from __future__ import annotations

from collections.abc import Sequence

from shoal_policy.choice.scored import ScoredGroup
from shoal_policy.generation.generator import is_exact, is_untruncated
from shoal_policy.generation.replies import usable_logprobs
from shoal_policy.model.loading import Policy
from shoal_policy.rollouts import Origin, OwnGroup
from shoal_wire.types import SamplingParams


def to_scored_group(
    policy: Policy, group: OwnGroup, rewards: Sequence[float], sampling: SamplingParams
) -> ScoredGroup:
    """Return an own group as one to train on.

    Log-probabilities of the policy itself are start log-probabilities. Those of a server with this
    policy, or of the policy in bfloat16, are sampling log-probabilities, for importance weights.
    Text of another model counts as external.
    """
    start_logprobs = sampling_logprobs = None
    completion_positions = [answer.completion_positions for answer in group.answers]
    numbers = tuple(answer.logprobs for answer in group.answers)
    whole = all(len(answer.logprobs) == answer.num_completion_tokens for answer in group.answers)
    is_own = group.origin is Origin.POLICY and whole and is_untruncated(sampling)
    if is_own and is_exact(policy):
        start_logprobs = numbers
    elif is_own or group.origin is Origin.FOLLOWER:
        sampling_logprobs = tuple(
            usable_logprobs(answer.logprobs, answer.num_completion_tokens)
            for answer in group.answers
        )
    return ScoredGroup(
        question=group.question,
        completions=tuple(answer.ids for answer in group.answers),
        rewards=tuple(rewards),
        external=group.origin is Origin.ANOTHER,
        start_logprobs=start_logprobs,
        sampling_logprobs=sampling_logprobs,
        completion_positions=tuple(completion_positions) if any(completion_positions) else None,
    )
