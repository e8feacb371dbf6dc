"""The losses that an update can minimise, one row for each value of the setting `loss_type`.

To add a loss, add a row here, its word in `shoal_settings.trainer_settings` and a row in
docs/losses.md. tests/policy/update/test_trl_oracle.py then compares its value and every gradient
with TRL's loss of the same name.

Shapes: N policy tokens of all rows of a step, one row after another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import torch

Sizes = Sequence[tuple[int, float]]
"""Each row's number of tokens and its share (the fraction of a row that it counts as)."""


TokenWeights = Callable[[Sizes, int], list[float]]
"""Returns the weight of each token of a row, for every row of a step. The number is the token limit
of a completion. The weights depend on nothing else, so neither packing nor micro-batches change the
loss."""


def clipped_gain(
    ratio_N: torch.Tensor, advantage_N: torch.Tensor, *, low: float, high: float
) -> torch.Tensor:
    """Return the smaller of plain and clipped gain, [N] (PPO, with DAPO's clip-higher).

    `low` and `high` are how far the ratio may be below and above 1 before it is clipped.
    """
    return torch.minimum(ratio_N * advantage_N, ratio_N.clamp(1 - low, 1 + high) * advantage_N)


def _by_completion(sizes: Sizes, _limit: int) -> list[float]:
    num_rows = sum(share for _, share in sizes)
    return [share / (num_rows * max(1, length)) for length, share in sizes]


def _by_limit(sizes: Sizes, limit: int) -> list[float]:
    num_rows = sum(share for _, share in sizes)
    return [share / (num_rows * limit) for _, share in sizes]


def _by_token(sizes: Sizes, _limit: int) -> list[float]:
    num_tokens = sum(length * share for length, share in sizes) or 1
    return [share / num_tokens for _, share in sizes]


LOSSES: Final[Mapping[str, TokenWeights]] = {
    # Mean over each row's tokens, then over rows (GRPO, arXiv 2402.03300).
    "grpo": _by_completion,
    # Sum over rows × token limit: no bias towards short or long answers (arXiv 2503.20783).
    "dr_grpo": _by_limit,
    # Mean over all tokens of all rows (DAPO, arXiv 2503.14476).
    "dapo": _by_token,
}
