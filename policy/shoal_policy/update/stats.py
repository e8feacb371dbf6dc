"""The account of an update: running totals of its steps, of all processes, and their sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from shoal_policy.update.rows import TrainingRow


class NonFiniteCause(StrEnum):
    """The cause of a step's numbers not being finite."""

    WEIGHTS = "weights"
    """The policy's weights are not finite themselves: no group is at fault."""
    GROUPS = "groups"
    """Each of the groups named gives such numbers on its own."""
    TOGETHER = "together"
    """Only the step as a whole does: all its groups are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nonfinite:
    """A step that was not taken because its loss or gradient was NaN or infinite."""

    blame: NonFiniteCause
    groups: tuple[int, ...]
    """Indices into the update's groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateStats:
    """The account of an update. Means are over trained tokens; 0 when nothing was trained."""

    loss: float
    """Mean over the steps taken."""
    grad_norm: float
    """Norm before clipping; mean over the steps taken."""
    clip_fraction_low: float
    """Share of tokens held by the lower bound (ratio below it, advantage negative)."""
    clip_fraction_high: float
    """Share of tokens held by the upper bound (ratio above it, advantage positive)."""
    ratio_max: float
    entropy: float
    """Entropy of the policy's next-token distribution at completion tokens, in nats."""
    kl: float
    """Mean k3 estimate to the reference, in nats; 0 without one."""
    served_difference: float | None
    """Mean |claimed − own| log-probability, in nats, of own tokens that a server sampled; None
    without any."""
    num_tokens: int
    """Tokens that the policy said in rows that were trained on, each counted once."""
    num_sequences: int
    """Rows that were trained on."""
    num_steps: int
    """Optimiser steps taken."""
    skipped_no_signal: int
    """Steps not taken because no row had an advantage."""
    skipped_nonfinite: int
    """Steps not taken because the loss or the gradient was NaN or infinite."""
    skipped_too_long: int
    """Rows left out because they do not fit whole."""
    token_budget: int
    """The configured one, or what is left of it after memory ran out: take it from then on."""
    nonfinite: tuple[Nonfinite, ...] = ()
    """One for each step of `skipped_nonfinite`."""


@dataclass(slots=True)
class Totals:
    """Running sums over trained tokens and steps."""

    tokens: int = 0
    low: float = 0.0
    high: float = 0.0
    ratio_max: float = 0.0
    entropy: float = 0.0
    kl: float = 0.0
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    no_signal: int = 0
    nonfinite: list[Nonfinite] = field(default_factory=list)
    served_tokens: int = 0
    """Own tokens that a server sampled."""
    served_gap: float = 0.0
    """Sum of |claimed − own| log-probability of these, at the start of the update."""
    token_budget: int = 0


def merged(parts: Sequence[Totals]) -> Totals:
    """Return the totals of all processes' rows; what they did together counts once."""
    total = replace(parts[0])
    for part in parts[1:]:
        for name in (*("tokens", "low", "high", "entropy", "kl"), "served_tokens", "served_gap"):
            setattr(total, name, getattr(total, name) + getattr(part, name))
        total.ratio_max = max(total.ratio_max, part.ratio_max)
        total.token_budget = min(total.token_budget, part.token_budget)
    return total


def summed_up(totals: Totals, trained: list[TrainingRow], too_long: int) -> UpdateStats:
    """Return what these totals come to; `trained` are the rows that steps were taken on."""
    tokens, steps = max(1, totals.tokens), max(1, len(totals.losses))
    served = totals.served_tokens
    return UpdateStats(
        loss=sum(totals.losses) / steps,
        grad_norm=sum(totals.norms) / steps,
        clip_fraction_low=totals.low / tokens,
        clip_fraction_high=totals.high / tokens,
        ratio_max=totals.ratio_max,
        entropy=totals.entropy / tokens,
        kl=totals.kl / tokens,
        served_difference=totals.served_gap / served if served else None,
        num_tokens=sum(len(row.said) for row in trained),
        num_sequences=len(trained),
        num_steps=len(totals.losses),
        skipped_no_signal=totals.no_signal,
        skipped_nonfinite=len(totals.nonfinite),
        skipped_too_long=too_long,
        token_budget=totals.token_budget,
        nonfinite=tuple(totals.nonfinite),
    )
