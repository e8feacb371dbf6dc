"""Saves the training statistics across restarts: reads them once, writes them periodically."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from shoal_ipc.answers.learning import Ledger
from shoal_p2p.disk import KeptState
from shoal_p2p.rollouts.training_stats import TrainingStats
from shoal_p2p.state_file import STATE_FILE, read_state

if TYPE_CHECKING:
    from trio_typing import TaskStatus

LEDGER = "ledger"
"""Name of the state."""


def left_in(folder: Path) -> Ledger | None:
    """Return the view `ledger` of a stopped node's folder, as of its latest round. Blocks.

    None if no ledger can be read.
    """
    try:
        raw = read_state(folder / STATE_FILE, LEDGER)
        if raw is None:
            return None
        ledger = TrainingStats.from_json(raw.decode("utf-8"))
    except (sqlite3.Error, OSError, ValueError, RecursionError):
        return None
    return ledger.view(ledger.last_ms)


async def keep_ledger(
    ledger: TrainingStats,
    state: KeptState,
    *,
    task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Read the state, then save changes until cancelled. Ready when it is read."""
    await state.load(ledger.restore)
    task_status.started()
    await state.keep(ledger.to_json, urgent=lambda: ledger.rounds_taken)
