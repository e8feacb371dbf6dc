"""A run's curves, from its `metrics.jsonl`: read as it grows, thinned for a screen.

    metrics.jsonl ──new whole lines──▶ columns ──least and greatest of a stretch──▶ ≤ 2,000 points

The file is the trainer's, which bounds it: it may be cut, thinned or replaced at any time, and is
read anew then.
"""

from __future__ import annotations

import json
import math
import os
from array import array
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from shoal.view.measured import within_of
from shoal_base.visible import visible_name

MAX_POINTS: Final = 2_000  # about the pixels of a wide chart
MAX_FAMILIES: Final = 64  # a guess: more than a swarm has
WINDOW: Final = 20
"""Rounds in a curve's mean, as in the figures that a node gives."""
_READ_BYTES: Final = 4 << 20  # a guess: memory of a reading thread
_MAX_LINE_BYTES: Final = 1 << 20  # a round has some 1.6 KB
SERIES: Final[Mapping[str, str]] = {
    "reward_local": "own",
    "reward_external": "others",
}
"""Metric of a round to the curve that shows it."""


class _Mean:
    """A mean over the latest values."""

    def __init__(self) -> None:
        self._latest: deque[float] = deque(maxlen=WINDOW)

    def add(self, value: float) -> float:
        """Take a value; return the mean with it, NaN before there is any."""
        if not math.isnan(value):
            self._latest.append(value)
        return sum(self._latest) / len(self._latest) if self._latest else math.nan

    @property
    def within(self) -> float:
        """Half of the mean's 95 % interval; NaN before there are two values."""
        found = within_of(self._latest)
        return math.nan if found is None else found


class History:
    """One run's curves. Its methods block: for a thread, one at a time."""

    def __init__(self, path: Path) -> None:
        """Read nothing yet."""
        self._path = path
        self._file: tuple[int, int] | None = None
        self._clear()

    def _clear(self) -> None:
        self._offset = 0
        self._pending = b""
        self._rounds = array("d")
        self._means = {name: _Mean() for name in SERIES.values()}
        self._columns = {
            column: array("d") for name in SERIES.values() for column in (name, f"{name}_mean")
        }
        self._columns["own_within"] = array("d")
        self._held_out_items = 0
        self._held_out_families = 0
        self._held_out: dict[str, list[tuple[float, float]]] = {}
        self.version = 0
        """Grows with every row."""

    @property
    def num_rows(self) -> int:
        """Rounds that are held."""
        return len(self._rounds)

    def refresh(self) -> bool:
        """Read what is new; whether there was anything. A file that is not there has no rows."""
        before = (self._file, self.version)
        try:
            with self._path.open("rb") as file:
                self._follow(os.fstat(file.fileno()))
                file.seek(self._offset)
                while data := file.read(_READ_BYTES):
                    self._offset += len(data)
                    self._take(data)
        except OSError:
            return False
        return before != (self._file, self.version)

    def _follow(self, found: os.stat_result) -> None:
        """Start over where the file is another one, or shorter than what was read of it."""
        which = (found.st_dev, found.st_ino)
        if which != self._file or found.st_size < self._offset:
            version = self.version
            self._clear()
            self._file, self.version = which, version + 1

    def _take(self, data: bytes) -> None:
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            try:
                self._add(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
                continue  # a line that another version, or nobody, can read
        if len(self._pending) > _MAX_LINE_BYTES:
            self._pending = b""

    def _add(self, event: Mapping[str, Any]) -> None:
        kind = event.get("event", "round")
        if kind == "held_out":
            self._add_held_out(event)
        elif kind == "round":
            self._rounds.append(float(event["round"]))
            for metric, name in SERIES.items():
                value = _number(event.get(metric))
                self._columns[name].append(value)
                self._columns[f"{name}_mean"].append(self._means[name].add(value))
            self._columns["own_within"].append(self._means["own"].within)
            self.version += 1

    def _add_held_out(self, event: Mapping[str, Any]) -> None:
        at, families = float(event["round"]), 0
        for key, value in event.items():
            name = visible_name(key.removeprefix("held_out/"))
            if not key.startswith("held_out/") or name in ("num_items", "seconds", "reward"):
                continue
            number = _number(value)
            if math.isnan(number):
                continue
            families += name != "pass@1"
            if name not in self._held_out and len(self._held_out) >= MAX_FAMILIES:
                continue
            marks = self._held_out.setdefault(name, [])
            marks.append((at, number))
            del marks[:-MAX_POINTS]
        items = _number(event.get("held_out/num_items"))
        self._held_out_items = 0 if math.isnan(items) else int(items)
        self._held_out_families = families
        self.version += 1

    def shown(self) -> dict[str, Any]:
        """Return the curves as JSON values, each of at most `MAX_POINTS`.

        `x` are rounds; a curve has None where it has no value. `held_out` is pass@1 and each
        family's, as pairs of round and share; `held_out_items` and `held_out_of_family` say of how
        many questions, 0 where that is not known.
        """
        columns = self._columns
        places = _stretches(len(self._rounds), MAX_POINTS)
        shown: dict[str, list[float | None]] = {name: [] for name in columns}
        x: list[float] = []
        for first, last in places:
            # Two points a stretch: where it is one round alone, only that.
            ends = (first, last - 1) if last - first > 1 else (first,)
            x += [self._rounds[place] for place in ends]
            for name, column in columns.items():
                shown[name] += _extremes(column[first:last])[: len(ends)]
        names = sorted(self._held_out)
        return {
            "rows": len(self._rounds),
            "x": x,
            "series": shown,
            "held_out": {name: list(self._held_out[name]) for name in names},
            "held_out_items": self._held_out_items,
            "held_out_of_family": self._of_family(),
        }

    def _of_family(self) -> int:
        """Return the held-out questions of each family; 0 where that is not known."""
        each, rest = divmod(self._held_out_items, max(1, self._held_out_families))
        return 0 if rest else each


def _stretches(num: int, max_points: int) -> list[tuple[int, int]]:
    """Cut `num` rows into stretches of which each becomes at most two points."""
    if num <= max_points:
        return [(place, place + 1) for place in range(num)]
    parts = max_points // 2
    return [(part * num // parts, (part + 1) * num // parts) for part in range(parts)]


def _extremes(values: array[float]) -> list[float | None]:
    """Return the least and the greatest value in the order in which they came."""
    known = [value for value in values if value == value]
    if not known:
        return [None, None]
    least, greatest = min(known), max(known)
    pair = [least, greatest]
    if known.index(greatest) < known.index(least):
        pair.reverse()
    return [round(value, 5) for value in pair]


def _number(value: Any) -> float:
    """Return a value as a number, NaN where it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan
    number = float(value)
    return number if math.isfinite(number) else math.nan
