"""Tests whether a difference is more than chance, over independent units: seeds, swarms. Pure.

A unit is sampled independently of the others. The nodes of one swarm are not: they learn from each
other.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

ALPHA = 0.05  # the usual level of a test
_MIN_UNITS = 2  # one has no spread
_ROUNDING: Final = 1e-9
"""Values no further apart than this are one value. Means of scores and totals of rewards, at most
some hundreds, carry rounding errors far below it, and differ by more where they differ."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A value over independent units."""

    mean: float
    sd: float
    """Unbiased standard deviation; 0 with one unit."""
    half: float | None
    """Half the width of the mean's 95 % interval, by Student's t; None with one unit."""
    units: int

    @property
    def error(self) -> float | None:
        """The standard error of the mean; None with one unit."""
        return None if self.units < _MIN_UNITS else self.sd / math.sqrt(self.units)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that commands print, to six digits."""
        mean, half = self.mean, self.half
        ci95 = None if half is None else [round(mean - half, 6), round(mean + half, 6)]
        return {"mean": round(mean, 6), "sd": round(self.sd, 6), "ci95": ci95}


def spread(values: Sequence[float]) -> Spread:
    """Return the mean of at least one value, its deviation and its 95 % interval."""
    mean, units = statistics.fmean(values), len(values)
    if units < _MIN_UNITS:
        return Spread(mean, 0.0, None, units)
    from scipy.stats import t as student  # takes a second, so only with results

    sd = statistics.stdev(values)
    half = float(student.ppf(1 - ALPHA / 2, units - 1)) * (sd / math.sqrt(units))
    return Spread(mean, sd, half, units)


def paired(differences: Sequence[float]) -> float | None:
    """Two-sided p of the differences' mean by Student's t; None with fewer than two.

    Differences that are all the same except for rounding have no spread to test with: their p is
    the sign test's, 1 if they are 0. Scores of right and wrong tie often.
    """
    if len(differences) < _MIN_UNITS:
        return None
    if _are_alike(differences):
        is_none = _are_alike([*differences, 0.0])
        return 1.0 if is_none else 2.0 ** (1 - len(differences))
    from scipy.stats import ttest_1samp

    return float(ttest_1samp(differences, 0.0).pvalue)


def welch(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Two-sided p of Welch's test; None with fewer than two values each, or no spread."""
    if min(len(one), len(other)) < _MIN_UNITS:
        return None
    if _are_alike(one) and _are_alike(other):
        return None
    from scipy.stats import ttest_ind_from_stats

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
