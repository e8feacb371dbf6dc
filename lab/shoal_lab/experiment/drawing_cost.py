"""Held-out questions by what they cost. Needs matplotlib: imported only to draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shoal_lab.experiment.drawing import BAND, Figures, curve, lines, mean_held_out
from shoal_lab.experiment.reading.measures import by_arm, cpu_at
from shoal_lab.experiment.reading.results import Run

CPU: Final = (
    "CPU seconds: a node's rounds and the judging of what it shares, task workers included, "
    "evaluations not."
)
PASSED: Final = "pass@1, greedy, mean of nodes"


def cost_figures(runs: Sequence[Run], arms: Sequence[str], title: str) -> Figures:
    """Yield held-out by CPU second, where it was noted, and by round."""
    mine = by_arm(runs)
    what = f"{title}: held-out questions"
    if all(run.cpu for run in runs):
        by_cpu = [curve(arm, mine[arm], cpu_at, mean_held_out) for arm in arms]
        yield (
            "held-out-by-cpu-second",
            lines(by_cpu, title=what, x="CPU seconds of a node", y=PASSED, note=f"{CPU} {BAND}"),
        )
    by_round = [curve(arm, mine[arm], lambda run: run.evaluated, mean_held_out) for arm in arms]
    yield "held-out-by-round", lines(by_round, title=what, x="round", y=PASSED, note=BAND)
