"""The figures of every preset, each as PNG and SVG. Needs matplotlib: imported only to draw."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from matplotlib.figure import Figure

from shoal_lab.experiment.report.measures import by_arm, cpu_at
from shoal_lab.experiment.report.results import JobRun, mean_over_nodes
from shoal_lab.figures import COLOURS, DASHES, add_note
from shoal_lab.significance import spread

OfRun = Callable[[JobRun], Sequence[float]]
"""Returns one series of a run."""

CPU: Final = (
    "CPU seconds: a node's rounds and the judging of what it shares, task workers included, "
    "evaluations not."
)
BAND: Final = "Mean over seeds; band: its 95 % interval (one seed has none)."
PASSED: Final = "pass@1, greedy, mean of nodes"
MOST_LINES: Final = 12
"""Most arms whose lines are distinguishable; with more nothing is drawn."""
_NOTE_CHARS: Final = 124


@dataclass(frozen=True, slots=True)
class Curve:
    """One line, and its band where there is one."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    half: Sequence[float] = ()


def figures_of(runs: Sequence[JobRun], title: str) -> Iterator[tuple[str, Figure]]:
    """Yield held-out answers by CPU second, where that was recorded, and by round.

    The runs are at least one, and each arm's have evaluations after the same rounds.
    """
    arms = by_arm(runs)
    if len(arms) > MOST_LINES:
        return
    ways: list[tuple[str, str, OfRun, str]] = []
    if all(run.cpu for run in runs):
        ways.append(("cpu-second", "CPU seconds of a node", cpu_at, f"{CPU} {BAND}"))
    ways.append(("round", "round", lambda run: run.evaluated, BAND))
    for name, x, places, note in ways:
        curves = [_curve(arm, mine, places, _held_out) for arm, mine in arms.items()]
        what = f"{title}: held-out questions"
        yield f"held-out-by-{name}", lines(curves, title=what, x=x, y=PASSED, note=note)


def lines(curves: Sequence[Curve], *, title: str, x: str, y: str, note: str) -> Figure:
    """Return a figure of lines, each in its colour and dashes."""
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    figure.suptitle(title, fontsize=10)
    add_note(figure, note, _NOTE_CHARS)
    ax = figure.subplots()
    for number, one in enumerate(curves):
        style = {"color": COLOURS[number % 8], "ls": DASHES[(number // 8 + number) % 8]}
        if one.half:
            low, high = (
                [value + sign * half for value, half in zip(one.y, one.half, strict=True)]
                for sign in (-1, 1)
            )
            ax.fill_between(one.x, low, high, color=style["color"], alpha=0.12, lw=0)
        ax.plot(one.x, one.y, lw=1.4, label=one.label, **style)
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.set_xlim(left=0)
    ax.set_ylim(bottom=0)
    ax.legend(fontsize=8 if len(curves) < 6 else 7)
    return figure


def _held_out(run: JobRun) -> Sequence[float]:
    return mean_over_nodes(run.held_out)


def _curve(label: str, runs: Sequence[JobRun], places: OfRun, values: OfRun) -> Curve:
    """Return an arm's line and band over its seeds, of both series of each run."""
    x = [statistics.fmean(column) for column in zip(*map(places, runs), strict=True)]
    found = [spread(column) for column in zip(*map(values, runs), strict=True)]
    return Curve(label, x, [one.mean for one in found], [one.half or 0.0 for one in found])
