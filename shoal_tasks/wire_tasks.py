"""Conversion between tasks on the wire and tasks as the worker knows them. Pure."""

from __future__ import annotations

from shoal_tasks.spec import FamilySpec
from shoal_tasks.types import TaskCoordinates
from shoal_wire import digests
from shoal_wire.types import Digest, FinishReason, InlineTask, Task


def coordinates_of(task: Task) -> TaskCoordinates:
    """Return a wire task's coordinates."""
    return TaskCoordinates(
        family=task.family,
        config_digest=task.config_digest,
        seed=task.seed,
        index=task.index,
    )


def make_task(coordinates: TaskCoordinates, question: str, spec: FamilySpec) -> Task:
    """Return the wire form of a task whose question has been generated."""
    return Task(
        family=coordinates.family,
        config_digest=coordinates.config_digest,
        seed=coordinates.seed,
        index=coordinates.index,
        verifier=spec.verifier,
        verifier_version=spec.verifier_version,
        question_digest=Digest(digests.question_digest(question)),
    )


def inline_reward(task: InlineTask, text: str, finish: FinishReason) -> float:
    """Return the reward of an answer to an inline task: 1 if complete and equal, otherwise 0."""
    return float(finish is FinishReason.STOP and text.strip() == task.answer.strip())
