"""The trainer's current phase and its progress, for people who wait for a slow model.

    enter(GENERATING) ─▶ step … step ─▶ enter(SCORING) ─▶ enter(UPDATING) ─▶ …
          └──────────────┴─────────────────┴──▶ listeners, about once a second

Rounds of a small model take milliseconds: listeners are called once a second at most, otherwise a
phase costs only a look at the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from shoal_base.waits import RETRY_S
from shoal_ipc.answers.node import Progress
from shoal_ipc.answers.words import doing


class Phase(StrEnum):
    """One step of a trainer's work."""

    LOADING = "loading"
    """Loading the model or a checkpoint."""
    TRYING = "trying prompts"
    """Testing whether worked examples before questions give signal."""
    EVALUATING = "evaluating"
    GENERATING = "generating"
    SCORING = "scoring"
    """Scoring own answers in the task worker."""
    SAMPLING = "sampling"
    """Sampling external groups and verifying them."""
    UPDATING = "updating"
    SAVING = "saving"
    WAITING = "waiting"
    """Waiting for `--round-seconds` to pass, or for a server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseProgress:
    """A phase with its progress."""

    phase: Phase
    progress: Progress

    def __str__(self) -> str:
        """It as a person reads it: ``round 1: generating, 12 of 32, for 24.0 s, ~40.0 s left``."""
        return doing(self.phase, self.progress)


class ProgressTracker:
    """The current phase of a trainer, with its listeners."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._listeners: list[Callable[[PhaseProgress], None]] = []
        self._phase, self._of = Phase.LOADING, 0
        self._round: int | None = None
        self._done, self._fraction = 0, 0.0
        self._since = clock()
        self._last_notified = float("-inf")
        self.has_generated = False
        """True once a round's own answers exist: until then no peer's data was used."""

    def add_listener(self, listener: Callable[[PhaseProgress], None]) -> None:
        """Call `listener` with the current phase, at most about once a second."""
        self._listeners.append(listener)

    @property
    def current(self) -> PhaseProgress:
        """Return the current phase and its progress."""
        seconds, fraction = self._clock() - self._since, self._fraction
        left_s = round(seconds * (1 - fraction) / fraction, 1) if fraction > 0 else None
        return PhaseProgress(
            phase=self._phase,
            progress=Progress(
                round=self._round,
                done=self._done,
                total=self._of,
                elapsed_s=round(seconds, 1),
                remaining_s=left_s,
            ),
        )

    def enter(self, phase: Phase, *, round: int | None = None, of: int = 0) -> None:
        """Begin a phase; `of` is the number of answers that it will produce, if any."""
        now = self._clock()
        was_long = now - self._since >= RETRY_S
        self.has_generated |= self._phase is Phase.GENERATING and phase is Phase.SCORING
        self._phase, self._round, self._of = phase, round, of
        self._done, self._fraction, self._since = 0, 0.0, now
        self._notify(now, at_once=was_long)

    def step(self, done: int, fraction: float) -> None:
        """Report how many answers are done, and the fraction of the work (0 to 1)."""
        self._done, self._fraction = done, fraction
        self._notify(self._clock(), at_once=False)

    def _notify(self, now: float, *, at_once: bool) -> None:
        if not at_once and now - self._last_notified < RETRY_S:
            return
        self._last_notified = now
        current = self.current
        for listener in self._listeners:
            listener(current)
