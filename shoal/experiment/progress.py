"""How far an experiment is, and how long it still takes: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from shoal.experiment.plan import Job
from shoal_base.terminal import Terminal

SAY_EVERY_SECONDS = 10.0


class JobProgress:
    """Counts rounds of all jobs; on standard error, so that standard output stays for results."""

    def __init__(
        self,
        *,
        num_rounds: int,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`num_rounds`: what is left to play, all jobs together."""
        self._console = console or Terminal(stderr=True)
        self._clock = clock
        self._started = clock()
        self._next = self._started + SAY_EVERY_SECONDS
        self._total = num_rounds
        self._done: dict[str, int] = {}
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
            )
            self._bar.start()
            self._task = self._bar.add_task("starting", total=self._total, left="")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, job: Job, rounds: int) -> None:
        """A job has played so many rounds."""
        self._done[job.file_name] = rounds
        done = sum(self._done.values())
        if self._bar is not None:
            text = f"{job.arm.name} seed {job.seed}"
            self._bar.update(
                self._task, completed=done, description=text, left=self.time_left(done)
            )
        elif self._clock() >= self._next:
            self._next = self._clock() + SAY_EVERY_SECONDS
            self._console.print(f"{done} of {self._total} rounds, {self.time_left(done)}")

    def time_left(self, done: int) -> str:
        """The time that is left, from the pace so far."""
        if not done:
            return ""
        seconds = (self._clock() - self._started) / done * (self._total - done)
        return (
            f"about {seconds:.0f} s left" if seconds < 90 else f"about {seconds / 60:.0f} min left"
        )
