"""Tunes the learning rate of each arm separately, on seeds that no comparison uses.

sweep (arm × rate, tuning seeds) ──▶ best rate of each arm ──▶ comparison (the usual seeds)
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from shoal_lab.experiment.plan import Arm, Experiment
from shoal_lab.experiment.report.measures import total
from shoal_lab.experiment.report.results import JobRun

TUNING_SEEDS = (101, 102)
"""No comparison uses these seeds, so that no rate is chosen and evaluated on the same seed."""
RATES = (7.5e-5, 1.5e-4, 3e-4, 6e-4)


def sweep(experiment: Experiment, rates: Sequence[float]) -> Experiment:
    """Every arm with every rate, except arms that name their own."""
    arms = tuple(_at(arm, rate) for arm in _open(experiment) for rate in rates)
    return replace(experiment, name=f"{experiment.name}-sweep", arms=arms, seeds=TUNING_SEEDS)


def best_rates(
    experiment: Experiment, rates: Sequence[float], runs: Sequence[JobRun]
) -> dict[str, float]:
    """The rate of each arm with the greatest mean total of the sweep's runs."""
    found = totals(experiment, rates, runs)
    return {
        arm: max(by_rate, key=lambda rate: by_rate[rate])
        for arm, by_rate in found.items()
        if by_rate
    }


def totals(
    experiment: Experiment, rates: Sequence[float], runs: Sequence[JobRun]
) -> dict[str, dict[float, float]]:
    """Mean total of each arm and rate that the sweep has finished."""
    return {
        arm.name: {
            rate: statistics.fmean(mine)
            for rate in rates
            if (mine := [total(run) for run in runs if run.arm == _at(arm, rate).name])
        }
        for arm in _open(experiment)
    }


def tuned(experiment: Experiment, best: Mapping[str, float]) -> Experiment:
    """The comparison with every arm at its own rate. Names stay, so that tables compare."""
    arms = tuple(
        arm.with_settings(learning_rate=best[arm.name]) if arm.name in best else arm
        for arm in experiment.arms
    )
    return replace(experiment, name=f"{experiment.name}-tuned", arms=arms)


def markdown(experiment: Experiment, rates: Sequence[float], runs: Sequence[JobRun]) -> str:
    """The sweep as a table: total reward, the best of each arm in bold."""
    best = best_rates(experiment, rates, runs)
    lines = [
        "| I/J | " + " | ".join(f"{rate:g}" for rate in rates) + " |",
        "|---" * (len(rates) + 1) + "|",
    ]
    for arm, by_rate in totals(experiment, rates, runs).items():
        cells = ["–" if rate not in by_rate else f"{by_rate[rate]:.1f}" for rate in rates]
        bold = [
            f"**{cell}**" if best.get(arm) == rate else cell
            for cell, rate in zip(cells, rates, strict=True)
        ]
        lines.append(f"| {arm} | " + " | ".join(bold) + " |")
    return "\n".join(lines) + "\n"


def _open(experiment: Experiment) -> list[Arm]:
    """The arms whose learning rate is not named."""
    return [arm for arm in experiment.arms if "learning_rate" not in arm.nodes[0].settings]


def _at(arm: Arm, rate: float) -> Arm:
    return replace(arm.with_settings(learning_rate=rate), name=f"{arm.name} rate {rate:g}")
