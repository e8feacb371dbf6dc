"""Progress of long work on standard error: a bar on a terminal, otherwise a line at intervals."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from shoal_base.terminal import Terminal

SAY_EVERY_SECONDS = 10.0  # a log stays readable; a guess


class Counted:
    """Shows the progress of work with countable parts. Writes nothing to standard output."""

    def __init__(
        self,
        unit: str,
        total: int,
        *,
        stays: bool = False,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Show `total` parts, named `unit` in the plural; `stays`: the bar stays at the end."""
        self._console = console or Terminal(stderr=True)
        self._clock = clock
        self._unit, self._total = unit, total
        self._next = clock() + SAY_EVERY_SECONDS
        # The speed is measured from the first parts on: starting programs and loading models
        # happens once.
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %", markup=False),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            transient=not stays,
            get_time=clock,
            speed_estimate_period=math.inf,
            disable=not (self._console.is_terminal and total),
        )
        self._task = self._bar.add_task(unit, total=total)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def update(self, done: int, doing: str = "") -> None:
        """Show that `done` parts are done; `doing` replaces the unit."""
        self._bar.update(self._task, completed=done, description=doing or self._unit)
        if self._bar.disable and self._clock() >= self._next:
            self._next = self._clock() + SAY_EVERY_SECONDS
            text = f"{done:,} of {self._total:,} {self._unit}"
            left = self._bar.tasks[0].time_remaining
            self._console.print(text if left is None else f"{text}, about {_duration(left)} left")


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
