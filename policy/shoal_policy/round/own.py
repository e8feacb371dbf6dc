"""This node's own answers with their rewards, as the update takes them: by who made them."""

from __future__ import annotations

from collections.abc import Sequence

from shoal_policy.choice.scored import ScoredGroup
from shoal_policy.generation.generator import are_start_logprobs
from shoal_policy.generation.replies import usable_claims
from shoal_policy.model.loading import Policy
from shoal_policy.rollouts import Origin, OwnGroup
from shoal_wire.types import SamplingParams


def own_scored(
    policy: Policy, group: OwnGroup, rewards: Sequence[float], sampling: SamplingParams
) -> ScoredGroup:
    """Return a group of this node's as one to train on.

    The policy's own log-probabilities are those of its start. A follower's are claims, to weigh its
    text by. Another model's text is that of others, whoever asked it.
    """
    started = claimed = None
    said = [answer.said for answer in group.answers]
    numbers = tuple(answer.logprobs for answer in group.answers)
    whole = all(len(answer.logprobs) == answer.num_said for answer in group.answers)
    if group.origin is Origin.POLICY and whole and are_start_logprobs(policy, sampling):
        started = numbers
    elif group.origin is Origin.FOLLOWER:
        claimed = tuple(usable_claims(answer.logprobs, answer.num_said) for answer in group.answers)
    return ScoredGroup(
        question=group.question,
        completions=tuple(answer.ids for answer in group.answers),
        rewards=tuple(rewards),
        external=group.origin is Origin.ANOTHER,
        started=started,
        claimed=claimed,
        said=tuple(said) if any(said) else None,
    )
