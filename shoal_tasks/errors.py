"""Errors of the task package, named by who can do something about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal_tasks.types import TaskCoordinates


class TaskError(Exception):
    """Root of this package's errors."""


class FamilyError(TaskError, ValueError):
    """A family that cannot be used; the message says which field and why."""


class NewerFamilyError(FamilyError):
    """A family whose generator or verifier this version does not have: a newer one may."""


class UnknownFamily(TaskError, LookupError):  # noqa: N818  a fact, not a fault
    """Coordinates name a family, or a configuration of it, that this worker was not given."""


class GenerationError(TaskError):
    """A generator fails on these coordinates, for everybody: no task has them."""

    def __init__(self, why: str, task: TaskCoordinates | None = None) -> None:
        """`task` are the coordinates, where the error is about one task."""
        super().__init__(why)
        self.task = task


class WorkerUnavailable(TaskError):  # noqa: N818  a state, not a fault
    """The task worker could not answer in time. It says nothing about the task: never a penalty."""


class WorkerProtocolError(TaskError):
    """The worker's bytes break the protocol; its process is no longer trusted and is killed."""


class ServerUnavailable(WorkerUnavailable):
    """An OpenEnv server or a judge of the operator's that cannot be used now; one line says why."""

    def __init__(self, why: str, lane: str = "", *, was_asked: bool = True) -> None:
        """`lane` is its `FamilySpec.lane`, where a client of the worker raises this; `was_asked`
        is false where that client knew before that it is away."""
        super().__init__(why)
        self.lane = lane
        self.was_asked = was_asked
