"""Arguments and results of the task worker's clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shoal_tasks.spec import JsonValue
from shoal_wire.types import Digest, FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCoordinates:
    """The coordinates of a task, from which question and answer are regenerated."""

    family: str
    config_digest: Digest
    """16 bytes, `shoal_tasks.families.config_digest`."""
    seed: int
    """0 ≤ seed < 2**31."""
    index: int
    """0 ≤ index < 2**31."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskItem:
    """A regenerated task."""

    question: str
    answer: str | None
    """The generator's own answer; None where any valid answer is accepted."""
    metadata: Mapping[str, JsonValue]
    """The generator's notes, as far as JSON can carry them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRequest:
    """One completion to score."""

    task: TaskCoordinates
    text: str
    finish_reason: FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayRequest:
    """The beginning of a game: what the policy has said in it so far."""

    task: TaskCoordinates
    messages: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """The answers of an environment."""

    observations: tuple[str, ...]
    """Its answer to each message, in order: fewer where the game was over before."""
    done: bool
    """True when the game is over."""
    reward: float
    """The reward of the messages as a completion, 0 to 1."""
    error: str = ""
    """Why the game cannot go on: what the environment raised, or a limit that it reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreResult:
    """The reward of one completion. A failure to score is a reward of 0, and says why."""

    reward: float
    """0 ≤ reward ≤ 1."""
    timed_out: bool = False
    """Scoring was cut by a limit, in the worker or from outside."""
    crashed: bool = False
    """The worker process died over this item."""
    error: str = ""
    """The error of the family's own Python function, in one line for its author."""
    waits: bool = False
    """True if it was not scored, since the family's server or judge is away."""
