"""A run, read from its `metrics.jsonl`: first and latest values, and curves. Blocks.

    metrics.jsonl ──new whole lines──▶ columns ─┬─▶ `RunFile`
                                                └─every n-th round─▶ ≤ 2,000 points

The trainer writes the file and limits its size. It may be cut, thinned or replaced at any time, and
is then read from its start.
"""

from __future__ import annotations

import json
import math
import os
import sys
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from shoal.view.measured import ci95_halfwidth, is_reward_rising
from shoal_base.files import SMALL_FILE_BYTES
from shoal_base.visible import visible_name
from shoal_ipc.answers.held_out import Evaluation, evaluation
from shoal_ipc.answers.node import WINDOW
from shoal_p2p.rollouts.network_shares import MAX_TRACKED

MAX_POINTS: Final = 2_000  # about the pixels of a wide chart
MAX_FAMILY_POINTS: Final = 200  # about the pixels of a small one
_READ_BYTES: Final = 4 << 20  # a guess: memory of a reading thread
_PASSED: Final = "pass@1"
_OWN: Final = "reward_local"
_EXTERNAL: Final = "reward_external"
_SECONDS: Final = "step_time"
_TOKENS: Final = "tokens_generated"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """Facts of a run, read from its file."""

    round: int = 0
    """The latest on disk; 0 before the first."""
    reward_local: float | None = None
    """Mean own reward of the latest rounds."""
    reward_local_ci95: float | None = None
    """Half of that mean's 95 % interval."""
    held_out: Evaluation | None = None
    """The latest held-out evaluation."""
    held_out_initial: Evaluation | None = None
    """The first one on file with as many questions."""
    seconds_per_round: float | None = None
    """Mean wall time of the latest rounds."""
    tokens_per_round: float | None = None
    """Mean number of tokens generated in them."""
    answer: str = ""
    """The answer of own reward to "is it learning?", in a sentence; empty if too few rounds are
    known."""


def events(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the objects in some lines; other content is skipped."""
    for line in lines:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            yield event


class RunReader:
    """Follows the file of one run. Its methods block; one thread at a time may call them."""

    def __init__(self, path: Path) -> None:
        """Read nothing yet."""
        self._path = path
        self._file: tuple[int, int] | None = None
        self.version = 0
        """Grows with every row."""
        self._adds = {
            "round": self._add,
            "held_out": self._add_held_out,
            "tasks": self._add_tasks,
        }
        self._clear()

    def _clear(self) -> None:
        self._offset, self._pending = 0, b""
        self._rounds = array("d")
        self._first: list[float] = []
        self._since = 0.0
        """Round at which the run's tasks last changed: means and shares before are of others."""
        self._latest = {name: deque[float](maxlen=WINDOW) for name in (_OWN, _EXTERNAL)}
        self._means = {name: array("d") for name in (_OWN, _EXTERNAL)}
        self._within = array("d")
        self._passed: list[Evaluation] = []
        self._families: dict[str, list[tuple[float, float]]] = {}
        """Round and share of each family's held-out questions that passed."""
        self._pace = {name: deque[float](maxlen=WINDOW) for name in (_SECONDS, _TOKENS)}
        self._num_items = self._num_families = 0
        """Questions and families of the latest evaluation; 0 where that is not known."""

    def refresh(self) -> None:
        """Read new lines."""
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
        """Start over if the file was replaced, or is shorter than the position."""
        which = (found.st_dev, found.st_ino)
        if which != self._file or found.st_size < self._offset:
            self._file, self.version = which, self.version + 1
            self._clear()

    def _take(self, data: bytes) -> None:
        *lines, self._pending = (self._pending + data).split(b"\n")
        for event in events(lines):
            at, kind = _number(event.get("round")), event.get("event", "round")
            if not math.isnan(at) and kind in self._adds:
                self._adds[kind](at, event)
                self.version += 1
        if len(self._pending) > SMALL_FILE_BYTES:  # a round has some 1.6 KB
            self._pending = b""

    def _add_tasks(self, at: float, _event: Mapping[str, Any]) -> None:
        """Begin the means of own reward again: another mixture of tasks is not comparable."""
        self._since = at
        self._first.clear()
        self._latest[_OWN].clear()

    def _add(self, at: float, event: Mapping[str, Any]) -> None:
        self._rounds.append(at)
        for name, latest in self._latest.items():
            value = _number(event.get(name))
            if not math.isnan(value):
                latest.append(value)
                if name == _OWN and len(self._first) < WINDOW:
                    self._first.append(value)
            self._means[name].append(fmean(latest) if latest else math.nan)
        for name, recent in self._pace.items():
            if not math.isnan(value := _number(event.get(name))):
                recent.append(value)
        self._within.append(ci95_halfwidth(self._latest[_OWN]) or 0.0)

    def _add_held_out(self, at: float, event: Mapping[str, Any]) -> None:
        items = _number(event.get("held_out/num_items"))
        self._num_items, self._num_families = 0 if math.isnan(items) else int(items), 0
        for key, value in event.items():
            name, number = visible_name(key.removeprefix("held_out/")), _number(value)
            is_figure = name in ("num_items", "seconds", "reward") or math.isnan(number)
            if is_figure or not key.startswith("held_out/"):
                continue
            if name == _PASSED:
                self._passed.append(evaluation(int(at), number, self._num_items))
                del self._passed[1 : len(self._passed) - MAX_POINTS + 1]  # the first one stays
                continue
            self._num_families += 1
            if name in self._families or len(self._families) < MAX_TRACKED:
                shares = self._families.setdefault(name, [])
                shares.append((at, number))
                del shares[1 : len(shares) - MAX_FAMILY_POINTS + 1]  # the first one stays

    def facts(self) -> RunFile:
        """Return the first and latest values of the run."""
        latest = self._latest[_OWN]
        passed = [
            one
            for one in self._passed
            if one.num_items == self._num_items and one.round >= self._since
        ]
        number = int(self._rounds[-1]) if self._rounds else 0
        # A file that was cut no longer has the run's beginning.
        is_whole = bool(self._rounds) and self._rounds[0] <= 1
        return RunFile(
            round=number,
            reward_local=fmean(latest) if latest else None,
            reward_local_ci95=ci95_halfwidth(latest),
            held_out=passed[-1] if passed else None,
            held_out_initial=passed[0] if passed else None,
            seconds_per_round=fmean(self._pace[_SECONDS]) if self._pace[_SECONDS] else None,
            tokens_per_round=fmean(self._pace[_TOKENS]) if self._pace[_TOKENS] else None,
            answer=is_reward_rising(self._first, latest, number - int(self._since))
            if is_whole
            else "",
        )

    def curves(self) -> dict[str, Any]:
        """Return the curves as JSON values: at most `MAX_POINTS` rounds, the last, all evaluations.

        `points` are columns of equal length, None where there is no value: the round, own reward's
        upper and lower bound, external reward, own reward, held-out share, its lower and upper
        bound. `families` has each family's evaluations, round and share, of `family_items`
        questions, 0 where that is not known.
        """
        num = len(self._rounds)
        points: dict[float, list[float | None]] = {}
        step = max(1, math.ceil(num / MAX_POINTS))
        for index in (*range(0, num, step), *range(num)[-1:]):
            own, within = self._means[_OWN][index], self._within[index]
            shown = (own + within, max(0.0, own - within), self._means[_EXTERNAL][index], own)
            points[self._rounds[index]] = [*map(_shown, shown), None, None, None]
        for one in self._passed:
            points.setdefault(one.round, [None] * 7)[4:] = [one.pass_at_1, one.low, one.high]
        rows = sorted(points.items())
        each, rest = divmod(self._num_items, max(1, self._num_families))
        return {
            "rows": num,
            "points": [[at for at, _ in rows], *([row[n] for _, row in rows] for n in range(7))],
            "families": dict(sorted(self._families.items())),
            "family_items": 0 if rest else each,
        }


def _shown(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 5)


def _number(value: Any) -> float:
    """Return a value as a number, NaN where it is none that a round or a reward may have."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # The sum of a file's numbers is finite.
    return float(value) if is_number and abs(value) <= sys.maxsize else math.nan
