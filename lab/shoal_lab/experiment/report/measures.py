"""Figures of a run, and comparisons of arms over their seeds. Pure.

Definitions (docs/results-earlier.md names the commit whose experiments.md gives the reasons):

- *total*: sum over rounds of the mean reward on a node's own fresh questions.
- *area*: mean height of the curve of held-out pass@1, mean of the nodes, by round or CPU second.
- *p*: t-test on the differences by seed. Arms pair by seed: they start from the same weights and
  draw the same questions.

A seed is an independent unit. Nodes of one swarm learn from each other, so their mean counts once,
and one seed has no interval and no p.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from shoal_lab.experiment.report.results import JobRun, mean_over_nodes
from shoal_lab.significance import Spread, holm, paired, spread

Measure = Callable[[JobRun], float]


def total(run: JobRun) -> float:
    """Return the sum over rounds of the mean reward of a node, on own fresh questions."""
    return sum(mean_over_nodes(run.fresh))


def final_heldout(run: JobRun) -> float:
    """Return the nodes' mean pass@1 at the last evaluation."""
    return mean_over_nodes(run.held_out)[-1]


def heldout_area(run: JobRun) -> float:
    """Return the mean height of the nodes' pass@1 over the rounds: the area under its curve."""
    return area(run.evaluated, mean_over_nodes(run.held_out), run.rounds)


def cpu_at(run: JobRun) -> list[float]:
    """Return a node's CPU seconds at each evaluation; empty if they were not recorded."""
    return [run.cpu[number - 1] if number else 0.0 for number in run.evaluated] if run.cpu else []


def tokens_at(run: JobRun) -> list[float]:
    """Return the tokens that a node had generated at each evaluation."""
    return [run.tokens[number - 1] if number else 0.0 for number in run.evaluated]


def area(places: Sequence[float], heights: Sequence[float], until: float) -> float:
    """Return the mean height of a curve of straight lines from its first place to `until`.

    `until` is above the first place. Beyond its end the curve is extended at its last value.
    """
    found = 0.0
    points = [*zip(places, heights, strict=True), (max(until, places[-1]), heights[-1])]
    for (start, low), (end, high) in pairwise(points):
        if start >= until or end <= start:
            continue
        last = min(end, until)
        at_last = low + (high - low) * (last - start) / (end - start)
        found += (last - start) * (low + at_last) / 2
    return found / (until - places[0])


def mean(values: Sequence[float]) -> float:
    """Return the mean; 0 of nothing."""
    return statistics.fmean(values) if values else 0.0


def over(runs: Sequence[JobRun], measure: Measure) -> Spread:
    """Return a measure over an arm's runs; there is at least one."""
    return spread([measure(run) for run in runs])


def comparable(runs: Sequence[JobRun]) -> list[JobRun]:
    """Return the runs of the seeds that every arm has finished; all runs where there is none."""
    arms = {run.arm for run in runs}
    seeds = {run.seed for run in runs}
    whole = {s for s in seeds if {run.arm for run in runs if run.seed == s} == arms}
    return [run for run in runs if run.seed in whole or not whole]


def by_arm(runs: Sequence[JobRun]) -> dict[str, list[JobRun]]:
    """Return each arm's runs, arms in the order in which they come."""
    arms = dict.fromkeys(run.arm for run in runs)
    return {arm: [run for run in runs if run.arm == arm] for arm in arms}


def paired_runs(runs: Sequence[JobRun], base: Sequence[JobRun]) -> list[tuple[JobRun, JobRun]]:
    """Return each run with the one of `base` that has its seed."""
    rivals = {run.seed: run for run in base}
    return [(run, rivals[run.seed]) for run in runs if run.seed in rivals]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Two arms by one measure, over the seeds that both have."""

    one: str
    other: str
    spread: Spread
    """`one` minus `other`, by seed."""
    p: float | None
    """Adjusted over all requested differences of the measure; None with one seed."""


def differences(
    runs: Sequence[JobRun], pairs: Iterable[tuple[str, str]], measure: Measure
) -> dict[tuple[str, str], Difference]:
    """Compare these pairs of arms; pairs that have no seed in common are skipped."""
    arms = by_arm(runs)
    found = {
        (one, other): [measure(mine) - measure(theirs) for mine, theirs in both]
        for one, other in pairs
        if (both := paired_runs(arms.get(one, ()), arms.get(other, ())))
    }
    p_values = {"\0".join(pair): paired(values) for pair, values in found.items()}
    adjusted = holm({name: p for name, p in p_values.items() if p is not None})
    return {
        (one, other): Difference(
            one=one, other=other, spread=spread(values), p=adjusted.get(f"{one}\0{other}")
        )
        for (one, other), values in found.items()
    }
