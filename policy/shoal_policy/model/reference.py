"""The reference of the KL term: the policy that training started from, frozen.

It costs one more copy of the weights, or nothing with adapters: then it is the same model without
them. It also costs one more forward pass over the training rows; no gradients, no optimiser state.
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
    """Return the policy that training starts from, frozen; None without a KL term.

    With adapters it is the same model without them. Otherwise it is loaded again, also after a
    restart, from the settings' model instead of the checkpoint. Raises ModelError.
    """
    if settings.kl_beta == 0:
        return None
    if policy.adapter is not None:
        return dataclasses.replace(policy, adapter=None)
    # Loading seeds torch's global generator, whose state belongs to the run.
    with torch.random.fork_rng(devices=[]):
        return freeze(fresh_policy(settings, seed=seed))


def freeze(policy: Policy) -> Policy:
    """Freeze a policy's weights in place; return it."""
    for weight in policy.model.parameters():
        weight.requires_grad_(False)
    return policy


def check_reference(policy: Policy, reference: Policy) -> None:
    """Raise ValueError unless both use the same token ids and the reference is separate."""
    if reference.tokenizer_digest != policy.tokenizer_digest:
        raise ValueError("the reference policy has a different tokenizer")
    if _is_adapter_base(policy, reference):
        return
    if reference.model is policy.model:
        raise ValueError("the reference policy is the one in training")
    if any(weight.requires_grad for weight in reference.model.parameters()):
        raise ValueError("the reference policy is not frozen")


def adapters_disabled(policy: Policy, reference: Policy) -> AbstractContextManager[Any]:
    """Return a context without the policy's adapters, in which the policy is the reference."""
    return (
        policy.adapter.disable_adapter() if _is_adapter_base(policy, reference) else nullcontext()
    )


def _is_adapter_base(policy: Policy, reference: Policy) -> bool:
    shared = reference.model is policy.model
    return shared and policy.adapter is not None and reference.adapter is None
