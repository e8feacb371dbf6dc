"""A peer's data directory: detection of a full disk, and small files that are saved there.

    a write fails ─▶ refused() ─▶ full, logged ─▶ watch(): tries small files ─▶ space, logged

Writers of data that must not be lost retry by themselves and do not depend on this state. Each
change between full and not full is logged once.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import trio

from shoal_base.files import (
    SMALL_FILE_BYTES,
    is_full,
    read_at_most,
    set_corrupt_aside,
    write_atomically,
)
from shoal_base.waits import MINUTE_S, RETRY_S, SHORT_DEADLINE_S
from shoal_p2p.threads import InThread

log = logging.getLogger(__name__)

MAX_KEPT_BYTES = 4 * 1024 * 1024
_URGENT_SECONDS = MINUTE_S / 3
"""Maximum time until an urgent change is on disk; other changes may take a minute."""

T = TypeVar("T")
Refused = Callable[[str, Exception], None]
"""``refused(what, error)`` is called when something could not be written."""


def say_refused(what: str, error: Exception) -> None:
    """Log each failure; for callers without a `Disk`."""
    log.warning("%s: %s", what, error)


def free_bytes(folder: Path) -> int:
    """Return the free bytes for this user; 0 if unknown."""
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
        """True after a write failed for lack of space, until one succeeds."""
        return self._filled.is_set()

    def refused(self, what: str, error: Exception) -> None:
        """Record that `what` was not written."""
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
        """Check whether a full disk has space again, until cancelled."""
        while True:
            await self._filled.wait()
            await trio.sleep(RETRY_S)
            try:
                await self._in_thread(self._probe)
            except OSError:
                continue
            self._filled = trio.Event()
            log.info("there is room in %s again", self._folder)

    def _probe(self) -> None:
        path = self._folder / f"room.tmp-{os.getpid()}-{secrets.token_hex(4)}"
        try:
            # Less space would be used up at once.
            path.write_bytes(bytes(SMALL_FILE_BYTES))
        finally:
            path.unlink(missing_ok=True)


def read_kept(path: Path, take: Callable[[str], T]) -> T | None:
    """Return the result of `take` for a small file's text, None without a file. Blocks.

    A corrupt file, for which `take` raises ValueError or KeyError, is logged, renamed and skipped.
    """
    try:
        return take(read_at_most(path, MAX_KEPT_BYTES).decode("utf-8"))
    except FileNotFoundError:
        pass
    except OSError as error:
        log.warning("cannot read %s: %s", path, error)
    except (ValueError, KeyError, RecursionError) as error:
        aside = set_corrupt_aside(path)
        log.warning(
            "%s is corrupt (%s): starting with a new one, the old one is now %s", path, error, aside
        )
    return None


class KeptFile:
    """A small file of a peer: read once, written while it runs and when it ends."""

    def __init__(
        self,
        path: Path,
        *,
        in_thread: InThread = trio.to_thread.run_sync,
        refused: Refused = say_refused,
    ) -> None:
        self._path = path
        self._in_thread = in_thread
        self._refused = refused
        self._saved = ""

    async def load(self, take: Callable[[str], T]) -> T | None:
        """Read the file, like `read_kept`."""
        return await self._in_thread(read_kept, self._path, take)

    async def save(self, text: str) -> None:
        """Write the file if it changed. A failure is logged, and the next call tries again."""
        if text == self._saved:
            return
        try:
            await self._in_thread(write_atomically, self._path, text.encode())
            self._saved = text
        except OSError as error:
            self._refused(f"{self._path.name} is not saved", error)

    async def keep(
        self,
        text: Callable[[], str],
        *,
        urgent: Callable[[], int] = lambda: 0,
        within_s: float = _URGENT_SECONDS,
    ) -> None:
        """Save once a minute until cancelled, and within `within_s` of a change of `urgent`."""
        self._saved = text()  # the content read at the start, if any
        due, known = trio.current_time() + MINUTE_S, urgent()
        try:
            while True:
                await trio.sleep(within_s)
                if trio.current_time() >= due or urgent() != known:
                    due, known = trio.current_time() + MINUTE_S, urgent()
                    await self.save(text())
        finally:
            # A disk may hang.
            with trio.CancelScope(shield=True, deadline=trio.current_time() + SHORT_DEADLINE_S):
                await self.save(text())
