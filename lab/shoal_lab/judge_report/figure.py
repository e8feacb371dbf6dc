"""The judge's figure, as the paper's third: swarm against silo over rounds. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from shoal_base.visible import visible_name
from shoal_lab.figures import COLOURS, add_note, panels, save
from shoal_lab.judge_report.stats import ModelComparison
from shoal_wire.judge_messages import Mode

MAX_PANELS = 4  # more are too small to read
_COLOURS = {Mode.SWARM: COLOURS[1], Mode.SILO: COLOURS[2]}
_DASHES = {Mode.SWARM: "-", Mode.SILO: "--"}
_MARKERS = {Mode.SWARM: "o", Mode.SILO: "s"}


def draw(folder: Path, comparisons: Sequence[ModelComparison], *, note: str) -> list[Path]:
    """Write judge.png and judge.svg, a panel for each of at most MAX_PANELS models."""

    def figures() -> Iterator[tuple[str, Figure]]:
        yield "judge", _drawn(comparisons[:MAX_PANELS], note)

    paths = save(folder, figures())
    return [*paths, *(path.with_suffix(".svg") for path in paths)]


def _drawn(shown: Sequence[ModelComparison], note: str) -> Figure:
    columns = min(2, len(shown))
    rows = -(-len(shown) // columns)
    figure = Figure(figsize=(6.4 * columns, 3.8 * rows + 0.6), layout="constrained")
    for ax, comparison in zip(
        panels(figure, len(shown), columns, sharex=False), shown, strict=True
    ):
        _panel(ax, comparison)
    figure.suptitle("Judged from outside: swarm against silo", fontsize=10)
    add_note(figure, f"{_explained(shown)} {note}", 125 * columns)
    return figure


def _explained(shown: Sequence[ModelComparison]) -> str:
    widths = sorted({comparison.window_rounds for comparison in shown})
    wide = " or ".join(map(str, widths))
    return (
        "Lines: mean over swarms, and in each over its peers, of a peer's mean score in a window "
        f"of {wide} rounds; bands: ± 1 standard error over swarms, which one swarm has none of."
    )


def _of(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _panel(ax: Any, comparison: ModelComparison) -> None:
    for mode in Mode:
        windows = [window for window in comparison.windows if mode in window.arms]
        if not windows:
            continue
        x = [(window.first + window.last) / 2 for window in windows]
        mean = [window.arms[mode].mean for window in windows]
        error = [window.arms[mode].error or 0.0 for window in windows]
        total = comparison.total[mode]
        low = [max(0.0, m - e) for m, e in zip(mean, error, strict=True)]
        high = [min(1.0, m + e) for m, e in zip(mean, error, strict=True)]
        ax.fill_between(x, low, high, color=_COLOURS[mode], alpha=0.15, lw=0)
        label = (
            f"{mode} ({_of(total.swarms, 'swarm')}, {_of(total.peers, 'peer')}, "
            f"{total.answers} answers)"
        )
        ax.plot(x, mean, _MARKERS[mode], color=_COLOURS[mode], ls=_DASHES[mode], ms=3, label=label)
    # A peer chose the name.
    ax.set_title(visible_name(comparison.model), fontsize=9, parse_math=False)
    ax.set_xlabel("round")
    ax.set_ylabel("pass@1, the judge's score")
    ax.set_xlim(0, comparison.windows[-1].last + 1)
    ax.set_ylim(0, 1)
    ax.tick_params(labelleft=True)
    ax.legend(loc="best", fontsize=8)
