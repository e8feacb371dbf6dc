"""The judge's figure, as the paper's third: swarm against silo over rounds. Needs matplotlib.

Colours are Okabe and Ito's, which most colour-blind people tell apart; lines differ in dashes too.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from shoal.judge_report.stats import ALPHA, SMOOTH, Comparison
from shoal_wire.judge_messages import Mode

MAX_PANELS = 4
_COLOURS = {Mode.SWARM: "#0072B2", Mode.SILO: "#D55E00"}
_DASHES = {Mode.SWARM: "-", Mode.SILO: "--"}
_MARKERS = {Mode.SWARM: "o", Mode.SILO: "s"}
_REGIONS: dict[Mode, Any] = {
    Mode.SWARM: {"color": "#009E73", "alpha": 0.15},
    Mode.SILO: {"facecolor": "none", "edgecolor": "#999999", "hatch": "///", "alpha": 0.6},
}
_STYLE: Any = {
    "font.size": 9.0,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "figure.dpi": 160,
    "svg.hashsalt": "shoal",
}


def draw(folder: Path, comparisons: Sequence[Comparison], *, note: str) -> list[Path]:
    """Write judge.png and judge.svg, a panel for each of at most MAX_PANELS models."""
    folder.mkdir(parents=True, exist_ok=True)
    shown = comparisons[:MAX_PANELS]
    with mpl.rc_context(_STYLE):
        columns = min(2, len(shown))
        rows = -(-len(shown) // columns)
        figure = Figure(figsize=(6.4 * columns, 3.8 * rows + 0.6), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, sharey=True)
        for place, comparison in enumerate(shown):
            _panel(axes[place // columns][place % columns], comparison)
        for place in range(len(shown), rows * columns):
            axes[place // columns][place % columns].set_visible(False)
        figure.suptitle("Judged from outside: swarm against silo", fontsize=10)
        figure.supxlabel(
            "\n".join(textwrap.wrap(f"{_explained(shown)} {note}", 125 * columns)),
            fontsize=6.5,
            color="#444444",
            x=0.01,
            ha="left",
        )
        paths = [folder / "judge.png", folder / "judge.svg"]
        for path in paths:
            metadata = {"Date": None} if path.suffix == ".svg" else None
            figure.savefig(path, metadata=metadata)
    return paths


def _explained(shown: Sequence[Comparison]) -> str:
    widths = sorted({comparison.window_rounds for comparison in shown})
    wide = " or ".join(map(str, widths))
    return (
        f"Marks: mean over peers of each one's mean score in a window of {wide} rounds. Lines: the "
        f"same over the last {SMOOTH} windows; bands: ± 1 standard error over peers. Shaded: the "
        f"lines' difference has p < {ALPHA:g} (permutation of peers, adjusted over all windows by "
        "Benjamini and Hochberg)."
    )


def _panel(ax: Any, comparison: Comparison) -> None:
    for first, last, mode in comparison.regions:
        ax.axvspan(first - 0.5, last + 0.5, lw=0, **_REGIONS[mode])
    handles = []
    for mode in Mode:
        windows = [window for window in comparison.windows if mode in window.arms]
        if not windows:
            continue
        x = [(window.first + window.last) / 2 for window in windows]
        mean = [window.arms[mode].mean for window in windows]
        line = [window.recent[mode].mean for window in windows]
        error = [window.recent[mode].error for window in windows]
        colour, total = _COLOURS[mode], comparison.total[mode]
        ax.plot(x, mean, _MARKERS[mode], ms=2.5, color=colour, alpha=0.45, lw=0)
        low = [max(0.0, m - e) for m, e in zip(line, error, strict=True)]
        high = [min(1.0, m + e) for m, e in zip(line, error, strict=True)]
        ax.fill_between(x, low, high, color=colour, alpha=0.15, lw=0)
        label = f"{mode} ({total.peers} peers, {total.answers} answers)"
        handles += ax.plot(x, line, color=colour, ls=_DASHES[mode], lw=1.8, label=label)
    for mode in dict.fromkeys(mode for _, _, mode in comparison.regions):
        label = f"{mode} better, adjusted p < {ALPHA:g}"
        handles.append(Patch(label=label, **_REGIONS[mode]))
    ax.set_title(comparison.model, fontsize=9, parse_math=False)  # a peer chose the name
    ax.set_xlabel("round")
    ax.set_ylabel("pass@1, the judge's score")
    ax.set_xlim(0, comparison.windows[-1].last + 1)
    ax.set_ylim(0, 1)
    ax.tick_params(labelleft=True)
    ax.legend(handles=handles, loc="best", fontsize=8)
