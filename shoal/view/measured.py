"""Is it learning? Held-out questions answer first, own reward only without them. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from shoal_ipc.answers.held_out import Evaluation, Z, change_of


def ci95_halfwidth(values: Sequence[float]) -> float | None:
    """Return half the 95 % interval of the mean of some rounds; None of fewer than two."""
    return Z * stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def is_it_learning(initial: Evaluation | None, latest: Evaluation | None) -> str:
    """Answer from a run's first and latest held-out evaluation; empty before there are two."""
    change = change_of(initial, latest)
    if change is None or initial is None or latest is None:
        return ""
    by, within = change
    shares = f"from {initial.pass_at_1:.2f} to {latest.pass_at_1:.2f}"
    of = f"of {latest.num_items} held-out questions, in {latest.round - initial.round} rounds"
    if by > within:
        return f"Yes: right answers rose {shares} {of}"
    if -by > within:
        return f"No: right answers fell {shares} {of}"
    return f"Not clear: right answers went {shares} {of}; chance explains ± {within:.2f}"


def is_reward_rising(first: Sequence[float], latest: Sequence[float], num_rounds: int) -> str:
    """Answer from a run's first and latest own rewards; empty before there are two sets of them."""
    if len(first) < 2 or len(latest) < 2 or num_rounds < len(first) + len(latest):
        return ""
    before, after = fmean(first), fmean(latest)
    noise = math.hypot(ci95_halfwidth(first) or 0.0, ci95_halfwidth(latest) or 0.0)
    change = f"from {before:.2f} to {after:.2f} in {num_rounds} rounds"
    if after - before > noise:
        return f"Yes: own reward, on training questions, rose {change}"
    if before - after > noise:
        return f"No: own reward, on training questions, fell {change}"
    return f"Not clear: own reward went {change}, no more than chance explains (± {noise:.2f})"
