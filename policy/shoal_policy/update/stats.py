"""Statistics of an update: running totals over its steps and ranks, and the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from shoal_policy.update.rows import TrainingRow


class NonFiniteCause(StrEnum):
    """The cause of non-finite numbers in a step."""

    WEIGHTS = "weights"
    """The policy's own weights are not finite: no group is at fault."""
    GROUPS = "groups"
    """Each of the listed groups alone gives non-finite numbers."""
    TOGETHER = "together"
    """Only the whole step does; all its groups are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nonfinite:
    """A step that was skipped because its loss or gradient was NaN or infinite."""

    cause: NonFiniteCause
    groups: tuple[int, ...]
    """Indices into the update's groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateStats:
    """Statistics of an update. Means are over trained tokens; 0 if nothing was trained."""

    loss: float
    """Mean over the steps."""
    grad_norm: float
    """Norm before clipping; mean over the steps."""
    clip_fraction_low: float
    """Share of tokens clipped at the lower bound (ratio below it, advantage negative)."""
    clip_fraction_high: float
    """Share of tokens clipped at the upper bound (ratio above it, advantage positive)."""
    ratio_max: float
    entropy: float
    """Entropy of the policy's next-token distribution at completion tokens, in nats."""
    kl: float
    """Mean k3 estimate to the reference, in nats; 0 without a reference."""
    sampling_logp_difference: float | None
    """Mean |server − own| log-probability, in nats, of own tokens that a server sampled; None if
    there are none."""
    num_tokens: int
    """Policy tokens in trained rows, each counted once."""
    num_sequences: int
    """Trained rows."""
    num_steps: int
    """Optimiser steps."""
    skipped_no_signal: int
    """Steps skipped because no row had an advantage."""
    skipped_nonfinite: int
    """Steps skipped because the loss or the gradient was NaN or infinite."""
    skipped_too_long: int
    """Rows skipped because they do not fit whole."""
    token_budget: int
    """The configured budget, or a smaller one after memory ran out; the next update starts here."""
    nonfinite: tuple[Nonfinite, ...] = ()
    """One entry for each skipped non-finite step."""


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
    sampling_tokens: int = 0
    """Own tokens that a server sampled."""
    sampling_logp_gap: float = 0.0
    """Sum of |server − own| log-probability over these, at the start of the update."""
    token_budget: int = 0


def merge_totals(parts: Sequence[Totals]) -> Totals:
    """Return the totals over all ranks' rows; steps, which all take together, count once."""
    total = replace(parts[0])
    for part in parts[1:]:
        for name in (
            *("tokens", "low", "high", "entropy", "kl"),
            "sampling_tokens",
            "sampling_logp_gap",
        ):
            setattr(total, name, getattr(total, name) + getattr(part, name))
        total.ratio_max = max(total.ratio_max, part.ratio_max)
        total.token_budget = min(total.token_budget, part.token_budget)
    return total


def build_stats(totals: Totals, trained: list[TrainingRow], too_long: int) -> UpdateStats:
    """Return the statistics of these totals; `trained` are the rows of all steps."""
    tokens, steps = max(1, totals.tokens), max(1, len(totals.losses))
    served = totals.sampling_tokens
    return UpdateStats(
        loss=sum(totals.losses) / steps,
        grad_norm=sum(totals.norms) / steps,
        clip_fraction_low=totals.low / tokens,
        clip_fraction_high=totals.high / tokens,
        ratio_max=totals.ratio_max,
        entropy=totals.entropy / tokens,
        kl=totals.kl / tokens,
        sampling_logp_difference=totals.sampling_logp_gap / served if served else None,
        num_tokens=sum(len(row.completion_positions) for row in trained),
        num_sequences=len(trained),
        num_steps=len(totals.losses),
        skipped_no_signal=totals.no_signal,
        skipped_nonfinite=len(totals.nonfinite),
        skipped_too_long=too_long,
        token_budget=totals.token_budget,
        nonfinite=tuple(totals.nonfinite),
    )
