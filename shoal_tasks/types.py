"""Arguments and results of the task worker's clients."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

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


class Split(StrEnum):
    """Permitted use of a question."""

    TRAINING = "training"
    HELD_OUT = "held_out"
    """Only for evaluations and judges, never for training."""
    UNUSED = "unused"
    """Never used: its answer is too frequent, or every answer would be right."""
    UNAVAILABLE = "unavailable"
    """Unknown at present: the OpenEnv server that generates it is unavailable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskItem:
    """A regenerated task."""

    question: str
    answer: str | None
    """The generator's own answer; None if it accepts any valid answer."""
    example: str | None
    """One answer that earns the full reward; None if none is known."""
    part: Split
    """Permitted use of the question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRequest:
    """One completion to score, as a group of one."""

    task: TaskCoordinates
    text: str
    finish_reason: FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRequest:
    """All completions of one group, to score together and in the group's order."""

    task: TaskCoordinates
    answers: tuple[tuple[str, FinishReason], ...]
    """The text of each completion, and how it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayRequest:
    """The beginning of a game: the policy's messages so far."""

    task: TaskCoordinates
    messages: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """The replies of an environment."""

    observations: tuple[str, ...]
    """Its reply to each message, in order: fewer if the game ended earlier."""
    done: bool
    """True if the game is over."""
    reward: float
    """The reward of the messages as a completion, 0 to 1."""
    error: str = ""
    """Why the game cannot continue: the environment's exception, or a limit that it reached."""

    @classmethod
    def over(cls, error: str) -> Self:
        """Return a game that cannot be played."""
        return cls(observations=(), done=True, reward=0.0, error=error)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreResult:
    """The reward of one completion. A failure to score is a reward of 0, with the reason."""

    reward: float
    """0 ≤ reward ≤ 1."""
    timed_out: bool = False
    """True if a limit ended scoring, in the worker or in the client."""
    crashed: bool = False
    """True if the worker process died on this item."""
    error: str = ""
    """The error of the family's own Python function, one line for its author."""
    note: str = ""
    """One line for that function's author about a reward that counts."""
    is_deferred: bool = False
    """True if it was not scored, because the family's server or judge is unavailable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """State of one layer of the worker's sandbox: in force, or why it is not."""

    name: str
    active: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """A worker's report about itself at its start."""

    pid: int
    layers: tuple[Layer, ...]
    is_in_sandbox: bool = True
    """False for a judge, which is the operator's own program."""
    notes: tuple[str, ...] = ()
    """Lines for the authors of its families."""

    @property
    def is_sandboxed(self) -> bool:
        """True if the operating system isolates its code from the user's files and the network."""
        return is_sandboxed(self.layers)

    @property
    def sandbox(self) -> str:
        """The layers that isolate its code, and those that this machine does not allow."""
        known = {layer.name: layer for layer in self.layers}
        shown = [(words, known[name]) for name, words in _SHOWN.items() if name in known]
        inside = ", ".join(words for words, layer in shown if layer.active)
        without = ", ".join(f"{words} ({one.detail})" for words, one in shown if not one.active)
        return "; without ".join(part for part in (inside, without) if part)


_SHOWN: Final = {
    "filesystem": "a root of its own",
    "landlock": "Landlock",
    "network": "no network",
    "seccomp": "a filter of system calls",
    "audit_hook": "the interpreter's hook",
}


def is_sandboxed(layers: Iterable[Layer]) -> bool:
    """Return whether the operating system isolates a process from the user's files, from the
    network and from other processes, whatever its code does.
    """
    active = {one.name for one in layers if one.active}
    return "seccomp" in active and bool(active & {"filesystem", "landlock"})
