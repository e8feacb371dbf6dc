"""Findings about a task, and the report that collects them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    """The severity of a finding."""

    REFUSED = "refused"
    """The task rewards something other than correct answers: no start accepts it."""
    UNPROVEN = "unproven"
    """No correct answer is known, so nothing shows that one earns most. A start warns."""
    WARNING = "warning"
    """The task can be trained on, but its author should know."""
    SKIPPED = "skipped"
    """A check was skipped, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One statement about a task."""

    level: Level
    check: str
    """The check's name, for programs."""
    message: str
    """One line: what is wrong, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All findings about one task."""

    family: str
    findings: tuple[Finding, ...] = ()
    form: str = ""
    """The form in which the correct answer earned most, with X for the answer; empty if unknown."""
    forms: tuple[str, ...] = ()
    """The forms in which the correct answer was tried."""
    right: float | None = None
    """Mean over rows of the correct answer's reward in its best form; None if none was tried."""
    wrong: Mapping[str, float] = field(default_factory=dict)
    """The same for each kind of wrong completion."""
    floor: float | None = None
    """Best mean reward of an unskilled answer over many questions; None if not measured."""
    floor_answer: str = ""
    num_rows: int = 0
    """Number of rows, or games, that were tried."""
    num_scores: int = 0
    """Number of completions that were scored, each twice."""
    seconds_per_score: float | None = None
    """Mean wall time of one score; None if nothing was scored."""
    is_complete: bool = True
    """False if the time was up first."""

    @property
    def is_refused(self) -> bool:
        """True if no start accepts the task."""
        return any(one.level is Level.REFUSED for one in self.findings)

    @property
    def is_sound(self) -> bool:
        """True if a correct answer was shown to earn most, or this could not be tested."""
        return not any(one.level in (Level.REFUSED, Level.UNPROVEN) for one in self.findings)

    @property
    def sentence(self) -> str:
        """The most important message; empty for a sound task."""
        for level in (Level.REFUSED, Level.UNPROVEN):
            for one in self.findings:
                if one.level is level:
                    return one.message
        return ""

    def view(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {
            "family": self.family,
            "sound": self.is_sound,
            "form": self.form or None,
            "forms": list(self.forms),
            "right": self.right,
            "wrong": dict(self.wrong),
            "floor": self.floor,
            "floor_answer": self.floor_answer or None,
            "rows": self.num_rows,
            "scores": self.num_scores,
            "seconds_per_score": self.seconds_per_score,
            "complete": self.is_complete,
            "findings": [
                {"level": str(one.level), "check": one.check, "message": one.message}
                for one in self.findings
            ],
        }
