"""The reference of the KL term: the policy that training started from, frozen.

It costs one more copy of the weights in memory, and one more forward pass over what is trained
on; no gradients and no optimiser state.
"""

from __future__ import annotations

import torch

from policy.model.from_settings import fresh_policy
from policy.model.loading import Policy
from shoal_settings.schema import Settings


def load_reference(settings: Settings, *, seed: int) -> Policy | None:
    """Load the policy that training starts from once more, frozen; None when no KL term asks.

    After a restart too: it is the settings' model, not the checkpoint's. Raises ModelError.
    """
    if settings.kl_beta == 0:
        return None
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
    if reference.model is policy.model:
        raise ValueError("the reference policy is the one in training")
    if any(weight.requires_grad for weight in reference.model.parameters()):
        raise ValueError("the reference policy is not frozen")
