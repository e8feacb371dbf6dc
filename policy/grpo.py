"""One policy-gradient update: GRPO's clipped token loss (arXiv 2402.03300), with clip-higher.

    groups ─► rows ─► minibatches ─► micro-batches of similar length ─► backward, added up ─► step

Per token, with ratio r = exp(logprob − old logprob) and its row's advantage A, the loss is
−min(r·A, clip(r, 1 − epsilon_low, 1 + epsilon_high)·A). What a token weighs depends on the loss
type alone and is fixed before rows are packed, so packing cannot change the loss. There is no
KL term and no reference model (SAPO, section 4).

Rows with advantage zero have gradient zero: they count in the averages and are never computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import torch

from policy.logprobs import completion_logprobs
from policy.model import Policy

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
class TrainGroup:
    """One task's completions as the trainer sees them."""

    prompt_ids: Sequence[int]
    """Not empty."""
    completions: Sequence[Sequence[int]]
    """Token ids of each, end token included where the completion ended by itself."""
    advantages: Sequence[float]
    """One a completion."""
    external: bool
    """From another node."""
    old_logprobs: Sequence[Sequence[float]] | None = None
    """Per token, under the policy that the ratio is taken against; None takes the own policy
    as it is when the update starts (the paper's way)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpoConfig:
    """Settings of an update; the defaults are the paper's where it gives any."""

    epsilon_low: float = 0.2
    epsilon_high: float = 0.28
    loss_type: LossType = LossType.GRPO
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


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateStats:
    """What an update did. Means are over trained tokens; 0 when nothing was trained."""

    loss: float
    """Mean over the steps taken."""
    grad_norm: float
    """Before clipping; mean over the steps taken."""
    clip_fraction_low: float
    """Share of tokens held by the lower bound (ratio below it, advantage negative)."""
    clip_fraction_high: float
    """Share of tokens held by the upper bound (ratio above it, advantage positive)."""
    ratio_mean: float
    ratio_max: float
    entropy: float
    """Of the policy's next-token distribution at completion tokens, in nats."""
    num_tokens: int
    """Completion tokens of rows with signal, each counted once."""
    num_sequences: int
    """Rows with signal."""
    num_steps: int
    """Optimiser steps taken."""
    skipped_no_signal: int
    """Steps not taken because no row had an advantage."""
    skipped_nonfinite: int
    """Steps not taken because the loss or the gradient was NaN or infinite."""
    skipped_too_long: int
    """Rows left out because their prompt leaves no position for a completion."""


@dataclass(slots=True, kw_only=True)
class _Row:
    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]
    advantage: float
    weight: float = 0.0
    """Of each of its tokens in the loss."""
    old: torch.Tensor | None = None
    """Old log-probabilities, float32, one a token; filled in when first computed."""

    @property
    def length(self) -> int:
        return len(self.prompt_ids) + len(self.completion_ids)


@dataclass(slots=True)
class _Totals:
    """Running sums over trained tokens and steps."""

    tokens: int = 0
    low: float = 0.0
    high: float = 0.0
    ratio: float = 0.0
    ratio_max: float = 0.0
    entropy: float = 0.0
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    no_signal: int = 0
    nonfinite: int = 0


def make_optimizer(policy: Policy, *, lr: float, weight_decay: float = 0.0) -> Any:
    """AdamW over the policy's trainable weights; decay applies to matrices only."""
    trainable = [weight for weight in policy.model.parameters() if weight.requires_grad]
    matrices = [weight for weight in trainable if weight.ndim > 1]
    vectors = [weight for weight in trainable if weight.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    fused = policy.device.type in ("cpu", "cuda")
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=lr, fused=fused)


def update(
    policy: Policy, optimizer: Any, groups: Sequence[TrainGroup], config: GrpoConfig
) -> UpdateStats:
    """Change the policy's weights by ``config.epochs × config.minibatches`` steps at most.

    A step whose rows all have advantage zero, or whose loss or gradient is not finite, is
    not taken and is counted. Deterministic on CPU. Raises ValueError for malformed groups.
    """
    rows_of_groups, too_long = _rows(policy, groups, config)
    minibatches = [
        _weighted([row for rows in part for row in rows], config)
        for part in _deal(rows_of_groups, config.minibatches)
    ]
    totals = _Totals()
    if config.minibatches > 1:
        # The ratio is taken against the policy before the first step, so what later steps
        # need of it must be computed now; the first step's rows get theirs on the way.
        _fill_old(policy, [row for rows in minibatches[1:] for row in rows], config)
    for _ in range(config.epochs):
        for rows in minibatches:
            if rows:
                _step(policy, optimizer, rows, config, totals)
            else:
                totals.no_signal += 1
    trained = [row for rows in minibatches for row in rows]
    return _stats(totals, trained, too_long)


def pack(lengths: Sequence[int], token_budget: int) -> list[list[int]]:
    """Indices of rows in micro-batches: longest first, padded tokens within the budget."""
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    batches: list[list[int]] = []
    for index in order:
        # The first row of a batch is its longest, so it alone sets the padded width.
        if batches and lengths[batches[-1][0]] * (len(batches[-1]) + 1) <= token_budget:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def _rows(
    policy: Policy, groups: Sequence[TrainGroup], config: GrpoConfig
) -> tuple[list[list[_Row]], int]:
    """The rows of each group, cut to what fits; and how many did not fit at all."""
    too_long = 0
    result = []
    for group in groups:
        if not group.prompt_ids or len(group.completions) != len(group.advantages):
            raise ValueError("a group needs a prompt and one advantage a completion")
        room = policy.max_positions - len(group.prompt_ids)
        if room < 1:
            too_long += len(group.completions)
            continue
        room = min(room, config.max_completion_tokens or room)
        rows = [
            _Row(prompt_ids=group.prompt_ids, completion_ids=ids[:room], advantage=advantage)
            for ids, advantage in zip(group.completions, group.advantages, strict=True)
        ]
        for row, old in zip(rows, group.old_logprobs or (), strict=bool(group.old_logprobs)):
            row.old = torch.tensor(old[:room], dtype=torch.float32, device=policy.device)
            if len(row.old) != len(row.completion_ids):
                raise ValueError("old log-probabilities: need one a token")
        result.append(rows)
    return result, too_long


def _deal(groups: list[list[_Row]], num: int) -> list[list[list[_Row]]]:
    """Groups over minibatches, whole and in turn: first those with signal, so that they spread."""
    ordered = sorted(groups, key=lambda rows: all(row.advantage == 0 for row in rows))
    return [ordered[start::num] for start in range(num)]


def _weighted(rows: list[_Row], config: GrpoConfig) -> list[_Row]:
    """Set each row's token weight from all rows of its step; return the rows with signal."""
    num_tokens = max(1, sum(len(row.completion_ids) for row in rows))
    for row in rows:
        match config.loss_type:
            case LossType.GRPO:
                row.weight = 1 / (len(rows) * max(1, len(row.completion_ids)))
            case LossType.DR_GRPO:
                row.weight = 1 / (len(rows) * (config.max_completion_tokens or 1))
            case LossType.DAPO:
                row.weight = 1 / num_tokens
    return [row for row in rows if row.advantage != 0 and row.completion_ids]


def _micro_batches(rows: list[_Row], config: GrpoConfig) -> list[list[_Row]]:
    batches = pack([row.length for row in rows], config.token_budget)
    return [[rows[index] for index in batch] for batch in batches]


def _fill_old(policy: Policy, rows: list[_Row], config: GrpoConfig) -> None:
    missing = [row for row in rows if row.old is None]
    with torch.no_grad():
        for batch in _micro_batches(missing, config):
            found = completion_logprobs(policy, batch, temperature=config.temperature)
            _keep_old(batch, found.logprobs)


def _keep_old(rows: list[_Row], logprobs_N: torch.Tensor) -> None:
    sizes = [len(row.completion_ids) for row in rows]
    for row, part in zip(rows, logprobs_N.detach().split(sizes), strict=True):
        if row.old is None:
            row.old = part


def _step(
    policy: Policy, optimizer: Any, rows: list[_Row], config: GrpoConfig, totals: _Totals
) -> None:
    """One optimiser step over `rows`, or none when a number is not finite."""
    optimizer.zero_grad(set_to_none=True)
    loss_sum = 0.0
    for batch in _micro_batches(rows, config):
        loss = _loss(policy, batch, config, totals)
        loss.backward()
        loss_sum += float(loss.detach())
        if not math.isfinite(loss_sum):
            break
    limit = config.max_grad_norm if config.max_grad_norm > 0 else math.inf
    norm = math.nan
    if math.isfinite(loss_sum):
        norm = float(torch.nn.utils.clip_grad_norm_(policy.model.parameters(), limit))
    if math.isfinite(norm):
        optimizer.step()
        totals.losses.append(loss_sum)
        totals.norms.append(norm)
    else:
        totals.nonfinite += 1
    optimizer.zero_grad(set_to_none=True)


def _loss(policy: Policy, rows: list[_Row], config: GrpoConfig, totals: _Totals) -> torch.Tensor:
    """This micro-batch's share of the step's loss; adds its tokens to `totals`."""
    found = completion_logprobs(policy, rows, temperature=config.temperature)
    _keep_old(rows, found.logprobs)
    old_N = torch.cat([row.old for row in rows if row.old is not None])
    sizes = torch.tensor([len(row.completion_ids) for row in rows], device=policy.device)
    advantage_N, weight_N = torch.tensor(
        [[row.advantage for row in rows], [row.weight for row in rows]], device=policy.device
    ).repeat_interleave(sizes, dim=1)
    log_ratio_N = (found.logprobs - old_N).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratio_N = log_ratio_N.exp()
    low, high = 1 - config.epsilon_low, 1 + config.epsilon_high
    gain_N = torch.minimum(ratio_N * advantage_N, ratio_N.clamp(low, high) * advantage_N)
    with torch.no_grad():
        totals.tokens += len(ratio_N)
        totals.low += int(((ratio_N < low) & (advantage_N < 0)).sum())
        totals.high += int(((ratio_N > high) & (advantage_N > 0)).sum())
        totals.ratio += float(ratio_N.sum())
        totals.ratio_max = max(totals.ratio_max, float(ratio_N.max()))
        totals.entropy += float(found.entropy.sum())
    return -(gain_N * weight_N).sum()


def _stats(totals: _Totals, trained: list[_Row], too_long: int) -> UpdateStats:
    tokens, steps = max(1, totals.tokens), max(1, len(totals.losses))
    return UpdateStats(
        loss=sum(totals.losses) / steps,
        grad_norm=sum(totals.norms) / steps,
        clip_fraction_low=totals.low / tokens,
        clip_fraction_high=totals.high / tokens,
        ratio_mean=totals.ratio / tokens,
        ratio_max=totals.ratio_max,
        entropy=totals.entropy / tokens,
        num_tokens=sum(len(row.completion_ids) for row in trained),
        num_sequences=len(trained),
        num_steps=len(totals.losses),
        skipped_no_signal=totals.no_signal,
        skipped_nonfinite=totals.nonfinite,
        skipped_too_long=too_long,
    )
