"""The configuration of a round, from the user's settings."""

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
    """External groups looked at for each place of the round, at most."""
    num_questions: int = 0
    """B: questions asked; with more than I, own groups with signal come first. 0 is I."""
    strategy: ExternalStrategy = field(default_factory=ExternalStrategy)
    """The choice of external groups."""

    @property
    def most_looked_at(self) -> int:
        """External groups that are looked at, at most: none without a place for them.

        By all places, not by J: the fewer places are others', the more are asked for each.
        """
        return self.oversample * (self.num_local + self.num_external) if self.num_external else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round before it is played."""

    number: int
    policy_version: int
    config: RoundConfig

    def seed(self, purpose: str) -> int:
        """Return a seed for one purpose in this round alone, so that a resumed round repeats."""
        text = f"{self.config.seed}/{self.number}/{purpose}".encode()
        return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 1

    def rng(self, purpose: str) -> random.Random:
        """Return a generator with that seed."""
        return random.Random(self.seed(purpose))


def round_config(settings: Settings, seed: int) -> RoundConfig:
    """Return a round's settings from the user's."""
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
