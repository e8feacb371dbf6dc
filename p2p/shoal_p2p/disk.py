"""Whether the data directory takes what is written, said once each time that this changes.

    a write fails ─▶ refused() ─▶ full, told ─▶ watch(): small files tried ─▶ room again, told

What must not be lost waits and is tried again by who writes it; nobody reads this to decide.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

import trio

from shoal_base.files import is_full
from shoal_p2p.threads import InThread

log = logging.getLogger(__name__)

RETRY_SECONDS = 2.0
PROBE_BYTES = 1 << 20
"""Room for less would be gone again at once."""

Refused = Callable[[str, Exception], None]
"""Told what could not be written, and why."""


def say_refused(what: str, error: Exception) -> None:
    """Say it each time: for who has no `Disk`."""
    log.warning("%s: %s", what, error)


def free_bytes(folder: Path) -> int:
    """Return what this user may still write there; 0 if nobody knows."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


class Disk:
    """The disk under one peer's data directory."""

    def __init__(self, folder: Path, *, in_thread: InThread = trio.to_thread.run_sync) -> None:
        self._folder = folder
        self._in_thread = in_thread
        self._filled = trio.Event()

    @property
    def full(self) -> bool:
        """Whether a write was refused for lack of room, and none has been tried with success."""
        return self._filled.is_set()

    def refused(self, what: str, error: Exception) -> None:
        """Take in that `what` did not reach the disk."""
        if not is_full(error):
            say_refused(what, error)
        elif not self.full:
            self._filled.set()
            log.error(
                "no space left in %s (%s): training waits until there is room; others' batches are"
                " used, and not kept",
                self._folder,
                what,
            )

    async def watch(self) -> None:
        """Find out when a full disk has room again, until cancelled."""
        while True:
            await self._filled.wait()
            await trio.sleep(RETRY_SECONDS)
            try:
                await self._in_thread(self._probe)
            except OSError:
                continue
            self._filled = trio.Event()
            log.info("there is room in %s again", self._folder)

    def _probe(self) -> None:
        path = self._folder / f"room.tmp-{os.getpid()}-{secrets.token_hex(4)}"
        try:
            path.write_bytes(bytes(PROBE_BYTES))
        finally:
            path.unlink(missing_ok=True)
