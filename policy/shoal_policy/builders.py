"""Builds a policy's training state and its rounds from settings.

    settings, policy ──▶ build_train_state ──▶ TrainState ──▶ build_round_runner ──▶ RoundRunner

The trainer, the ranks that share its work and in-memory experiments all use these functions, so
that every setting applies to each of them. `build_optimizer`, which resuming also needs, is in
`shoal_policy.update.grpo`. tests/policy/test_builders.py checks every setting in each of them.
"""

from __future__ import annotations

from typing import Any

from shoal_policy.backend import LOCAL_BACKEND, Backend
from shoal_policy.model.loading import ModelError, Policy
from shoal_policy.model.memory import can_checkpoint
from shoal_policy.round.config import round_config
from shoal_policy.sapo import RoundRunner, TrainState
from shoal_policy.trainer_context import TrainerContext
from shoal_policy.update.grpo import build_optimizer
from shoal_settings.schema import Settings


def build_train_state(
    settings: Settings,
    policy: Policy,
    *,
    seed: int,
    optimizer: Any | None = None,
    backend: Backend = LOCAL_BACKEND,
) -> TrainState:
    """Return a policy with its optimiser, and the reference of a KL term.

    `optimizer` is one restored from a checkpoint. Raises ModelError for a policy that cannot be
    trained with these settings.
    """
    if settings.gradient_checkpointing and not can_checkpoint(policy.model):
        raise ModelError(f"{settings.model}: its layers do not support --gradient-checkpointing")
    return TrainState(
        policy=policy,
        optimizer=build_optimizer(settings, policy) if optimizer is None else optimizer,
        reference=backend.load_reference(settings, policy, seed=seed),
    )


def build_round_runner(
    settings: Settings,
    train_state: TrainState,
    context: TrainerContext,
    *,
    seed: int,
    backend: Backend = LOCAL_BACKEND,
) -> RoundRunner:
    """Return the runner of rounds with these settings."""
    config = round_config(settings, seed)
    return RoundRunner(train_state, context, config, backend=backend)
