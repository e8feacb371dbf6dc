"""The call behind which a round's questions are answered.

    this process      `turns.LocalGenerator`      the policy as it is vllm
    `following.VllmGenerator`    a server whose weights follow the policy's openai
    `static.OpenAIGenerator`          a server whose weights stay: another's answers

What differs between them is said by each group: who made it, and what its log-probabilities are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from shoal_policy.generation.local import OnStep
from shoal_policy.generation.transcript import PlayGames
from shoal_policy.model.loading import Policy
from shoal_policy.rollouts import OwnGroup, Question
from shoal_wire.types import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """A round's questions, and how they are to be answered."""

    questions: Sequence[Question]
    policy: Policy
    policy_version: int
    """Updates that the policy has received."""
    num_completions: int
    sampling: SamplingParams
    seed: int
    """The seed of this round's answers alone: a round that is resumed asks the same again."""
    play: PlayGames
    """The answers of environments, for questions that are games."""
    on_step: OnStep = lambda _done, _fraction: None


class Generator(Protocol):
    """Answers questions. It may answer fewer than it is asked, and raises ModelError for good."""

    @property
    def server_logp_difference(self) -> float | None:
        """Mean difference, in nats a token, of a server's log-probabilities from the policy's own
        when the server was last given weights. None without such a server, or before."""
        ...

    def answer(self, asking: GenerationRequest) -> list[OwnGroup]:
        """Return a group for each question that was answered. Blocks."""
        ...


def are_start_logprobs(policy: Policy, sampling: SamplingParams) -> bool:
    """Return whether the log-probabilities drawn with are those an update computes first.

    So it is in float32, to rounding, where no token was ruled out: then they need not be computed
    again. In bfloat16 two ways to the same number differ by a hundredth of a nat and more.
    """
    untruncated = sampling.temperature > 0 and sampling.top_p == 1 and sampling.top_k == 0
    return untruncated and policy.autocast_dtype is None and policy.model.dtype == torch.float32
