"""What an update minimises: settings, token weights and the loss of a token (docs/losses.md).

    row's advantage A, ratio r = exp(log-prob now − old log-prob), a row's or a token's own
    token loss = −w·min(r·A, clip(r, 1 − epsilon_low, 1 + epsilon_high)·A) + kl_beta·k3

w corrects for text that another policy generated (`off_policy`); it is 1 for own text and
always in the default mode. Shapes: N completion tokens of all rows one after another, B rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import torch

from policy.update.off_policy import OffPolicy, OffPolicyConfig, row_means

MAX_LOG_RATIO = 20.0
"""Log-ratios are held within ± this: beyond it every ratio is clipped anyway, and exp must not
overflow on a claimed old log-probability."""


class LossType(StrEnum):
    """How token losses are averaged."""

    GRPO = "grpo"
    """Mean over each row's tokens, then over rows."""
    DR_GRPO = "dr_grpo"
    """Sum over rows × `max_completion_tokens`: no bias towards short or long answers."""
    DAPO = "dapo"
    """Mean over all tokens of all rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpoConfig:
    """Settings of an update; the defaults are the paper's where it gives any."""

    epsilon_low: float = 0.2
    epsilon_high: float = 0.28
    loss_type: LossType = LossType.GRPO
    kl_beta: float = 0.0
    """Weight of the KL term to a reference policy; 0 needs no reference."""
    off_policy: OffPolicyConfig = field(default_factory=OffPolicyConfig)
    max_grad_norm: float = 1.0
    """Global norm the gradient is clipped to; ≤ 0 never clips."""
    epochs: int = 1
    """Passes over the groups; beyond the first the ratio leaves 1 and clipping acts."""
    minibatches: int = 1
    """Optimiser steps a pass."""
    token_budget: int = 8192
    """Padded tokens in one forward pass; a longer row goes alone. Bounds memory, not the result."""
    gradient_checkpointing: bool = False
    """Compute each layer twice instead of keeping what it computed; changes no result."""
    max_completion_tokens: int | None = None
    """Longer completions are cut, without an end token. Required by `LossType.DR_GRPO`."""
    temperature: float = 1.0
    """Divides the logits; the one samples were drawn at."""

    def __post_init__(self) -> None:
        if self.loss_type is LossType.DR_GRPO and self.max_completion_tokens is None:
            raise ValueError("loss type dr_grpo needs max_completion_tokens")
        if min(self.epochs, self.minibatches, self.token_budget) < 1 or self.temperature <= 0:
            raise ValueError("epochs, minibatches, token_budget ≥ 1 and temperature > 0")
        if not 0 <= self.kl_beta < float("inf"):
            raise ValueError("kl_beta ≥ 0")


def token_weights(sizes: Sequence[tuple[int, float]], config: GrpoConfig) -> list[float]:
    """Return what each token of a row weighs in the loss, for every row of one optimiser step.

    A row's size is its number of tokens and its share, which scales it as if there were that much
    of it. Nothing else counts, so that neither packing nor micro-batches change the loss.
    """
    num_rows = sum(share for _, share in sizes)
    match config.loss_type:
        case LossType.GRPO:
            return [share / (num_rows * max(1, length)) for length, share in sizes]
        case LossType.DR_GRPO:
            longest = config.max_completion_tokens or 1
            return [share / (num_rows * longest) for _, share in sizes]
        case LossType.DAPO:
            num_tokens = sum(length * share for length, share in sizes) or 1
            return [share / num_tokens for _, share in sizes]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTerms:
    """What the loss of N tokens needs besides their log-probabilities: [N] each."""

    old: torch.Tensor
    """Old log-probabilities; NaN where those of now are to be taken."""
    advantage: torch.Tensor
    weight: torch.Tensor
    sizes: torch.Tensor
    """[B], tokens of each row."""
    importance: torch.Tensor | None = None
    reference: torch.Tensor | None = None

    def of(self, part: slice) -> TokenTerms:
        """Those of some tokens; only where the loss knows no rows (`foretells`)."""
        return TokenTerms(
            old=self.old[part],
            advantage=self.advantage[part],
            weight=self.weight[part],
            sizes=self.sizes,
            importance=None if self.importance is None else self.importance[part],
            reference=None if self.reference is None else self.reference[part],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLoss:
    """The loss of N tokens and what it came from, [N]; `kl` is absent without a reference."""

    loss: torch.Tensor
    ratio: torch.Tensor
    kl: torch.Tensor | None


def token_loss(now_N: torch.Tensor, terms: TokenTerms, config: GrpoConfig) -> TokenLoss:
    """The weighted sum of token losses; differentiable by `now_N`."""
    old_N = torch.where(terms.old.isnan(), now_N.detach(), terms.old)
    ratio_N = ratios(now_N, old_N, terms.sizes, config)
    gain_N = clipped_gain(ratio_N, terms.advantage, config)
    if terms.importance is not None:
        gain_N = gain_N * terms.importance
    loss, kl_N = -(gain_N * terms.weight).sum(), None
    if terms.reference is not None:
        kl_N = k3(now_N, terms.reference)
        loss = loss + config.kl_beta * (kl_N * terms.weight).sum()
    return TokenLoss(loss=loss, ratio=ratio_N, kl=kl_N)


def foretells(config: GrpoConfig) -> bool:
    """Whether a token's gradient depends on no other token: then it is known tile by tile."""
    return config.off_policy.mode is not OffPolicy.SEQUENCE


def token_gradient(now_n: torch.Tensor, terms: TokenTerms, config: GrpoConfig) -> torch.Tensor:
    """Gradient of `token_loss` by `now_n`, [n], computed by autograd itself: equal to the bit."""
    with torch.enable_grad():
        now_n = now_n.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(token_loss(now_n, terms, config).loss, now_n)
    return gradient


def ratios(
    now_N: torch.Tensor, old_N: torch.Tensor, sizes_B: torch.Tensor, config: GrpoConfig
) -> torch.Tensor:
    """The ratio that each token is held by, [N].

    In the sequence-level mode all tokens of a row share one, the exponential of the row's mean
    log-ratio (GSPO, arXiv 2507.18071).
    """
    log_ratio_N = now_N - old_N
    if config.off_policy.mode is OffPolicy.SEQUENCE:
        log_ratio_N = row_means(log_ratio_N, sizes_B)
    return log_ratio_N.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def clipped_gain(
    ratio_N: torch.Tensor, advantage_N: torch.Tensor, config: GrpoConfig
) -> torch.Tensor:
    """What a token gains, [N]: the smaller of plain and clipped (PPO, with clip-higher)."""
    held_N = ratio_N.clamp(1 - config.epsilon_low, 1 + config.epsilon_high)
    return torch.minimum(ratio_N * advantage_N, held_N * advantage_N)


def k3(now_N: torch.Tensor, reference_N: torch.Tensor) -> torch.Tensor:
    """Estimate of KL(policy ‖ reference) at each token, ≥ 0 (Schulman's k3; GRPO, eq. 4)."""
    gap_N = (reference_N - now_N).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return gap_N.exp() - gap_N - 1
