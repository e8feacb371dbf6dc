"""Rows of an update: prompt and completion with advantage and weight, dealt and packed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from shoal_policy.model.loading import Policy
from shoal_policy.model.packed import (
    PAYS,
    TokenRow,
    alike,
    attended_tokens,
    can_pack,
    packed_tokens,
)
from shoal_policy.update.objective import GrpoConfig

LARGE_ENOUGH = 1024
"""Padded tokens from which on a forward pass gains less by more rows than it loses by padding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainGroup:
    """One task's completions as the trainer sees them."""

    prompt_ids: Sequence[int]
    """Prompt's token ids, not empty."""
    completions: Sequence[Sequence[int]]
    """Token ids of each, end token included where the completion ended by itself."""
    advantages: Sequence[float]
    """One a completion."""
    external: bool
    """True if it is from another node."""
    old_logprobs: Sequence[Sequence[float]] | None = None
    """Per token, under the policy that the ratio is taken against; None takes the own policy
    as it is when the update starts (the paper's way)."""
    num_shared: int = 0
    """Tokens at the prompt's beginning that all prompts of its family begin with."""
    claimed_logprobs: Sequence[Sequence[float] | None] | None = None
    """Per own completion of a server that holds this very policy, the log-probability that the
    server gave each token (`replies.usable_claims`): the completion is weighed by them."""
    start_logprobs: Sequence[Sequence[float]] | None = None
    """Per token, under the policy as it is when the update starts, where that is known already."""
    share: float = 1.0
    """The weight of a completion beside one of an own group, above 0 and at most 1."""
    unread: Sequence[Sequence[bool] | None] | None = None
    """Per completion, which of its tokens the verifier did not read; None where it read all."""
    said: Sequence[Sequence[int] | None] | None = None
    """Per completion of several turns, the places of the tokens that the policy said: of these
    alone are the log-probabilities above, and these alone are trained on. The others are its
    environment's. None where the policy said all."""


@dataclass(slots=True, kw_only=True)
class TrainingRow(TokenRow):
    """A completion in an update. What has one a token has one for each of `said`."""

    group: int
    advantage: float
    external: bool
    weight: float = 0.0
    """Weight of each of its tokens in the loss."""
    given: torch.Tensor | None = None
    """Old log-probabilities that came with the group, float32, one a token."""
    claimed: torch.Tensor | None = None
    known: torch.Tensor | None = None
    """Own log-probabilities at the start as the generator had them: as good, not to the bit."""
    start: torch.Tensor | None = None
    """Own log-probabilities at the start of the update; filled in when first computed."""
    importance: torch.Tensor | None = None
    reference: torch.Tensor | None = None
    share: float = 1.0
    unread: torch.Tensor | None = None
    """Tokens that weigh only where the policy itself would say them (`off_policy.sayable`)."""

    @property
    def old(self) -> torch.Tensor | None:
        return self.start if self.given is None else self.given


def pack(lengths: Sequence[int], token_budget: int) -> list[list[int]]:
    """Indices of rows in micro-batches: longest first, padded tokens within the budget.

    One that is large enough ends before a row much shorter than its longest.
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    batches: list[list[int]] = []
    for index in order:
        # The first row of a batch is its longest, so it alone sets the padded width.
        width = lengths[batches[-1][0]] if batches else 0
        filled = width * len(batches[-1]) if batches else 0
        similar = filled < LARGE_ENOUGH or lengths[index] >= PAYS * width
        if batches and similar and filled + width <= token_budget:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def make_rows(
    policy: Policy, groups: Sequence[TrainGroup], config: GrpoConfig
) -> tuple[list[list[TrainingRow]], int]:
    """The rows of each group that fit whole, and how many do not.

    A row is never cut: its reward is of the whole text, so no part of it may be trained on alone.
    """
    too_long = 0
    result = []
    for number, group in enumerate(groups):
        if not group.prompt_ids or not _is_parallel(group):
            raise ValueError("a group needs a prompt, and one of each thing a completion")
        whole = policy.max_positions - len(group.prompt_ids)
        if whole < 1:
            too_long += len(group.completions)
            continue
        limit = min(whole, config.max_completion_tokens or whole)
        rows = []
        for index, ids in enumerate(group.completions):
            # The limit is that of one message: a game has several, each bounded where it was read.
            room = limit if said_in(group, index) is None else whole
            if len(ids) <= room:
                rows.append(_row(policy, number, group, index))
        too_long += len(group.completions) - len(rows)
        result.append(rows)
    return result, too_long


def said_in(group: TrainGroup, index: int) -> Sequence[int] | None:
    """Return the places of what the policy said in a completion; None where it said all."""
    return group.said[index] if group.said else None


def _is_parallel(group: TrainGroup) -> bool:
    given = (group.old_logprobs, group.claimed_logprobs, group.start_logprobs, group.unread)
    parallel = [group.advantages, *(one for one in (*given, group.said) if one)]
    return all(len(one) == len(group.completions) for one in parallel)


def _row(policy: Policy, number: int, group: TrainGroup, index: int) -> TrainingRow:
    row = TrainingRow(
        group=number,
        prompt_ids=group.prompt_ids,
        completion_ids=group.completions[index],
        advantage=group.advantages[index],
        external=group.external,
        said=said_in(group, index) or (),
        num_shared=group.num_shared,
        share=group.share,
    )
    if group.old_logprobs:
        row.given = _per_token(row, group.old_logprobs[index], policy)
    if group.start_logprobs:
        row.known = _per_token(row, group.start_logprobs[index], policy)
    claim = group.claimed_logprobs[index] if group.claimed_logprobs else None
    if claim is not None:
        row.claimed = _per_token(row, claim, policy)
    unread = group.unread[index] if group.unread else None
    if unread is not None and row.advantage > 0:
        row.unread = torch.tensor(unread, dtype=torch.bool, device=policy.device)
    return row


def _per_token(row: TrainingRow, values: Sequence[float], policy: Policy) -> torch.Tensor:
    made = torch.tensor(values, dtype=torch.float32, device=policy.device)
    if len(made) != len(row.said):
        raise ValueError("old or claimed log-probabilities: need one a token")
    return made


def split_minibatches(groups: list[list[TrainingRow]], num: int) -> list[list[list[TrainingRow]]]:
    """Groups over minibatches, whole and in turn: first those with signal, so that they spread."""
    ordered = sorted(groups, key=lambda rows: all(row.advantage == 0 for row in rows))
    return [ordered[start::num] for start in range(num)]


def weighted(rows: list[TrainingRow], config: GrpoConfig) -> list[TrainingRow]:
    """Set each row's token weight from all rows of its step; return the rows to compute."""
    sizes = [(len(row.said), row.share) for row in rows]
    weights = config.token_weights(sizes, config.max_completion_tokens or 1)
    for row, weight in zip(rows, weights, strict=True):
        row.weight = weight
    if not any(row.advantage != 0 for row in rows if row.completion_ids):
        return []
    # A KL term pulls at rows without advantage too.
    return [row for row in rows if row.completion_ids and (row.advantage != 0 or config.kl_beta)]


def packing_pays(policy: Policy, rows: Sequence[TrainingRow], token_budget: int) -> bool:
    """Return whether to pack these rows: the model can, and it saves enough tokens."""
    if len(rows) < 2 or policy.logit_form is None:
        return False
    lengths = [row.length for row in rows]
    batches = pack(lengths, token_budget)
    padded = sum(len(batch) * (max(lengths[index] for index in batch) - 1) for batch in batches)
    if packed_tokens(rows) > PAYS * padded:
        return False
    return can_pack(policy.model, policy.device, max(lengths))


def batch_tokens(rows: Sequence[TrainingRow], *, packed: bool) -> int:
    """Return what a micro-batch of these rows counts for against the token budget.

    Packed, attention alone still holds whole rows, or trees: about a quarter of a token's memory.
    """
    if packed:
        return packed_tokens(rows) + attended_tokens(rows) // 4
    return max(row.length for row in rows) * len(rows)


def micro_batches(
    rows: list[TrainingRow], token_budget: int, *, packed: bool
) -> list[list[TrainingRow]]:
    """Rows for one forward pass each; packed, those of one prompt stay together if they can.

    So do those that share their prompts' beginning, which is computed once in each pass.
    """
    if not packed:
        indices = pack([row.length for row in rows], token_budget)
        return [[rows[index] for index in batch] for batch in indices]
    families = alike(rows, lambda row: row.beginning)
    # Longest first: rows of similar length come together. Equal ones by their ids.
    longest = {begun: max(row.length for row in same) for begun, same in families.items()}
    batches: list[list[TrainingRow]] = []
    used: float = token_budget
    for begun in sorted(families, key=lambda begun: (-longest[begun], begun)):
        for size, part in _fitting(families[begun], token_budget):
            if used + size <= token_budget:
                batches[-1].extend(part)
                used += size
            else:
                batches.append(part)
                used = size
    return batches


def _fitting(family: list[TrainingRow], token_budget: int) -> list[tuple[float, list[TrainingRow]]]:
    """Return rows and what they count for: all, or in halves, quarters … where they are too many
    for one pass."""
    size = batch_tokens(family, packed=True)
    if len(family) == 1 or size <= token_budget:
        return [(size, family)]
    ordered = sorted(family, key=lambda row: (row.prompt, -row.length))
    half = len(ordered) // 2
    return _fitting(ordered[:half], token_budget) + _fitting(ordered[half:], token_budget)
