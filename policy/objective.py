"""What an update minimises: settings, token weights and the loss of a token (docs/losses.md).

    row's advantage A, ratio r = exp(log-prob now − old log-prob), a row's or a token's own
    token loss = −w·min(r·A, clip(r, 1 − epsilon_low, 1 + epsilon_high)·A) + kl_beta·k3

w corrects for text that another policy generated (`policy.off_policy`); it is 1 for own text and
always in the default mode. Shapes: N completion tokens of all rows one after another, B rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import torch

from policy.off_policy import OffPolicy, OffPolicyConfig, row_means

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


def token_weights(lengths: list[int], config: GrpoConfig) -> list[float]:
    """What each token of a row weighs in the loss, for every row of one optimiser step.

    Depends on the lengths alone, so that neither packing nor micro-batches change the loss.
    """
    num_rows, num_tokens = len(lengths), max(1, sum(lengths))
    match config.loss_type:
        case LossType.GRPO:
            return [1 / (num_rows * max(1, length)) for length in lengths]
        case LossType.DR_GRPO:
            return [1 / (num_rows * (config.max_completion_tokens or 1))] * num_rows
        case LossType.DAPO:
            return [1 / num_tokens] * num_rows


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
