"""Draws figures: one style, each as PNG and SVG, the same bytes from the same numbers.

Colours are Okabe and Ito's, which most colour-blind people tell apart; lines differ in dashes too,
for print without colour. Needs matplotlib, so that it is imported only where something is drawn.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999")
DASHES: tuple[Any, ...] = ("-", "--", "-", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
STYLE: Any = {
    "font.size": 9.0,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "figure.dpi": 160,
    "svg.hashsalt": "shoal",
}


def save(folder: Path, figures: Iterable[tuple[str, Figure]]) -> list[Path]:
    """Draw figures and write each below `folder` under its name; return the PNG files.

    The style applies to figures made while this iterates, so pass a generator.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    with mpl.rc_context(STYLE):
        for name, figure in figures:
            path = folder / f"{name}.png"
            figure.savefig(path)
            figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
            paths.append(path)
    return paths


def panels(figure: Figure, count: int, columns: int, *, sharex: bool) -> list[Any]:
    """Return `count` axes in rows of `columns`, all with one y axis; unused cells stay empty."""
    rows = -(-count // columns)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=True).flatten()
    for unused in axes[count:]:
        unused.set_visible(False)
    return list(axes[:count])


def add_note(figure: Figure, text: str, width: int) -> None:
    """Write a caption beneath a figure, in lines of `width` characters."""
    wrapped = "\n".join(textwrap.wrap(text, width))
    figure.supxlabel(wrapped, fontsize=6.5, color="#444444", x=0.01, ha="left")
