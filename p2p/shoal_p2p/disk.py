"""A peer's data directory: detection of a full disk, and the small states that are saved there.

    a write fails ─▶ refused() ─▶ full, logged ─▶ watch(): tries a small file ─▶ space, logged

Writers of data that must not be lost retry by themselves and do not depend on this state. Each
change between full and not full is logged once.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import trio

from shoal_base.files import SMALL_FILE_BYTES, is_full
from shoal_base.waits import MINUTE_S, RETRY_S, SHORT_DEADLINE_S
from shoal_p2p.state_file import read_state, set_state_aside, write_state
from shoal_p2p.threads import InThread

log = logging.getLogger(__name__)

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


def read_kept(path: Path, name: str, take: Callable[[str], T]) -> T | None:
    """Return the result of `take` for the text of a state, None without one. Blocks.

    A corrupt one, for which `take` raises ValueError or KeyError, is logged, renamed and skipped.
    """
    try:
        content = read_state(path, name)
        return None if content is None else take(content.decode("utf-8"))
    except (sqlite3.Error, OSError) as error:
        log.warning("cannot read the state %r of %s: %s", name, path, error)
    except (ValueError, KeyError, RecursionError) as error:
        aside = set_state_aside(path, name)
        log.warning(
            "the state %r of %s is corrupt (%s): starting with a new one, the old one is now %r",
            name,
            path,
            error,
            aside,
        )
    return None


class KeptState:
    """A small state of a peer: read once, written while it runs and when it ends."""

    def __init__(
        self,
        path: Path,
        name: str,
        *,
        in_thread: InThread = trio.to_thread.run_sync,
        refused: Refused = say_refused,
    ) -> None:
        """`name` is the state's name in the file `path`."""
        self._path, self._name = path, name
        self._in_thread = in_thread
        self._refused = refused
        self._saved = ""

    async def load(self, take: Callable[[str], T]) -> T | None:
        """Read the state, like `read_kept`."""
        return await self._in_thread(read_kept, self._path, self._name, take)

    async def save(self, text: str) -> None:
        """Write the state if it changed. A failure is logged, and the next call tries again."""
        if text == self._saved:
            return
        try:
            await self._in_thread(write_state, self._path, self._name, text.encode())
            self._saved = text
        except (sqlite3.Error, OSError) as error:
            self._refused(f"the state {self._name!r} is not saved", error)

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
