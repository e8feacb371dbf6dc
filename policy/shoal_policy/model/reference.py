"""The reference of the KL term: the policy that training started from, frozen.

It costs one more copy of the weights in memory, unless adapters are trained: then it is the same
model without them. And one more forward pass over what is trained on; no gradients, no optimiser
state.
"""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from shoal_policy.model.from_settings import fresh_policy
from shoal_policy.model.loading import Policy
from shoal_settings.schema import Settings


def load_reference(settings: Settings, policy: Policy, *, seed: int) -> Policy | None:
    """Return the policy that training starts from, frozen; None when no KL term asks.

    That of a policy with adapters is its own model without them. Any other is loaded once more,
    after a restart too: it is the settings' model, not the checkpoint's. Raises ModelError.
    """
    if settings.kl_beta == 0:
        return None
    if policy.adapter is not None:
        return dataclasses.replace(policy, adapter=None)
    # Loading seeds torch's global generator, whose state is the run's.
    with torch.random.fork_rng(devices=[]):
        return freeze(fresh_policy(settings, seed=seed))


def freeze(policy: Policy) -> Policy:
    """Make a policy that is only looked at: no weight of it takes a gradient. In place."""
    for weight in policy.model.parameters():
        weight.requires_grad_(False)
    return policy


def check_reference(policy: Policy, reference: Policy) -> None:
    """Raise ValueError unless both read the same token ids and the reference is a model apart."""
    if reference.tokenizer_digest != policy.tokenizer_digest:
        raise ValueError("the reference policy has another tokenizer")
    if _is_base(policy, reference):
        return
    if reference.model is policy.model:
        raise ValueError("the reference policy is the one in training")
    if any(weight.requires_grad for weight in reference.model.parameters()):
        raise ValueError("the reference policy is not frozen")


def base_alone(policy: Policy, reference: Policy) -> AbstractContextManager[Any]:
    """Return a context in which the policy's adapters are disabled, which gives the reference."""
    return policy.adapter.disable_adapter() if _is_base(policy, reference) else nullcontext()


def _is_base(policy: Policy, reference: Policy) -> bool:
    shared = reference.model is policy.model
    return shared and policy.adapter is not None and reference.adapter is None
