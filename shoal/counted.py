"""Progress of long work on standard error: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from shoal_base.terminal import Terminal

SAY_EVERY_SECONDS = 10.0  # a log stays readable; a guess
SURE_SECONDS = 5.0
"""Least time at one pace before it says how long the rest takes."""


class Counted:
    """Work whose parts can be counted. Standard output stays for results."""

    def __init__(
        self,
        unit: str,
        total: int,
        *,
        stays: bool = False,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`total` parts are to be done, `unit` in the plural; `stays`: the bar, when they are."""
        self._console = console or Terminal(stderr=True)
        self._clock = clock
        self._unit, self._total, self._stays = unit, total, stays
        self._next = clock() + SAY_EVERY_SECONDS
        self._first: tuple[float, int] | None = None
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def __enter__(self) -> Self:
        if self._console.is_terminal and self._total:
            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f} %", markup=False),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}", markup=False),
                console=self._console,
                transient=not self._stays,
            )
            self._bar.start()
            self._task = self._bar.add_task(self._unit, total=self._total, left="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def told(self, done: int, doing: str = "") -> None:
        """Say that so many are done by now, and what of."""
        left = self.time_left(done)
        if self._bar is not None:
            text = doing or self._unit
            self._bar.update(self._task, completed=done, description=text, left=left)
        elif self._clock() >= self._next:
            self._next = self._clock() + SAY_EVERY_SECONDS
            text = f"{done:,} of {self._total:,} {self._unit}"
            self._console.print(f"{text}, {left}" if left else text)

    def time_left(self, done: int) -> str:
        """The time that is left, by the pace since the first parts were done; empty before.

        What comes before those, programs that start and models that load, comes once.
        """
        now = self._clock()
        if self._first is None:
            self._first = (now, done)
        began, before = self._first
        if now - began < SURE_SECONDS or done <= before:
            return ""
        seconds = (now - began) / (done - before) * max(0, self._total - done)
        minutes = f"about {seconds / 60:.0f} min left"
        return f"about {seconds:.0f} s left" if seconds < 90 else minutes
