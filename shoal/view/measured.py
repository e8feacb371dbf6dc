"""Uncertainty of a mean: half of its 95 % interval. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Final

_Z: Final = 1.96  # 95 % of a normal distribution lie within


def ci95_halfwidth(values: Sequence[float]) -> float | None:
    """Return half the 95 % interval of the mean of some rounds; None of fewer than two."""
    return _Z * stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def within_of_share(share: float, num: int) -> float | None:
    """Return half the 95 % interval of a share of `num` questions (Agresti and Coull).

    None if the number is unknown.
    """
    bounds = interval_of_share(share, num)
    return None if bounds is None else (bounds[1] - bounds[0]) / 2


def interval_of_share(share: float, num: int) -> tuple[float, float] | None:
    """Return the 95 % interval itself; None if the number of questions is unknown."""
    if num < 1:
        return None
    middle = (share * num + 2) / (num + 4)
    within = _Z * math.sqrt(max(0.0, middle * (1 - middle)) / (num + 4))
    return middle - within, middle + within


def is_it_learning(
    first: Sequence[float],
    latest: Sequence[float],
    num_rounds: int,
    *,
    held_out: Sequence[float] = (),
    num_held_out: int = 0,
) -> str:
    """Answer from a run's first and latest local rewards, otherwise from its held-out questions.

    `held_out` are the shares of the evaluations, each of `num_held_out` questions. Empty before
    there are two sets of rewards.
    """
    if len(first) < 2 or len(latest) < 2 or num_rounds < len(first) + len(latest):
        return ""
    before, after = fmean(first), fmean(latest)
    noise = math.hypot(ci95_halfwidth(first) or 0.0, ci95_halfwidth(latest) or 0.0)
    change = f"from {before:.2f} to {after:.2f} in {num_rounds} rounds"
    if after - before > noise:
        return f"Yes: own reward rose {change}"
    if before - after > noise:
        return f"No: own reward fell {change}"
    if len(held_out) > 1 and num_held_out:
        start, end = held_out[0], held_out[-1]
        sure = [within_of_share(one, num_held_out) or 0.0 for one in (start, end)]
        if end - start > math.hypot(*sure):
            return (
                f"Yes: {start:.2f} of held-out questions were right at the start, "
                f"{end:.2f} are after {num_rounds} rounds"
            )
    return f"Not clear: own reward went {change}, no more than chance explains (± {noise:.2f})"
