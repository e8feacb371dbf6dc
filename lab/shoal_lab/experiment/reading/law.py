"""How fast nodes learn, by the groups that they get to look at: a law, and how well it predicts.

    reward on own questions of round t  =  C / (1 + (H / E(t)) ** K)
    E(t)  =  sum over the rounds before t of (own + X × others') ** A

`own` and `others'` are the groups that a node looked at in a round, `groups_looked_at` of
docs/metrics.md. C, H, K and A come from silos alone, arms in which nobody draws; X, what one group
of others is worth beside an own one, from an arm that shares. So a sharing arm's curve is
predicted twice: with X = 1, by silos alone; and each seed with what the *other* seeds say, A and X
included. Intervals of A and X are jackknife ones, by leaving out one seed after another.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy.optimize import least_squares, minimize_scalar
from scipy.stats import t as student

from shoal_lab.experiment.reading.measures import comparable, total
from shoal_lab.experiment.reading.results import Run, mean_over_nodes, moving_average
from shoal_lab.experiment.reading.sheet import interval_of
from shoal_lab.significance import Spread, spread

THRESHOLDS: Final = (0.2, 0.4, 0.6)
WINDOW: Final = 10
"""Rounds over which a reward is averaged before it is held against a threshold, or predicted."""
_MIN_ARMS, _MIN_SEEDS = 2, 3
_MOST_WORTH: Final = 4.0
_START: Final = (0.7, 0.7, 5.0, 1.5)
"""Start values of the fit: A, C, log H and K."""

Vector = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """The law's four numbers, as fitted to silos."""

    power: float
    """A: twice the groups looked at make 2 ** A times as much experience a round."""
    level: float
    """C: the reward that it ends at."""
    half: float
    """log H: of the experience that brings half of that."""
    slope: float
    """K."""

    def predict(self, run: Run, worth: float) -> Vector:
        """The reward of every round, by what the node looked at."""
        own, others = _looked_at(run)
        # Far from the law, as of silos that learn nothing, the fit tries powers beyond any number.
        with np.errstate(divide="ignore", over="ignore"):
            gained = (own + worth * others) ** self.power
            before = np.concatenate([[0.0], np.cumsum(gained)[:-1]])
            distance = self.half - np.log(before)
        return np.asarray(self.level / (1 + np.exp(np.minimum(self.slope * distance, 500.0))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """One sharing arm."""

    arm: str
    worth: Spread
    """X; the half width is the jackknife's."""
    by_silos: Spread
    """Predicted minus played total, by seed, with X = 1."""
    missed: Mapping[int, float]
    """The same by seed, of each by what the other seeds say."""
    error: float
    """Mean distance, in reward a round, between the curve that other seeds predict and the one
    played, both averaged over `WINDOW` rounds."""
    total: Spread
    """Played."""

    @property
    def by_others(self) -> Spread:
        """The prediction errors of all seeds, summed up."""
        return spread(list(self.missed.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """The round in which an arm's reward on own fresh questions reaches a threshold."""

    threshold: float
    median: float | None
    """Round; None where half of the seeds were not there after the last."""
    missing: int
    """Seeds that were not there after the last round: they count as later than all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """All that the runs say of it."""

    power: Spread
    """A; the half width is the jackknife's."""
    silos: tuple[str, ...]
    rounds: int
    predicted: tuple[Predicted, ...]
    reached: Mapping[str, tuple[Reached, ...]]
    looked_at: Mapping[str, float]
    """Mean number of groups that a node looks at in a round, by arm."""


def find(runs: Sequence[Run]) -> Found | None:
    """Fit and predict; None with fewer than three seeds, or two silos that look at as much."""
    runs = comparable([run for run in runs if run.looked_at])
    seeds = sorted({run.seed for run in runs})
    silos = [run for run in runs if not _looked_at(run)[1].any()]
    if len(seeds) < _MIN_SEEDS or len({run.questions for run in silos}) < _MIN_ARMS:
        return None
    law = fit(silos)
    without = {seed: fit([run for run in silos if run.seed != seed]) for seed in seeds}
    arms = list(dict.fromkeys(run.arm for run in runs))
    by_arm = {arm: [run for run in runs if run.arm == arm] for arm in arms}
    names = list(dict.fromkeys(run.arm for run in silos))
    return Found(
        power=_jackknife(law.power, [one.power for one in without.values()]),
        silos=tuple(names),
        rounds=runs[0].rounds,
        predicted=tuple(_predicted(by_arm[arm], law, without) for arm in arms if arm not in names),
        reached={
            arm: tuple(reached(mine, at) for at in THRESHOLDS) for arm, mine in by_arm.items()
        },
        looked_at={
            arm: statistics.fmean(statistics.fmean(run.looked_at) for run in mine)
            for arm, mine in by_arm.items()
        },
    )


def fit(silos: Sequence[Run]) -> Law:
    """The law that comes closest to every round of every silo, by least squares."""
    played = [np.asarray(mean_over_nodes(run.fresh)) for run in silos]

    def distances(values: Sequence[float]) -> Vector:
        law = _law(values)
        return np.concatenate(
            [law.predict(run, 1.0) - rewards for run, rewards in zip(silos, played, strict=True)]
        )

    return _law(least_squares(distances, _START).x)


def worth_of(runs: Sequence[Run], law: Law) -> float:
    """X: what others' groups count, for the law to come closest to these runs."""
    played = [np.asarray(mean_over_nodes(run.fresh)) for run in runs]

    def distance(worth: float) -> float:
        return sum(
            float(np.sum((law.predict(run, worth) - rewards) ** 2))
            for run, rewards in zip(runs, played, strict=True)
        )

    return float(minimize_scalar(distance, bounds=(0.0, _MOST_WORTH), method="bounded").x)


def reached(runs: Sequence[Run], threshold: float) -> Reached:
    """The median round over seeds, those that are not there yet counted as later than all."""
    rounds = sorted(_first(run, threshold) for run in runs)
    middle = statistics.median(rounds)
    missing = sum(math.isinf(one) for one in rounds)
    return Reached(
        threshold=threshold, median=None if math.isinf(middle) else middle, missing=missing
    )


def _predicted(runs: Sequence[Run], law: Law, without: Mapping[int, Law]) -> Predicted:
    rest = {run.seed: [one for one in runs if one.seed != run.seed] for run in runs}
    worths = {seed: worth_of(others, without[seed]) for seed, others in rest.items()}
    by_others = {run.seed: without[run.seed].predict(run, worths[run.seed]) for run in runs}
    return Predicted(
        arm=runs[0].arm,
        worth=_jackknife(worth_of(runs, law), list(worths.values())),
        by_silos=spread([float(law.predict(run, 1.0).sum()) - total(run) for run in runs]),
        missed={run.seed: float(by_others[run.seed].sum()) - total(run) for run in runs},
        error=statistics.fmean(_distance(by_others[run.seed], run) for run in runs),
        total=spread([total(run) for run in runs]),
    )


def _distance(predicted: Vector, run: Run) -> float:
    """Mean distance of two curves, each averaged over a window."""
    differences = predicted - np.asarray(mean_over_nodes(run.fresh))
    smooth = moving_average([float(one) for one in differences], WINDOW)[WINDOW - 1 :]
    return statistics.fmean(map(abs, smooth or [float(differences.mean())]))


def _first(run: Run, threshold: float) -> float:
    smooth = moving_average(mean_over_nodes(run.fresh), WINDOW)
    return next(
        (n for n, one in enumerate(smooth, 1) if n >= WINDOW and one >= threshold), math.inf
    )


def _looked_at(run: Run) -> tuple[Vector, Vector]:
    """Own groups and others', by round."""
    looked = np.asarray(run.looked_at)
    own = np.minimum(looked, run.questions)
    return own, looked - own


def _law(values: Sequence[float]) -> Law:
    power, level, half, slope = map(float, values)
    return Law(power=power, level=level, half=half, slope=slope)


def _jackknife(whole: float, parts: Sequence[float]) -> Spread:
    """The value of all seeds, with the interval that leaving out each of them gives."""
    count, mean = len(parts), statistics.fmean(parts)
    error = math.sqrt((count - 1) / count * sum((one - mean) ** 2 for one in parts))
    half = float(student.ppf(0.975, count - 1)) * error
    return Spread(whole, error * math.sqrt(count), half, count)


def markdown(found: Found) -> str:
    """Return when each arm reached each threshold, and how well silos predict, as Markdown."""
    thresholds = next(iter(found.reached.values()))
    heads = [f"rounds to {one.threshold:g}" for one in thresholds]
    lines = [f"| arm | looked at | {' | '.join(heads)} |", "|---" * (2 + len(heads)) + "|"]
    lines += [
        f"| {arm} | {found.looked_at[arm]:.0f} | "
        + " | ".join(_reached(one, found.rounds) for one in times)
        + " |"
        for arm, times in found.reached.items()
    ]
    lines += ["", f"{_times_caption(found)}.", "", _power(found)]
    if found.predicted:
        lines += ["", "| arm | total | silos foretell | other seeds foretell | a round | X |"]
        lines += ["|---" * 6 + "|", *map(_row, found.predicted), "", f"{_FORETOLD}."]
    return "\n".join(lines) + "\n"


_FORETOLD = (
    "total: played; foretell: predicted minus played, by silos alone with others' groups counted "
    "as own ones, and each seed by all other seeds with their X; a round: distance of that curve "
    f"from the one played, {WINDOW} rounds averaged; X: what a group of others is worth beside an "
    "own one"
)


def _times_caption(found: Found) -> str:
    return (
        "looked at: groups a round, own and others'; rounds to: until the reward on own fresh "
        f"questions, averaged over {WINDOW} rounds, is that high, median over seeds; a seed that "
        f"was not there after {found.rounds} rounds counts as later"
    )


def _power(found: Found) -> str:
    more = 2**found.power.mean
    return (
        f"A = {interval_of(2)(found.power)}, fitted to {', '.join(found.silos)}: "
        f"who looks at twice as many groups learns {more:.2f} times as fast."
    )


def _row(one: Predicted) -> str:
    cells = [one.arm, interval_of(1)(one.total), _off(one.by_silos, one), _off(one.by_others, one)]
    return f"| {' | '.join(cells)} | {one.error:.3f} | {interval_of(2)(one.worth)} |"


def _off(value: Spread, one: Predicted) -> str:
    share = value.mean / one.total.mean if one.total.mean else 0.0
    return f"{interval_of(1, '+')(value)} ({share:+.0%})"


def _reached(one: Reached, rounds: int) -> str:
    median = f"> {rounds}" if one.median is None else f"{one.median:.0f}"
    return f"{median} ({one.missing} not yet)" if one.missing else median
