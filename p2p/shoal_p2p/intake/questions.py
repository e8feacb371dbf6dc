"""Compares the digests of a batch's questions with those of its tasks. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from shoal_tasks import wire_tasks
from shoal_tasks.types import TaskCoordinates
from shoal_wire.digests import question_digest
from shoal_wire.types import Digest, RolloutBatch
from shoal_wire.verdict import Reason


def coordinates_of(batch: RolloutBatch) -> list[TaskCoordinates]:
    """Return the coordinates whose questions must be regenerated, in the groups' order."""
    tasks = (group.task for group in batch.groups)
    return [wire_tasks.coordinates_of(task) for task in tasks if task.inline is None]


def check_questions(batch: RolloutBatch, regenerated: Sequence[Digest]) -> Reason | None:
    """Compare stated question digests with the regenerated ones, in `coordinates_of`'s order.

    An entry is empty if the generator has no task at these coordinates. Inline tasks carry their
    question, so their digest is computed here.
    """
    remaining = iter(regenerated)
    for group in batch.groups:
        task = group.task
        if task.inline is not None:
            expected = question_digest(task.inline.question)
        else:
            expected = next(remaining)
        if expected != task.question_digest:
            return Reason.QUESTION_MISMATCH
    return None
