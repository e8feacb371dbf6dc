"""The one way to make a learner and its rounds from settings.

    settings, policy ──▶ learner_of ──▶ Learner ──▶ rounds_of ──▶ Rounds

The trainer, the processes that share its work and the experiments in memory all call it, so that a
setting holds for each of them; `optimizer_of`, which resumption needs too, is in
`shoal_policy.update.grpo`. tests/policy/test_making.py asks every key of each way.
"""

from __future__ import annotations

from typing import Any

from shoal_policy.means import THIS_PROCESS, Means
from shoal_policy.model.loading import ModelError, Policy
from shoal_policy.model.memory import can_checkpoint
from shoal_policy.round.config import round_config
from shoal_policy.sapo import Learner, Rounds
from shoal_policy.surroundings import Surroundings
from shoal_policy.update.grpo import optimizer_of
from shoal_settings.schema import Settings


def learner_of(
    settings: Settings,
    policy: Policy,
    *,
    seed: int,
    optimizer: Any | None = None,
    means: Means = THIS_PROCESS,
) -> Learner:
    """Return what rounds train: a policy with its optimiser, and the reference of a KL term.

    `optimizer` is one that a checkpoint has restored. Raises ModelError for a policy that cannot be
    trained as the settings ask.
    """
    if settings.gradient_checkpointing and not can_checkpoint(policy.model):
        raise ModelError(f"{settings.model}: its layers do not support --gradient-checkpointing")
    return Learner(
        policy=policy,
        optimizer=optimizer_of(settings, policy) if optimizer is None else optimizer,
        reference=means.reference(settings, policy, seed=seed),
    )


def rounds_of(
    settings: Settings,
    learner: Learner,
    around: Surroundings,
    *,
    seed: int,
    means: Means = THIS_PROCESS,
) -> Rounds:
    """Return the rounds that settings ask for, not yet played."""
    config = round_config(settings, seed)
    return Rounds(learner, around, config, means=means)
