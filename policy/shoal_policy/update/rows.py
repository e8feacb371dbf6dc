"""Rows of an update: prompt and completion with advantage and weight, batched and packed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from shoal_policy.model.loading import Policy
from shoal_policy.model.packed import (
    MAX_COST_RATIO,
    TokenRow,
    attended_tokens,
    can_pack,
    group_rows,
    packed_tokens,
)
from shoal_policy.update.objective import GrpoConfig

EFFICIENT_BATCH_TOKENS = 1024
"""Padded tokens above which a larger forward pass wastes more on padding than it gains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainGroup:
    """One task's prompt with its completions, ready for the update."""

    prompt_ids: Sequence[int]
    """Prompt's token ids, not empty."""
    completions: Sequence[Sequence[int]]
    """Token ids of each completion, with the end token if the completion stopped by itself."""
    advantages: Sequence[float]
    """One value per completion."""
    external: bool
    """True if it is from another node."""
    old_logprobs: Sequence[Sequence[float]] | None = None
    """Per token, the log-probabilities of the policy that the ratio is computed against; None uses
    the own policy at the start of the update (as in the paper)."""
    num_shared: int = 0
    """Leading prompt tokens that all prompts of the family have in common."""
    sampling_logprobs: Sequence[Sequence[float] | None] | None = None
    """Per completion that a server with this policy sampled, the server's log-probability of each
    token (`replies.usable_logprobs`): they give the importance weights."""
    start_logprobs: Sequence[Sequence[float]] | None = None
    """Per token, log-probabilities of the policy at the start of the update, if already known."""
    share: float = 1.0
    """Weight of a completion relative to one of an own group, above 0 and at most 1."""
    unscored_mask: Sequence[Sequence[bool] | None] | None = None
    """Per completion, a mask of the tokens that the verifier ignores; None if it scores all."""
    completion_positions: Sequence[Sequence[int] | None] | None = None
    """Per completion of several turns, the positions of the tokens that the policy generated. Only
    these have log-probabilities and are trained on; the others are the environment's. None if the
    policy generated all."""


@dataclass(slots=True, kw_only=True)
class TrainingRow(TokenRow):
    """One completion in an update. Per-token fields have one value for each of
    `completion_positions`."""

    group: int
    advantage: float
    external: bool
    weight: float = 0.0
    """Weight of each of its tokens in the loss."""
    group_old_logprobs: torch.Tensor | None = None
    """Old log-probabilities delivered with the group, float32, one per token."""
    sampling_logprobs: torch.Tensor | None = None
    generation_logprobs: torch.Tensor | None = None
    """Own log-probabilities at the start as the generator computed them: equal up to rounding."""
    start_logprobs: torch.Tensor | None = None
    """Own log-probabilities at the start of the update; set when first computed."""
    importance: torch.Tensor | None = None
    reference_logprobs: torch.Tensor | None = None
    share: float = 1.0
    unscored_mask: torch.Tensor | None = None
    """Mask of tokens that count only if the policy finds them likely (`likely_token_mask`)."""

    @property
    def old_logprobs(self) -> torch.Tensor | None:
        return self.start_logprobs if self.group_old_logprobs is None else self.group_old_logprobs


def pack(lengths: Sequence[int], token_budget: int) -> list[list[int]]:
    """Return micro-batches as lists of row indices, longest first, within the budget of padded
    tokens.

    A batch that is large enough ends before a row much shorter than its longest.
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    batches: list[list[int]] = []
    for index in order:
        # The first row of a batch is its longest, so it alone sets the padded width.
        width = lengths[batches[-1][0]] if batches else 0
        filled = width * len(batches[-1]) if batches else 0
        similar = filled < EFFICIENT_BATCH_TOKENS or lengths[index] >= MAX_COST_RATIO * width
        if batches and similar and filled + width <= token_budget:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def make_rows(
    policy: Policy, groups: Sequence[TrainGroup], config: GrpoConfig
) -> tuple[list[list[TrainingRow]], int]:
    """Return the rows of each group that fit whole, and the number of rows that do not.

    A row is never truncated: its reward belongs to the whole text.
    """
    too_long = 0
    result = []
    for number, group in enumerate(groups):
        if not group.prompt_ids or not _has_matching_lengths(group):
            raise ValueError("a group needs a prompt, and one value of each field per completion")
        whole = policy.max_positions - len(group.prompt_ids)
        if whole < 1:
            too_long += len(group.completions)
            continue
        limit = min(whole, config.max_completion_tokens or whole)
        rows = []
        for index, ids in enumerate(group.completions):
            # The limit holds per message. A game has several, each limited when it was tokenized.
            max_tokens = limit if completion_positions_of(group, index) is None else whole
            if len(ids) <= max_tokens:
                rows.append(_row(policy, number, group, index))
        too_long += len(group.completions) - len(rows)
        result.append(rows)
    return result, too_long


def completion_positions_of(group: TrainGroup, index: int) -> Sequence[int] | None:
    """Return the positions of policy tokens in a completion; None if it has no others."""
    return group.completion_positions[index] if group.completion_positions else None


def _has_matching_lengths(group: TrainGroup) -> bool:
    given = (group.old_logprobs, group.sampling_logprobs, group.start_logprobs, group.unscored_mask)
    parallel = [group.advantages, *(one for one in (*given, group.completion_positions) if one)]
    return all(len(one) == len(group.completions) for one in parallel)


def _row(policy: Policy, number: int, group: TrainGroup, index: int) -> TrainingRow:
    row = TrainingRow(
        group=number,
        prompt_ids=group.prompt_ids,
        completion_ids=group.completions[index],
        advantage=group.advantages[index],
        external=group.external,
        completion_positions=completion_positions_of(group, index) or (),
        num_shared=group.num_shared,
        share=group.share,
    )
    if group.old_logprobs:
        row.group_old_logprobs = _per_token(row, group.old_logprobs[index], policy)
    if group.start_logprobs:
        row.generation_logprobs = _per_token(row, group.start_logprobs[index], policy)
    claim = group.sampling_logprobs[index] if group.sampling_logprobs else None
    if claim is not None:
        row.sampling_logprobs = _per_token(row, claim, policy)
    unscored_mask = group.unscored_mask[index] if group.unscored_mask else None
    if unscored_mask is not None and row.advantage > 0:
        row.unscored_mask = torch.tensor(unscored_mask, dtype=torch.bool, device=policy.device)
    return row


def _per_token(row: TrainingRow, values: Sequence[float], policy: Policy) -> torch.Tensor:
    made = torch.tensor(values, dtype=torch.float32, device=policy.device)
    if len(made) != len(row.completion_positions):
        raise ValueError("old and sampling log-probabilities need one value per token")
    return made


def split_minibatches(groups: list[list[TrainingRow]], num: int) -> list[list[list[TrainingRow]]]:
    """Distribute whole groups over `num` minibatches, round-robin; groups with signal first, so
    that they spread evenly."""
    ordered = sorted(groups, key=lambda rows: all(row.advantage == 0 for row in rows))
    return [ordered[start::num] for start in range(num)]


def assign_token_weights(rows: list[TrainingRow], config: GrpoConfig) -> list[TrainingRow]:
    """Set each row's token weight from all rows of its step; return the rows to compute."""
    sizes = [(len(row.completion_positions), row.share) for row in rows]
    weights = config.token_weights(sizes, config.max_completion_tokens or 1)
    for row, weight in zip(rows, weights, strict=True):
        row.weight = weight
    if not any(row.advantage != 0 for row in rows if row.completion_ids):
        return []
    # A KL term also has a gradient for rows without advantage.
    return [row for row in rows if row.completion_ids and (row.advantage != 0 or config.kl_beta)]


def should_pack(policy: Policy, rows: Sequence[TrainingRow], token_budget: int) -> bool:
    """Return whether to pack these rows: the model supports it and it saves enough tokens."""
    if len(rows) < 2 or policy.logit_form is None:
        return False
    lengths = [row.length for row in rows]
    batches = pack(lengths, token_budget)
    padded = sum(len(batch) * (max(lengths[index] for index in batch) - 1) for batch in batches)
    if packed_tokens(rows) > MAX_COST_RATIO * padded:
        return False
    return can_pack(policy.model, policy.device, max(lengths))


def batch_tokens(rows: Sequence[TrainingRow], *, packed: bool) -> int:
    """Return the size of a micro-batch of these rows against the token budget.

    Packed, only attention still sees whole rows or trees: about a quarter of a token's memory.
    """
    if packed:
        return packed_tokens(rows) + attended_tokens(rows) // 4
    return max(row.length for row in rows) * len(rows)


def micro_batches(
    rows: list[TrainingRow], token_budget: int, *, packed: bool
) -> list[list[TrainingRow]]:
    """Return rows batched for one forward pass each.

    Packed, rows of one prompt, and of prompts with the same beginning, stay together if they fit,
    since the common part is computed once per pass.
    """
    if not packed:
        indices = pack([row.length for row in rows], token_budget)
        return [[rows[index] for index in batch] for batch in indices]
    families = group_rows(rows, lambda row: row.beginning)
    # Longest first, so that rows of similar length are together; ties by token ids.
    longest = {begun: max(row.length for row in same) for begun, same in families.items()}
    batches: list[list[TrainingRow]] = []
    used: float = token_budget
    for begun in sorted(families, key=lambda begun: (-longest[begun], begun)):
        for size, part in _split_to_fit(families[begun], token_budget):
            if used + size <= token_budget:
                batches[-1].extend(part)
                used += size
            else:
                batches.append(part)
                used = size
    return batches


def _split_to_fit(
    family: list[TrainingRow], token_budget: int
) -> list[tuple[float, list[TrainingRow]]]:
    """Return the rows with their size; split into halves, quarters … if they exceed the budget."""
    size = batch_tokens(family, packed=True)
    if len(family) == 1 or size <= token_budget:
        return [(size, family)]
    ordered = sorted(family, key=lambda row: (row.prompt, -row.length))
    half = len(ordered) // 2
    return _split_to_fit(ordered[:half], token_budget) + _split_to_fit(ordered[half:], token_budget)
