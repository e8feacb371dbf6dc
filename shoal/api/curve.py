"""A run's held-out questions and own reward by round as SVG, for a notebook cell. Pure.

the points of the page's curve ─▶ evaluations ─▶ a line with a dot each
                              └─▶ at most 140 of own reward, the latest included ─▶ a thin line
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from shoal_ipc.answers.node import WINDOW

WIDTH: Final = 560
HEIGHT: Final = 220
_MARGIN: Final = 10
_LEFT: Final = 4 * _MARGIN
_BOTTOM: Final = 3 * _MARGIN
MOST_POINTS: Final = WIDTH // 4
"""Points of the line; more would be closer than a screen's pixels."""


def curve_svg(columns: Sequence[Sequence[float | None]]) -> str:
    """Return the chart of a run's points (`RunReader.curves`); an empty frame without points."""
    rounds, _, _, _, own, held_out, *_ = columns
    most = max([1.0, *(one for one in rounds if one)])
    known = [(x, y) for x, y in zip(rounds, own, strict=True) if y is not None]
    step = max(1, math.ceil(len(known) / MOST_POINTS))
    line = " ".join(f"{_x(x or 0, most):.1f},{_y(y):.1f}" for x, y in known[::-step][::-1])
    passed = [(x or 0, y) for x, y in zip(rounds, held_out, strict=True) if y is not None]
    marks = [(_x(x, most), _y(y)) for x, y in passed[-MOST_POINTS:]]
    path = " L".join(f"{x:.1f} {y:.1f}" for x, y in marks)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#d95f02"/>' for x, y in marks)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img" '
        'aria-label="held-out questions and own reward by round" '
        'font-family="sans-serif" font-size="11" fill="currentColor">'
        f"{_axes(most)}"
        f'<polyline points="{line}" fill="none" stroke="#1b7fb5"/>'
        f'<path d="{path and f"M{path}"}" fill="none" stroke="#d95f02" stroke-width="2"/>{dots}'
        f'<text x="{_LEFT + 8}" y="{_MARGIN + 8}">'
        f"{'held-out questions passed (dots), ' if passed else ''}"
        f"own reward, mean of {WINDOW} rounds (line)</text></svg>"
    )


def _axes(most: float) -> str:
    """Return lines at reward 0, ½ and 1, and the number of the last round."""
    rows = "".join(
        f'<line x1="{_LEFT}" x2="{WIDTH - _MARGIN}" y1="{_y(y):.1f}" y2="{_y(y):.1f}" '
        f'stroke="currentColor" stroke-opacity="0.25"/>'
        f'<text x="{_LEFT - 6}" y="{_y(y) + 4:.1f}" text-anchor="end">{y:g}</text>'
        for y in (0.0, 0.5, 1.0)
    )
    low = HEIGHT - _MARGIN
    return f'{rows}<text x="{WIDTH - _MARGIN}" y="{low}" text-anchor="end">round {most:,.0f}</text>'


def _x(value: float, most: float) -> float:
    return _LEFT + max(0.0, value / most) * (WIDTH - _LEFT - _MARGIN)


def _y(value: float) -> float:
    return HEIGHT - _BOTTOM - min(1.0, max(0.0, value)) * (HEIGHT - _BOTTOM - 2 * _MARGIN)
