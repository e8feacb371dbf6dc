"""The reference of the KL term: the policy that training started from, frozen.

It costs one more copy of the weights in memory, and one more forward pass over what is trained
on; no gradients and no optimiser state.
"""

from __future__ import annotations

from policy.model import Policy


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
