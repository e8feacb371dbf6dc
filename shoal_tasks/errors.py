"""Errors of the task package, named by who can act on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal_tasks.types import TaskCoordinates


class TaskError(Exception):
    """Base class of this package's errors."""


class FamilyError(TaskError, ValueError):
    """A family that cannot be used; the message says which field and why."""


class NewerFamilyError(FamilyError):
    """A family whose generator or verifier this version lacks; a newer one may have it."""


class UnknownFamily(TaskError, LookupError):  # noqa: N818  a fact, not a fault
    """Coordinates name a family or a configuration that this worker does not serve."""


class GenerationError(TaskError):
    """A generator fails on these coordinates, on every machine: they have no task."""

    def __init__(self, why: str, task: TaskCoordinates | None = None) -> None:
        """`task` are the coordinates, if the error is about one task."""
        super().__init__(why)
        self.task = task


class WorkerUnavailable(TaskError):  # noqa: N818  a state, not a fault
    """The task worker could not reply in time. It says nothing about the task: no penalty."""


class WorkerProtocolError(TaskError):
    """The worker violated the protocol. Its process is no longer trusted and is killed."""


class ServerUnavailable(WorkerUnavailable):
    """The operator's OpenEnv server or judge cannot be used now; one line says why."""

    def __init__(self, why: str, worker_key: str = "", *, was_contacted: bool = True) -> None:
        """`worker_key` is its `FamilySpec.worker_key`, set by a client of the worker;
        `was_contacted` is False if that client did not try, because it was unavailable shortly
        before."""
        super().__init__(why)
        self.worker_key = worker_key
        self.was_contacted = was_contacted
