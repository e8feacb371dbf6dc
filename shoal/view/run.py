"""A run as its `metrics.jsonl` has it: how it began, how it stands, and its curves. Blocks.

    metrics.jsonl ──new whole lines──▶ columns ─┬─▶ `RunFile`
                                                └─least and greatest of a stretch─▶ ≤ 2,000 points

The file is the trainer's, which bounds it: it may be cut, thinned or replaced at any time, and is
read anew then.
"""

from __future__ import annotations

import json
import math
import os
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from shoal.view.measured import is_it_learning, within_of
from shoal_base.visible import visible_name

METRICS_FILE: Final = "metrics.jsonl"
MAX_POINTS: Final = 2_000  # about the pixels of a wide chart
MAX_FAMILIES: Final = 64  # a guess: more than a swarm has
WINDOW: Final = 20
"""Rounds in a mean of own rewards, as the trainer's own."""
_READ_BYTES: Final = 4 << 20  # a guess: memory of a reading thread
_MAX_LINE_BYTES: Final = 1 << 20  # a round has some 1.6 KB
_PASSED: Final = "pass@1"
SERIES: Final[Mapping[str, str]] = {"reward_local": "own", "reward_external": "others"}
"""Metric of a round to the curve that shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """Facts of a run, read from its file."""

    round: int = 0
    """The latest on disk; 0 before the first."""
    reward_own: float | None = None
    """Mean own reward of the latest rounds."""
    reward_own_within: float | None = None
    """Half of that mean's 95 % interval."""
    held_out: float | None = None
    """Share of held-out questions that passed, in the latest evaluation."""
    held_out_start: float | None = None
    held_out_items: int = 0
    """Questions of the latest evaluation; 0 where that is not known."""
    answer: str = ""
    """Answer to "is it learning?" in a sentence; empty if too few rounds are known."""


def events(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the objects among some lines; what another program has written there is left out."""
    for line in lines:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            yield event


class RunReader:
    """Reads one run's file as it grows. Its methods block: for one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Read nothing yet."""
        self._path = path
        self._file: tuple[int, int] | None = None
        self.version = 0
        """Grows with every row."""
        self._clear()

    def _clear(self) -> None:
        self._offset, self._pending = 0, b""
        self._rounds = array("d")
        self._first: list[float] = []
        self._latest = {name: deque[float](maxlen=WINDOW) for name in SERIES.values()}
        self._columns = {
            column: array("d") for name in SERIES.values() for column in (name, f"{name}_mean")
        }
        self._columns["own_within"] = array("d")
        self._held_out: dict[str, list[tuple[float, float]]] = {}
        self._num_items = self._num_families = 0
        """Questions and families of the latest evaluation; 0 where that is not known."""

    def refresh(self) -> None:
        """Read what is new."""
        try:
            with self._path.open("rb") as file:
                self._follow(os.fstat(file.fileno()))
                file.seek(self._offset)
                while data := file.read(_READ_BYTES):
                    self._offset += len(data)
                    self._take(data)
        except OSError:
            if self._file is not None:
                self._file, self.version = None, self.version + 1
                self._clear()

    def _follow(self, found: os.stat_result) -> None:
        """Start over where the file is another one, or shorter than what was read of it."""
        which = (found.st_dev, found.st_ino)
        if which != self._file or found.st_size < self._offset:
            self._file, self.version = which, self.version + 1
            self._clear()

    def _take(self, data: bytes) -> None:
        *lines, self._pending = (self._pending + data).split(b"\n")
        for event in events(lines):
            at, kind = _number(event.get("round")), event.get("event", "round")
            if not math.isnan(at) and kind in ("round", "held_out"):
                (self._add if kind == "round" else self._add_held_out)(at, event)
                self.version += 1
        if len(self._pending) > _MAX_LINE_BYTES:
            self._pending = b""

    def _add(self, at: float, event: Mapping[str, Any]) -> None:
        self._rounds.append(at)
        for metric, name in SERIES.items():
            value, latest = _number(event.get(metric)), self._latest[name]
            if not math.isnan(value):
                latest.append(value)
                if name == "own" and len(self._first) < WINDOW:
                    self._first.append(value)
            self._columns[name].append(value)
            self._columns[f"{name}_mean"].append(fmean(latest) if latest else math.nan)
        within = within_of(self._latest["own"])
        self._columns["own_within"].append(math.nan if within is None else within)

    def _add_held_out(self, at: float, event: Mapping[str, Any]) -> None:
        items = _number(event.get("held_out/num_items"))
        self._num_items, self._num_families = 0 if math.isnan(items) else int(items), 0
        for key, value in event.items():
            name, number = visible_name(key.removeprefix("held_out/")), _number(value)
            is_figure = name in ("num_items", "seconds", "reward") or math.isnan(number)
            if is_figure or not key.startswith("held_out/"):
                continue
            self._num_families += name != _PASSED
            if name in self._held_out or len(self._held_out) < MAX_FAMILIES:
                marks = self._held_out.setdefault(name, [])
                marks.append((at, number))
                del marks[1 : len(marks) - MAX_POINTS + 1]  # how it began stays

    def facts(self) -> RunFile:
        """Return how the run began and stands."""
        latest, passed = self._latest["own"], [one for _, one in self._held_out.get(_PASSED, ())]
        number = int(self._rounds[-1]) if self._rounds else 0
        # A file that was cut no longer has the run's beginning.
        is_whole = bool(self._rounds) and self._rounds[0] <= 1
        return RunFile(
            round=number,
            reward_own=fmean(latest) if latest else None,
            reward_own_within=within_of(latest),
            held_out=passed[-1] if passed else None,
            held_out_start=passed[0] if passed else None,
            held_out_items=self._num_items,
            answer=is_it_learning(
                self._first, latest, number, held_out=passed, num_held_out=self._num_items
            )
            if is_whole
            else "",
        )

    def curves(self) -> dict[str, Any]:
        """Return the curves as JSON values, each of at most `MAX_POINTS`.

        `x` are rounds; a curve has None where it has no value. `held_out` is pass@1 and each
        family's, as pairs of round and share; `held_out_items` and `held_out_of_family` say of how
        many questions, 0 where that is not known.
        """
        shown: dict[str, list[float | None]] = {name: [] for name in self._columns}
        x: list[float] = []
        for first, last in _stretches(len(self._rounds), MAX_POINTS):
            # Two points a stretch: where it is one round alone, only that.
            ends = (first, last - 1) if last - first > 1 else (first,)
            x += [self._rounds[place] for place in ends]
            for name, column in self._columns.items():
                shown[name] += _extremes(column[first:last])[: len(ends)]
        each, rest = divmod(self._num_items, max(1, self._num_families))
        return {
            "rows": len(self._rounds),
            "x": x,
            "series": shown,
            "held_out": {name: list(marks) for name, marks in sorted(self._held_out.items())},
            "held_out_items": self._num_items,
            "held_out_of_family": 0 if rest else each,
        }


def _stretches(num: int, max_points: int) -> list[tuple[int, int]]:
    """Cut `num` rows into stretches of which each becomes at most two points."""
    if num <= max_points:
        return [(place, place + 1) for place in range(num)]
    parts = max_points // 2
    return [(part * num // parts, (part + 1) * num // parts) for part in range(parts)]


def _extremes(values: array[float]) -> list[float | None]:
    """Return the least and the greatest value in the order in which they came."""
    known = [(value, place) for place, value in enumerate(values) if value == value]
    if not known:
        return [None, None]
    pair = sorted((min(known), max(known)), key=lambda one: one[1])
    return [round(value, 5) for value, _ in pair]


def _number(value: Any) -> float:
    """Return a value as a number, NaN where it is none."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        return float(value) if is_number and math.isfinite(value) else math.nan
    except OverflowError:  # an integer beyond every float
        return math.nan
