"""The figures of every preset, each as PNG and SVG. Needs matplotlib: imported only to draw."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from matplotlib.figure import Figure

from shoal_lab.experiment.reading.measures import by_arm, cpu_at, heldout_area, over
from shoal_lab.experiment.reading.results import Run, mean_over_nodes, moving_average
from shoal_lab.figures import COLOURS, DASHES, add_note
from shoal_lab.significance import spread

OfRun = Callable[[Run], Sequence[float]]
"""Returns one series of a run."""

CPU: Final = (
    "CPU seconds: a node's rounds and the judging of what it shares, task workers included, "
    "evaluations not."
)
BAND: Final = "Mean over seeds; band: its 95 % interval (one seed has none)."
PASSED: Final = "pass@1, greedy, mean of nodes"
MOST_LINES: Final = 12
"""Arms beyond which lines cannot be told apart: then only bars are drawn."""
_NOTE_CHARS: Final = 124


@dataclass(frozen=True, slots=True)
class Curve:
    """One line, and its band where there is one."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    half: Sequence[float] = ()


def figures_of(runs: Sequence[Run], title: str) -> Iterator[tuple[str, Figure]]:
    """Yield held-out by CPU second, where it was noted, by round, and its area; what was planted.

    The runs are at least one, and each arm's have evaluations after the same rounds.
    """
    arms = by_arm(runs)
    what = f"{title}: held-out questions"
    if len(arms) <= MOST_LINES and all(run.cpu for run in runs):
        by_cpu = [_curve(name, mine, cpu_at, _held_out) for name, mine in arms.items()]
        note = f"{CPU} {BAND}"
        yield (
            "held-out-by-cpu-second",
            lines(by_cpu, title=what, x="CPU seconds of a node", y=PASSED, note=note),
        )
    if len(arms) <= MOST_LINES:
        by_round = [
            _curve(name, mine, lambda run: run.evaluated, _held_out) for name, mine in arms.items()
        ]
        yield "held-out-by-round", lines(by_round, title=what, x="round", y=PASSED, note=BAND)
    yield "held-out-area", _areas(arms.items(), what)
    planted = [
        _planted(name, said)
        for name, mine in arms.items()
        if (said := [run.planted for run in mine if run.planted])
    ]
    if planted:
        yield (
            "planted",
            lines(
                planted,
                title="What attackers planted, in honest nodes' completions",
                x="round",
                y="honest completions that hold it, %",
                note="Share of the completions that honest nodes shared in a round, mean of nodes "
                "and seeds, moving average over a tenth of the rounds.",
            ),
        )


def lines(curves: Sequence[Curve], *, title: str, x: str, y: str, note: str) -> Figure:
    """Return a figure of lines, each in its colour and dashes."""
    figure, ax = _axes(title, note)
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


def _areas(arms: Any, title: str) -> Figure:
    """Return a bar of the area by round for each arm, with its interval."""
    found = [(name, over(mine, heldout_area)) for name, mine in arms]
    note = "Area by round; whiskers: its 95 % interval over seeds (none with one)."
    figure, ax = _axes(title, note, height=1.3 + 0.28 * len(found))
    for place, (_, one) in enumerate(found):
        ax.barh(place, one.mean, xerr=one.half, height=0.7, color=COLOURS[place % 8], alpha=0.7)
    ax.set_yticks(range(len(found)), [name for name, _ in found], fontsize=7)
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")
    if any(one.mean for _, one in found):  # else no scale can be chosen
        ax.set_xlim(left=0)
    ax.set_xlabel("held-out pass@1, mean over the rounds")
    return figure


def _axes(title: str, note: str, *, height: float = 4.2) -> tuple[Figure, Any]:
    figure = Figure(figsize=(6.4, height), layout="constrained")
    figure.suptitle(title, fontsize=10)
    add_note(figure, note, _NOTE_CHARS)
    return figure, figure.subplots()


def _held_out(run: Run) -> Sequence[float]:
    return mean_over_nodes(run.held_out)


def _curve(label: str, runs: Sequence[Run], places: OfRun, values: OfRun) -> Curve:
    """Return an arm's line and band over its seeds, of both series of each run."""
    x = [statistics.fmean(column) for column in zip(*map(places, runs), strict=True)]
    found = [spread(column) for column in zip(*map(values, runs), strict=True)]
    return Curve(label, x, [one.mean for one in found], [one.half or 0.0 for one in found])


def _planted(label: str, said: Sequence[Sequence[float]]) -> Curve:
    mean = mean_over_nodes(said)
    smooth = [100 * one for one in moving_average(mean, max(1, len(mean) // 10))]
    return Curve(f"{label} ({mean[-1]:.1%} at the end)", range(1, len(smooth) + 1), smooth)
