"""The objective of an update: settings, token weights and the loss of a token (docs/losses.md).

    row's advantage A, ratio r = exp(log-prob now − old log-prob)
    token loss = −w·min(r·A, clip(r, 1 − epsilon_low, 1 + epsilon_high)·A) + kl_beta·k3

w corrects for tokens that a server sampled, and is 0 for unlikely tokens that no verifier scored
(`off_policy`). It is 1 for tokens that this process sampled. `losses` defines the values of
`loss_type`. Shapes: N policy tokens of all rows one after another; tokens of an environment are not
among them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from shoal_policy.update.losses import LOSSES, TokenWeights, clipped_gain

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped to ± this: every ratio beyond it is clipped anyway, and exp must not
overflow on a reported old log-probability."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpoConfig:
    """Settings of an update; defaults are the paper's where it states them."""

    epsilon_low: float = 0.2
    epsilon_high: float = 0.28
    loss_type: str = "grpo"
    """A key of `losses.LOSSES`."""
    kl_beta: float = 0.0
    """Weight of the KL term to a reference policy; 0 needs no reference."""
    max_grad_norm: float = 1.0
    """Gradient-norm limit; ≤ 0 disables clipping."""
    epochs: int = 1
    """Passes over the groups; after the first step ratios differ from 1 and clipping applies."""
    minibatches: int = 1
    """Optimiser steps per pass."""
    token_budget: int = 8192
    """Padded tokens in one forward pass; a longer row runs alone. Limits memory, not the result."""
    gradient_checkpointing: bool = False
    """True to recompute layers in the backward pass, which saves memory and changes no result."""
    max_completion_tokens: int | None = None
    """Longer completions are skipped. Required by dr_grpo."""
    temperature: float = 1.0
    """Divides the logits, as in sampling."""

    def __post_init__(self) -> None:
        if self.loss_type == "dr_grpo" and self.max_completion_tokens is None:
            raise ValueError("loss type dr_grpo needs max_completion_tokens")
        if min(self.epochs, self.minibatches, self.token_budget) < 1 or self.temperature <= 0:
            raise ValueError("epochs, minibatches, token_budget ≥ 1 and temperature > 0")
        if not 0 <= self.kl_beta < float("inf"):
            raise ValueError("kl_beta ≥ 0")

    @property
    def token_weights(self) -> TokenWeights:
        """Return the weight function of `loss_type`."""
        return LOSSES[self.loss_type]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTerms:
    """The inputs of the loss of N tokens apart from their log-probabilities: [N] each."""

    old: torch.Tensor
    """Old log-probabilities; NaN stands for the current ones."""
    advantage: torch.Tensor
    weight: torch.Tensor
    importance: torch.Tensor | None = None
    reference: torch.Tensor | None = None

    def of(self, part: slice) -> TokenTerms:
        """Return the terms of a slice of the tokens."""
        return TokenTerms(
            old=self.old[part],
            advantage=self.advantage[part],
            weight=self.weight[part],
            importance=None if self.importance is None else self.importance[part],
            reference=None if self.reference is None else self.reference[part],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLoss:
    """The loss of N tokens with ratio and KL estimate, [N]; `kl` is None without a reference."""

    loss: torch.Tensor
    ratio: torch.Tensor
    kl: torch.Tensor | None


def token_loss(now_N: torch.Tensor, terms: TokenTerms, config: GrpoConfig) -> TokenLoss:
    """Return the weighted sum of token losses; differentiable by `now_N`."""
    old_N = torch.where(terms.old.isnan(), now_N.detach(), terms.old)
    ratio_N = (now_N - old_N).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    low, high = config.epsilon_low, config.epsilon_high
    gain_N = clipped_gain(ratio_N, terms.advantage, low=low, high=high)
    if terms.importance is not None:
        gain_N = gain_N * terms.importance
    loss, kl_N = -(gain_N * terms.weight).sum(), None
    if terms.reference is not None:
        kl_N = k3(now_N, terms.reference)
        loss = loss + config.kl_beta * (kl_N * terms.weight).sum()
    return TokenLoss(loss=loss, ratio=ratio_N, kl=kl_N)


def token_gradient(now_n: torch.Tensor, terms: TokenTerms, config: GrpoConfig) -> torch.Tensor:
    """Return the gradient of `token_loss` by `now_n`, [n], from autograd: bit-identical.

    A token's gradient does not depend on other tokens, so it can be computed tile by tile.
    """
    with torch.enable_grad():
        now_n = now_n.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(token_loss(now_n, terms, config).loss, now_n)
    return gradient


def k3(now_N: torch.Tensor, reference_N: torch.Tensor) -> torch.Tensor:
    """Return an estimate of KL(policy ‖ reference) at each token, ≥ 0 (k3; GRPO, eq. 4)."""
    gap_N = (reference_N - now_N).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return gap_N.exp() - gap_N - 1
