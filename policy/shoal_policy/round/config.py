"""The configuration of a round, built from the user's settings."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field

from shoal_policy.choice.advantage import AdvantageScale
from shoal_policy.choice.strategy import ExternalStrategy, parse_strategy
from shoal_policy.rollouts import sampling_params
from shoal_policy.update.objective import GrpoConfig
from shoal_settings.schema import Settings
from shoal_settings.trainer_settings import OVERSAMPLE
from shoal_wire.types import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundConfig:
    """Settings of a round, by SAPO's names."""

    num_local: int
    """I."""
    num_external: int
    """J."""
    num_completions: int
    """L."""
    sampling: SamplingParams
    grpo: GrpoConfig
    seed: int
    advantage_scale: AdvantageScale = "group"
    oversample: int = OVERSAMPLE
    """External groups to verify per slot, at most."""
    num_questions: int = 0
    """B: questions per round. With more than I, own groups with signal are preferred. 0 means I."""
    strategy: ExternalStrategy = field(default_factory=ExternalStrategy)
    """Chooses external groups."""

    @property
    def max_candidates(self) -> int:
        """Return the limit of external groups to verify; 0 if J is 0.

        It counts all slots, not J: the fewer slots are external, the more groups per slot.
        """
        return self.oversample * (self.num_local + self.num_external) if self.num_external else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round, before it runs."""

    number: int
    policy_version: int
    config: RoundConfig

    def seed(self, purpose: str) -> int:
        """Return a seed for one purpose in this round, so that a resumed round repeats."""
        text = f"{self.config.seed}/{self.number}/{purpose}".encode()
        return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 1

    def rng(self, purpose: str) -> random.Random:
        """Return a generator with that seed."""
        return random.Random(self.seed(purpose))


def round_config(settings: Settings, seed: int) -> RoundConfig:
    """Return a round's configuration from settings."""
    return RoundConfig(
        num_local=settings.local,
        num_external=settings.external,
        num_completions=settings.completions,
        num_questions=settings.questions,
        strategy=parse_strategy(settings.strategy),
        sampling=sampling_params(settings),
        grpo=_grpo_config(settings),
        seed=seed,
        advantage_scale="none" if settings.loss_type == "dr_grpo" else "group",
    )


def _grpo_config(settings: Settings) -> GrpoConfig:
    return GrpoConfig(
        epsilon_low=settings.epsilon_low,
        epsilon_high=settings.epsilon_high,
        loss_type=settings.loss_type,
        kl_beta=settings.kl_beta,
        epochs=settings.epochs,
        minibatches=settings.minibatches,
        token_budget=settings.token_budget,
        gradient_checkpointing=settings.gradient_checkpointing,
        max_completion_tokens=settings.max_new_tokens + 1,
        temperature=settings.temperature,
    )
