"""A run's reward by round as SVG, for a notebook's cell. Pure.

rounds ─▶ at most 120 stretches ─▶ mean own reward of each ─▶ a line
evaluations ─▶ a dot each
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, Final

WIDTH: Final = 560
HEIGHT: Final = 220
_LEFT: Final = 40
_BOTTOM: Final = 30
_MARGIN: Final = 10
MOST_POINTS: Final = 120
"""Points of the line: more are closer together than a screen's pixels show."""
_OWN: Final = "reward_local"
_HELD_OUT: Final = "held_out/pass@1"

_MOST: Final = 1e15
"""Largest absolute value that is drawn. A larger one, or NaN, is neither a round nor a reward."""

Point = tuple[float, float]


def curve_svg(events: Iterable[Mapping[str, Any]]) -> str:
    """Return the picture of the lines of a `metrics.jsonl`; without a round, its empty frame."""
    own: list[Point] = []
    held_out: list[Point] = []
    last = 0.0
    for event in events:
        if event.get("event") == "round":
            last = _number(event.get("round")) or last
            if (reward := _number(event.get(_OWN))) is not None:
                own.append((last, reward))
        if (passed := _number(event.get(_HELD_OUT))) is not None:
            held_out.append((_number(event.get("round")) or last, passed))
    most = max([1.0, *(x for x, _ in (*own, *held_out))])
    line = " ".join(f"{_x(x, most):.1f},{_y(y):.1f}" for x, y in _stretches(own))
    dots = "".join(
        f'<circle cx="{_x(x, most):.1f}" cy="{_y(y):.1f}" r="3" fill="#d95f02"/>'
        for x, y in held_out[-MOST_POINTS:]
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="reward by round" '
        'font-family="sans-serif" font-size="11" fill="currentColor">'
        f"{_axes(most)}"
        f'<polyline points="{line}" fill="none" stroke="#1b7fb5" stroke-width="2"/>{dots}'
        f'<text x="{_LEFT + 8}" y="{_MARGIN + 8}">reward of own answers (line)'
        f"{', held-out questions passed (dots)' if held_out else ''}</text></svg>"
    )


def _stretches(points: Sequence[Point]) -> list[Point]:
    """Return the means of at most so many stretches of equal length."""
    size = max(1, math.ceil(len(points) / MOST_POINTS))
    parts = [points[at : at + size] for at in range(0, len(points), size)]
    return [(fmean(x for x, _ in part), fmean(y for _, y in part)) for part in parts]


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


def _number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) <= _MOST else None  # type: ignore[arg-type]
