"""Failures of a trainer's start that end its node, since every new start would meet them again.

Until the first round's own answers are there, a trainer has met the model, the folder, the device
and the swarm's questions, and nothing of any peer: what fails then fails for its settings. What may
be otherwise in a minute (a disk, another process, a task worker that was too slow, memory where a
run has fitted before) is left to the node, which starts the trainer again.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from shoal_base.visible import first_line
from shoal_policy.checkpoint.saved import CheckpointError
from shoal_policy.distributed import RankError
from shoal_policy.model.loading import ModelError
from shoal_policy.model.memory import free_bytes, gibibytes, is_out_of_memory
from shoal_settings.schema import Settings
from shoal_tasks.errors import FamilyError, TaskError


def refusal_of(error: Exception, settings: Settings) -> str | None:
    """Return the one line for a failure before the first answers; None if it may not come again."""
    chain = list(_causes(error))
    has_worked = (settings.data_dir / "checkpoints").is_dir()
    if any(is_out_of_memory(cause) for cause in chain):
        return (
            None
            if has_worked
            else (
                f"memory does not hold model {settings.model!r} with its answers: "
                f"{gibibytes(free_bytes(settings.device))} are free; "
                "a smaller --model, --lora-rank 16, fewer --completions need less"
            )
        )
    if isinstance(error, ModelError | FamilyError):
        return str(error)
    if any(isinstance(cause, OSError | TaskError | RankError) for cause in chain):
        return None
    if isinstance(error, CheckpointError):
        return str(error)
    if isinstance(error, ImportError):
        return f"this installation lacks what it needs: {first_line(error)}"
    if has_worked or any(isinstance(cause, torch.AcceleratorError) for cause in chain):
        return None
    return (
        f"model {settings.model!r} cannot be trained here: {type(error).__name__}: "
        f"{first_line(error)} (--log-level debug shows where)"
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    while error is not None:
        yield error
        error = error.__cause__
