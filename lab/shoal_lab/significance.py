"""Tests whether a difference is more than chance, over independent units: seeds, swarms. Pure.

A unit is one that was drawn independently of the others. The nodes of one swarm are not: they learn
from each other.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from scipy.stats import t as student
from scipy.stats import ttest_1samp, ttest_ind_from_stats

ALPHA = 0.05
_MIN_UNITS = 2
_ROUNDING: Final = 1e-9
"""Values no further apart than this are one value. Means of scores and totals of rewards, at most
some hundreds, carry rounding errors far below it, and differ by more where they differ."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over units and how sure it is."""

    mean: float
    half: float | None
    """Half the width of the 95 % interval by Student's t; None with one unit."""
    units: int


def interval(values: Sequence[float]) -> Interval:
    """Return the mean of at least one value, and its 95 % interval."""
    mean, units = statistics.fmean(values), len(values)
    if units < _MIN_UNITS:
        return Interval(mean, None, units)
    error = statistics.stdev(values) / math.sqrt(units)
    return Interval(mean, float(student.ppf(1 - ALPHA / 2, units - 1)) * error, units)


def paired(differences: Sequence[float]) -> float | None:
    """Two-sided p of the differences' mean by Student's t; None with fewer than two.

    Where all differences are the same but for rounding, nothing measures chance: theirs is the sign
    test's, 1 where they are 0. Scores of right and wrong tie often.
    """
    if len(differences) < _MIN_UNITS:
        return None
    if _are_alike(differences):
        is_none = _are_alike([*differences, 0.0])
        return 1.0 if is_none else 2.0 ** (1 - len(differences))
    return float(ttest_1samp(differences, 0.0).pvalue)


def welch(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Two-sided p of Welch's test; None with fewer than two values each, or no spread."""
    if min(len(one), len(other)) < _MIN_UNITS:
        return None
    if _are_alike(one) and _are_alike(other):
        return None
    figures = [(statistics.fmean(arm), _deviation(arm), len(arm)) for arm in (one, other)]
    return float(ttest_ind_from_stats(*figures[0], *figures[1], equal_var=False).pvalue)


def _deviation(values: Sequence[float]) -> float:
    """Standard deviation of the sample; 0, and no rounding error, where all values are one."""
    return 0.0 if _are_alike(values) else statistics.stdev(values)


def _are_alike(values: Sequence[float]) -> bool:
    return max(values) - min(values) <= _ROUNDING


def holm(values: Mapping[str, float]) -> dict[str, float]:
    """Holm's step-down adjustment of p-values."""
    ordered = sorted(values, key=lambda name: values[name])
    adjusted: dict[str, float] = {}
    highest = 0.0
    for rank, name in enumerate(ordered):
        highest = max(highest, min(1.0, (len(ordered) - rank) * values[name]))
        adjusted[name] = highest
    return adjusted
