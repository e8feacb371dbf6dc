"""The interface for generating the completions of a round.

    this process   `local_generator.LocalGenerator`     the policy as it is
    vllm           `vllm_generator.VllmGenerator`       a server that receives the policy's weights
    openai         `openai_generator.OpenAIGenerator`   a server with its own, fixed weights

Each group states which model generated it and what its log-probabilities are.
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
    """A round's questions, and how to generate their completions."""

    questions: Sequence[Question]
    policy: Policy
    policy_version: int
    """Updates that the policy has received so far."""
    num_completions: int
    sampling: SamplingParams
    seed: int
    """Seed of this round's completions; a resumed round uses the same one."""
    play: PlayGames
    """Replies of environments, for questions that are games."""
    on_step: OnStep = lambda _done, _fraction: None


class Generator(Protocol):
    """Generates completions. May return fewer than requested; raises ModelError if it never can."""

    @property
    def server_logp_difference(self) -> float | None:
        """Return the mean difference, in nats per token, between a server's log-probabilities and
        the policy's own after the latest weight transfer. None without such a server, or before."""
        ...

    def generate(self, request: GenerationRequest) -> list[OwnGroup]:
        """Return a group for each question that was answered. Blocks."""
        ...


def is_untruncated(sampling: SamplingParams) -> bool:
    """Return whether sampled log-probabilities are the policy's own: no token was excluded."""
    return sampling.temperature > 0 and sampling.top_p == 1 and sampling.top_k == 0


def is_exact(policy: Policy) -> bool:
    """Return whether a policy samples and trains with the same numbers, up to rounding.

    So it is in float32: sampled log-probabilities are those at the start of an update, and are not
    recomputed. In bfloat16, two ways of computing them differ by a hundredth of a nat and more.
    """
    return policy.autocast_dtype is None and policy.model.dtype == torch.float32
