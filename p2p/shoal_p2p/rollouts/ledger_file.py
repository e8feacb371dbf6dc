"""Keeps the ledger of learning over restarts: read once, written now and then and at the end."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from shoal_base.files import read_at_most, set_corrupt_aside, write_atomically
from shoal_ipc.answers.learning import Ledger
from shoal_p2p.disk import Refused, say_refused
from shoal_p2p.rollouts.learning_ledger import LearningLedger
from shoal_p2p.threads import InThread
from shoal_wire.types import PeerId

if TYPE_CHECKING:
    from trio_typing import TaskStatus

log = logging.getLogger(__name__)

LEDGER_FILE = "ledger.json"
_MAX_FILE_BYTES = 4 * 1024 * 1024
_SAVE_SECONDS = 20.0
_MARKS_SECONDS = 60.0
"""Who came and went changes all the time, and is no reason to write more often."""
_SAVE_DEADLINE_SECONDS = 2.0


def left_in(folder: Path, me: str) -> Ledger | None:
    """Return the ledger's view in a folder, as of when its node trained last. Blocks.

    `me` is the node's id, empty where that is not known. None where no ledger can be read.
    """
    try:
        raw = read_at_most(folder / LEDGER_FILE, _MAX_FILE_BYTES)
        ledger = LearningLedger.left(raw.decode("utf-8"), PeerId(me))
    except (OSError, ValueError, RecursionError):
        return None
    return ledger.view(ledger.last_ms)


class LedgerFile:
    """One ledger on disk."""

    def __init__(
        self,
        ledger: LearningLedger,
        path: Path,
        *,
        in_thread: InThread = trio.to_thread.run_sync,
        refused: Refused = say_refused,
    ) -> None:
        self._ledger = ledger
        self._path = path
        self._in_thread = in_thread
        self._refused = refused
        self._saved = ledger.changes
        self._saved_rounds = ledger.rounds_taken

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Read it, then save what changed until cancelled. Ready when it is read."""
        await self._load()
        task_status.started()
        marks_due = trio.current_time() + _MARKS_SECONDS
        try:
            while True:
                await trio.sleep(_SAVE_SECONDS)
                now = trio.current_time()
                if now >= marks_due or self._ledger.rounds_taken != self._saved_rounds:
                    marks_due = now + _MARKS_SECONDS
                    await self._save()
        finally:
            with trio.CancelScope(
                shield=True, deadline=trio.current_time() + _SAVE_DEADLINE_SECONDS
            ):
                await self._save()

    async def _load(self) -> None:
        try:
            raw = await self._in_thread(read_at_most, self._path, _MAX_FILE_BYTES)
            self._ledger.restore(raw.decode("utf-8"))
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("cannot read %s: %s", self._path, error)
        except (ValueError, RecursionError) as error:
            aside = await self._in_thread(set_corrupt_aside, self._path)
            log.warning("%s is damaged (%s): begun anew; kept as %s", self._path, error, aside)

    async def _save(self) -> None:
        changes, rounds = self._ledger.changes, self._ledger.rounds_taken
        if changes == self._saved:
            return
        text = self._ledger.to_json()
        try:
            await self._in_thread(write_atomically, self._path, text.encode())
            self._saved, self._saved_rounds = changes, rounds
        except OSError as error:
            self._refused(f"{self._path.name} is not saved", error)
