"""A peer's data directory: whether it takes what is written, and small files that are kept there.

    a write fails ─▶ refused() ─▶ full, told ─▶ watch(): small files tried ─▶ room again, told

What must not be lost waits and is tried again by who writes it; nobody reads this to decide. That
it is full is said once each time that this changes.
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
"""Longest time until what is urgent is in a kept file; other changes may take a minute."""

T = TypeVar("T")
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
        """True after a write was refused for lack of room, until one succeeds."""
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
            # Room for less would be gone again at once.
            path.write_bytes(bytes(SMALL_FILE_BYTES))
        finally:
            path.unlink(missing_ok=True)


def read_kept(path: Path, take: Callable[[str], T]) -> T | None:
    """Return what `take` makes of a small file's text, None where there is none. Blocks.

    A corrupt one, of which `take` raises ValueError or KeyError, is named, set aside and skipped.
    """
    try:
        return take(read_at_most(path, MAX_KEPT_BYTES).decode("utf-8"))
    except FileNotFoundError:
        pass
    except OSError as error:
        log.warning("cannot read %s: %s", path, error)
    except (ValueError, KeyError, RecursionError) as error:
        aside = set_corrupt_aside(path)
        log.warning("%s is corrupt (%s): begun anew; kept as %s", path, error, aside)
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
        """Read it as `read_kept` does."""
        return await self._in_thread(read_kept, self._path, take)

    async def save(self, text: str) -> None:
        """Write what has changed. A disk that refuses is logged, and the next time may do."""
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
        """Save once a minute until cancelled, and `within_s` after the count `urgent` changed."""
        self._saved = text()  # what was read, or nothing yet
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
