"""Non-finite numbers: which groups are named, and which steps are skipped."""

from __future__ import annotations

import math

import torch

from shoal_policy.update.grpo import GrpoConfig, NonFiniteCause, TrainGroup, make_optimizer, update
from tests.policy import tiny_models
from tests.policy import training_cases as case
from tests.policy.poison import poison_token
from tests.policy.update.update_cases import group_of


def group(*tokens: int) -> TrainGroup:
    advantages = [1.0] + [-1.0] * (len(tokens) - 1)
    return group_of([1, 4], [[token, 9, 2] for token in tokens], advantages, external=True)


def test_the_group_that_overflows_is_named_and_no_other() -> None:
    policy = tiny_models.policy()
    token = poison_token(policy)
    before = case.weights(policy)
    groups = [group(7, 8), group(7, token), group(10, 11)]
    stats = update(policy, make_optimizer(policy, lr=1.0), groups, GrpoConfig(epochs=3))
    (step,) = stats.nonfinite
    assert (step.cause, step.groups) == (NonFiniteCause.GROUPS, (1,))
    assert (stats.num_steps, stats.skipped_nonfinite) == (0, 1)
    assert case.same_weights(before, case.weights(policy))
    for value in (stats.loss, stats.entropy, stats.ratio_max, stats.kl):
        assert math.isfinite(value)


def test_other_minibatches_are_trained_on() -> None:
    policy = tiny_models.policy()
    token = poison_token(policy)
    before = case.weights(policy)
    # The output alone learns: a first component in other embeddings would overflow too.
    head = policy.model.lm_head.weight
    rest = [weight for weight in policy.model.parameters() if weight is not head]
    optimizer = torch.optim.SGD([{"params": [head], "lr": 1e-3}, {"params": rest, "lr": 0.0}])
    groups, config = [group(7, 8), group(7, token)], GrpoConfig(minibatches=2, epochs=2)
    stats = update(policy, optimizer, groups, config)
    assert (stats.num_steps, stats.skipped_nonfinite) == (2, 1)
    assert not case.same_weights(before, case.weights(policy))
    assert all(bool(value.isfinite().all()) for value in case.weights(policy).values())


def test_poisoned_weights_are_no_groups_fault() -> None:
    policy = tiny_models.policy()
    with torch.no_grad():
        policy.model.model.layers[0].mlp.up_proj.weight[0, 0] = math.nan
    stats = update(policy, make_optimizer(policy, lr=1.0), [group(7, 8)], GrpoConfig())
    (step,) = stats.nonfinite
    assert (step.cause, step.groups) == (NonFiniteCause.WEIGHTS, (0,))
