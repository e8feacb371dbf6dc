"""Groups with their rewards, and what of them is trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policy.choice.advantage import AdvantageScale, group_advantages
from policy.choice.sampling import ExternalStrategy
from policy.model.loading import Policy
from policy.model.prompting import encode_prompt
from policy.rollouts import Question
from policy.update.grpo import TrainGroup
from shoal_wire.types import PublishedGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredGroup:
    """A group with rewards by the own verifier: what the update takes."""

    question: Question
    completions: tuple[tuple[int, ...], ...]
    """Own token ids."""
    rewards: tuple[float, ...]
    external: bool
    source: PublishedGroup | None = None
    """Where an external group came from."""
    claimed: tuple[tuple[float, ...] | None, ...] | None = None
    """The generator's log-probabilities of each completion, where they can be used."""


def train_group(
    policy: Policy, group: ScoredGroup, strategy: ExternalStrategy, scale: AdvantageScale
) -> TrainGroup:
    """Return what the update takes of a group: of others' only what the strategy keeps."""
    advantages = group_advantages(group.rewards, scale)
    indices: Sequence[int] = range(len(advantages))
    if group.source is not None:
        texts = [completion.text for completion in group.source.group.completions]
        indices = strategy.trained_on(advantages, texts, tagged=group.question.tagged)
    return TrainGroup(
        prompt_ids=encode_prompt(policy, group.question.text, tagged=group.question.tagged),
        completions=[group.completions[index] for index in indices],
        advantages=[advantages[index] for index in indices],
        external=group.external,
        claimed_logprobs=group.claimed and [group.claimed[index] for index in indices],
    )


def num_tokens(groups: Sequence[TrainGroup]) -> int:
    """Return the tokens of all rows of a training set, each with its prompt."""
    return sum(
        len(group.prompt_ids) * len(group.completions) + sum(map(len, group.completions))
        for group in groups
    )
