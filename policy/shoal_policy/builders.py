"""The one way to make a learner and its rounds from settings.

    settings, policy ──▶ learner_of ──▶ Learner ──▶ rounds_of ──▶ Rounds

The trainer, the processes that share its work and the experiments in memory all call it, so that a
setting holds for each of them; `optimizer_of`, which resumption needs too, is in
`shoal_policy.update.grpo`. tests/policy/test_builders.py asks every key of each way.
"""

from __future__ import annotations

from typing import Any

from shoal_policy.backend import LOCAL_BACKEND, Backend
from shoal_policy.model.loading import ModelError, Policy
from shoal_policy.model.memory import can_checkpoint
from shoal_policy.round.config import round_config
from shoal_policy.sapo import RoundRunner, TrainState
from shoal_policy.trainer_context import TrainerContext
from shoal_policy.update.grpo import optimizer_of
from shoal_settings.schema import Settings


def build_train_state(
    settings: Settings,
    policy: Policy,
    *,
    seed: int,
    optimizer: Any | None = None,
    means: Backend = LOCAL_BACKEND,
) -> TrainState:
    """Return what rounds train: a policy with its optimiser, and the reference of a KL term.

    `optimizer` is one that a checkpoint has restored. Raises ModelError for a policy that cannot be
    trained as the settings ask.
    """
    if settings.gradient_checkpointing and not can_checkpoint(policy.model):
        raise ModelError(f"{settings.model}: its layers do not support --gradient-checkpointing")
    return TrainState(
        policy=policy,
        optimizer=optimizer_of(settings, policy) if optimizer is None else optimizer,
        reference=means.reference(settings, policy, seed=seed),
    )


def build_round_runner(
    settings: Settings,
    learner: TrainState,
    around: TrainerContext,
    *,
    seed: int,
    means: Backend = LOCAL_BACKEND,
) -> RoundRunner:
    """Return the rounds that settings ask for, not yet played."""
    config = round_config(settings, seed)
    return RoundRunner(learner, around, config, means=means)
