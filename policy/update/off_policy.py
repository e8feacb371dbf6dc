"""External groups are other policies' text: how far to trust it, and what its generator claims.

Own log-probabilities here are those at the *start* of the update. `OffPolicy.PAPER` takes them
for the old ones and asks nothing else. The other modes also weigh external text by
w = own / claimed where the generator's claim is usable, held at `cap` (the decoupled objective of
AReaL, arXiv 2505.24298, with truncated importance sampling). A claim can lie, so its reach is
bounded: w lies in [0, cap], a claim that is absurd counts as absent, and an absent one gives w = 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch

LEAST_CLAIM = -30.0
"""Nats. Nobody samples a token of probability 1e-13: a claim below this is absurd."""
MOST_CLAIM = 0.01
"""Nats. Above 0 by no more than half floats and other kernels round."""
_MAX_LOG_WEIGHT = 60.0
LEAST_SAID = math.log(0.01)
"""Nats. A token that the policy chooses less than once in a hundred times is not one that it says.
A guess between two costs: higher, and others' reasoning loses words; lower, and one that is planted
is repeated by chance, and then learnt."""


class OffPolicy(StrEnum):
    """How the ratio is taken, and against what."""

    PAPER = "paper"
    """As if the own policy had produced all text (SAPO, section 3.2)."""
    TRUNCATED = "truncated"
    """External tokens weigh own / claimed probability, at most `cap`."""
    SEQUENCE = "sequence"
    """One ratio a completion (GSPO); external completions weigh theirs, at most `cap`."""


class FloorMode(StrEnum):
    """What happens to an external completion below the likelihood floor."""

    DROP = "drop"
    DOWNWEIGHT = "downweight"
    """It weighs exp(mean log-prob − floor)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffPolicyConfig:
    """Settings for external groups; the defaults are the paper's way."""

    mode: OffPolicy = OffPolicy.PAPER
    cap: float = 2.0
    """Most that an importance weight may be, ≥ 1."""
    likelihood_floor: float | None = None
    """Mean own log-probability a token, in nats, below which an external completion is
    dropped or weighs less; None has no floor."""
    floor_mode: FloorMode = FloorMode.DROP

    def __post_init__(self) -> None:
        if not 1 <= self.cap < math.inf:
            raise ValueError("the cap of importance weights is a number ≥ 1")
        if self.likelihood_floor is not None and not -math.inf < self.likelihood_floor < 0:
            raise ValueError("the likelihood floor is a number < 0")

    @property
    def uses_claims(self) -> bool:
        """Whether claimed log-probabilities matter at all."""
        return self.mode is not OffPolicy.PAPER


def usable_claims(
    claimed: Sequence[float] | None, *, num_tokens: int, same_tokenizer: bool
) -> tuple[float, ...] | None:
    """The generator's log-probabilities if they can be those of our `num_tokens` ids, else None.

    Text is re-encoded here: with another tokenizer, or another count of tokens, claims belong
    to other ids. A single NaN, infinite or absurd number spoils the completion's whole claim.
    """
    if claimed is None or not same_tokenizer or len(claimed) != num_tokens:
        return None
    # A NaN fails both comparisons.
    if not all(LEAST_CLAIM <= value <= MOST_CLAIM for value in claimed):
        return None
    return tuple(claimed)


def importance_weights(
    start_n: torch.Tensor, claimed_n: torch.Tensor, config: OffPolicyConfig
) -> tuple[torch.Tensor, int]:
    """Weights of one completion's n tokens, [n] in [0, cap], and how many the cap held.

    `start_n` are own log-probabilities at the start of the update. No gradient.
    """
    log_weight_n = start_n.detach() - claimed_n
    if config.mode is OffPolicy.SEQUENCE:
        log_weight_n = log_weight_n.mean().expand_as(log_weight_n)
    raw_n = log_weight_n.clamp(max=_MAX_LOG_WEIGHT).exp()
    return raw_n.clamp(max=config.cap), int((raw_n > config.cap).sum())


def likelihood_factor(mean_logprob: float, config: OffPolicyConfig) -> float:
    """What an external completion of this mean own log-probability weighs, in [0, 1]."""
    floor = config.likelihood_floor
    # Not finite is the update's own concern: it skips the step and says so.
    if floor is None or mean_logprob >= floor or not math.isfinite(mean_logprob):
        return 1.0
    return 0.0 if config.floor_mode is FloorMode.DROP else math.exp(mean_logprob - floor)


def sayable(start_n: torch.Tensor, unread_n: torch.Tensor) -> torch.Tensor:
    """Return which of n tokens of others are trained on, [n] of 0 and 1.

    What the verifier reads is. What it does not read earned nothing, and may be planted: it is
    trained on only where the policy itself says it now and then. `start_n` are own
    log-probabilities at the start of the update.
    """
    return ((start_n >= LEAST_SAID) | ~unread_n).to(start_n.dtype)


def row_means(values_N: torch.Tensor, sizes_B: torch.Tensor) -> torch.Tensor:
    """Each token's row mean, [N]; differentiable."""
    rows_N = torch.arange(len(sizes_B), device=sizes_B.device).repeat_interleave(sizes_B)
    sums_B = torch.zeros(len(sizes_B), dtype=values_N.dtype, device=values_N.device)
    return (sums_B.index_add(0, rows_N, values_N) / sizes_B)[rows_N]


@dataclass(slots=True)
class ExternalTally:
    """Running sums over text that came from outside this process, for the diagnostics."""

    tokens: int = 0
    logprob: float = 0.0
    """Sum of own log-probabilities at the start of the update."""
    claimed: int = 0
    """Tokens with a usable claim."""
    truncated: int = 0
    """Tokens whose weight the cap held."""
    weight: float = 0.0
    """Sum of the weights of tokens with a claim."""
    rows: int = 0
    unlikely: int = 0
    """Rows below the likelihood floor."""
    served: int = 0
    """Tokens of own text that a server sampled."""
    served_difference: float = 0.0
    """Sum over them of |claimed − own| log-probability at the start of the update."""

    def summary(self) -> ExternalStats:
        """The means."""
        return ExternalStats(
            logprob_mean=self.logprob / self.tokens if self.tokens else None,
            claimed_share=self.claimed / max(1, self.tokens),
            truncated_share=self.truncated / max(1, self.tokens),
            weight_mean=self.weight / self.claimed if self.claimed else None,
            unlikely_share=self.unlikely / max(1, self.rows),
            served_difference=self.served_difference / self.served if self.served else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalStats:
    """Diagnostics of the text from outside that was trained on, each row counted once."""

    logprob_mean: float | None = None
    """Mean own log-probability a token, in nats, at the start of the update."""
    claimed_share: float = 0.0
    """Share of tokens with a usable claim; 0 in the paper's mode."""
    truncated_share: float = 0.0
    """Share of tokens whose importance weight the cap held."""
    weight_mean: float | None = None
    """Mean importance weight of tokens with a claim."""
    unlikely_share: float = 0.0
    """Share of completions below the likelihood floor."""
    served_difference: float | None = None
    """Mean |claimed − own| log-probability, in nats, of own tokens that a server sampled."""
