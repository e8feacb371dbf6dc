"""Group-relative advantages (GRPO): pure, without torch."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Literal

STD_FLOOR = 1e-4
"""Added to the standard deviation, as TRL does."""

AdvantageScale = Literal["group", "none"]


def has_signal(rewards: Sequence[float]) -> bool:
    """Return whether the group gives signal: at least two rewards, all finite, not all equal."""
    return all(map(math.isfinite, rewards)) and len(set(rewards)) > 1


def group_advantages(rewards: Sequence[float], scale: AdvantageScale = "group") -> list[float]:
    """Return each completion's reward relative to its group (GRPO, arXiv 2402.03300).

    ``group`` divides by the group's standard deviation (unbiased) plus `STD_FLOOR`;
    ``none`` does not divide (Dr. GRPO). A group without signal, or with a reward that is not
    finite, gives zeros. The result is always finite.
    """
    if not has_signal(rewards):
        return [0.0] * len(rewards)
    # Scaled first, so that rewards near the largest float do not overflow in between.
    largest = max(map(abs, rewards))
    small = [reward / largest for reward in rewards]
    mean = math.fsum(small) / len(small)
    centred = [reward - mean for reward in small]
    if scale == "none":
        most = sys.float_info.max
        return [max(-most, min(most, value * largest)) for value in centred]
    std = math.sqrt(math.fsum(value * value for value in centred) / (len(small) - 1))
    divisor = std + STD_FLOOR / largest if STD_FLOOR / largest < math.inf else math.inf
    return [value / divisor for value in centred]


def completion_share(num: int, own: int) -> float:
    """Return the weight of a completion of an external group of `num`, relative to an own group.

    In (0, 1], and 1 up to `own`, the completions of an own group (at least 2). Absolute advantages
    of a group of n add up to at most √(n(n−1)), so a larger group would move the weights more. With
    this share no external group can move them more than an own one.
    """
    return math.sqrt(own * (own - 1) / (num * (num - 1))) if num > own else 1.0
