"""Startup errors of a trainer that end its node, since every restart would hit them again.

Until the first round's own answers exist, a trainer depends only on the model, the folder, the
device and the swarm's questions, not on peers: a failure then is caused by its settings. Failures
that may pass (a disk, another process, a slow task worker, memory where a run has fitted before)
are left to the node, which restarts the trainer.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from shoal_base.visible import first_line
from shoal_policy.checkpoint.saved import CheckpointError
from shoal_policy.distributed import RankError
from shoal_policy.model.loading import ModelError
from shoal_policy.model.memory import format_gib, free_bytes, is_out_of_memory
from shoal_settings.schema import Settings
from shoal_tasks.errors import FamilyError, TaskError


def startup_error(error: Exception, settings: Settings) -> str | None:
    """Return a one-line error for a startup failure; None if a restart may succeed."""
    chain = list(_causes(error))
    has_worked = (settings.data_dir / "checkpoints").is_dir()
    if any(is_out_of_memory(cause) for cause in chain):
        return (
            None
            if has_worked
            else (
                f"not enough memory for model {settings.model!r} and its completions: "
                f"{format_gib(free_bytes(settings.device))} free; "
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
        return f"a package is missing from this installation: {first_line(error)}"
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
