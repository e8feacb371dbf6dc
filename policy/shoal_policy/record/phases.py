"""The trainer's present phase, and its progress: for people who wait on a slow model.

    enter(GENERATING) ─▶ step … step ─▶ enter(SCORING) ─▶ enter(UPDATING) ─▶ …
          └──────────────┴─────────────────┴──▶ listeners, about once a second

The rounds of a small model take milliseconds: its phases are told once a second at most, and cost
a look at the clock.
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
    """One step of a trainer's course."""

    LOADING = "loading"
    """The model, or a checkpoint."""
    TRYING = "trying prompts"
    """A trial of worked examples before questions: do they give signal?"""
    EVALUATING = "evaluating"
    GENERATING = "generating"
    SCORING = "scoring"
    """Own answers, by the task worker."""
    SAMPLING = "sampling"
    """Sampling external groups and verifying them."""
    UPDATING = "updating"
    SAVING = "saving"
    WAITING = "waiting"
    """A pause until `--round-seconds` are over, or a server answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseProgress:
    """A phase as it stands."""

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
        self._told = float("-inf")
        self.has_answered = False
        """True once a round's own answers are there: until then nothing of any peer was met."""

    def listen(self, hear: Callable[[PhaseProgress], None]) -> None:
        """Have `hear` called with what is done, about once a second at most."""
        self._listeners.append(hear)

    @property
    def doing(self) -> PhaseProgress:
        """The phase as it stands."""
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
        """Begin a phase; `of` is how many answers it is to bring, where it brings any."""
        now = self._clock()
        was_long = now - self._since >= RETRY_S
        self.has_answered |= self._phase is Phase.GENERATING and phase is Phase.SCORING
        self._phase, self._round, self._of = phase, round, of
        self._done, self._fraction, self._since = 0, 0.0, now
        self._tell(now, at_once=was_long)

    def step(self, done: int, fraction: float) -> None:
        """Say how many answers are done, and which part of the work that is (0 to 1)."""
        self._done, self._fraction = done, fraction
        self._tell(self._clock(), at_once=False)

    def _tell(self, now: float, *, at_once: bool) -> None:
        if not at_once and now - self._told < RETRY_S:
            return
        self._told = now
        doing = self.doing
        for hear in self._listeners:
            hear(doing)
