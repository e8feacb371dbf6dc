"""Saves the training statistics across restarts: reads them once, writes them periodically."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import trio

from shoal_base.files import read_at_most
from shoal_ipc.answers.learning import Ledger
from shoal_p2p.disk import MAX_KEPT_BYTES, KeptFile
from shoal_p2p.rollouts.training_stats import TrainingStats

if TYPE_CHECKING:
    from trio_typing import TaskStatus

LEDGER_FILE = "ledger.json"


def left_in(folder: Path) -> Ledger | None:
    """Return the view `ledger` of a stopped node's folder, as of its latest round. Blocks.

    None if no ledger can be read.
    """
    try:
        raw = read_at_most(folder / LEDGER_FILE, MAX_KEPT_BYTES)
        ledger = TrainingStats.from_json(raw.decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return ledger.view(ledger.last_ms)


async def keep_ledger(
    ledger: TrainingStats,
    file: KeptFile,
    *,
    task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Read the file, then save changes until cancelled. Ready when it is read."""
    await file.load(ledger.restore)
    task_status.started()
    await file.keep(ledger.to_json, urgent=lambda: ledger.rounds_taken)
