"""Pauses a run while a disk is full: results wait in memory, and nothing new begins.

blocked_by()? ─none─▶ continue
   │ why
   └▶ report once ─▶ blocked_by() again, and again ─none─▶ report ─▶ continue
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from shoal_base.waits import POLL_S, RETRY_S

log = logging.getLogger(__name__)


class RunPause:
    """Pauses a run while it lacks disk space."""

    def __init__(
        self,
        *,
        blocked_by: Callable[[], str],
        should_stop: Callable[[], bool],
        on_change: Callable[[str], None],
    ) -> None:
        """`blocked_by` retries what failed and returns why it still fails; `on_change` receives
        that text, and an empty one when the pause ends."""
        self._blocked_by, self._should_stop, self._on_change = blocked_by, should_stop, on_change

    def wait_for_space(self) -> bool:
        """Return True when nothing is blocked; wait until then. False on a stop before."""
        why = self._blocked_by()
        if not why:
            return True
        log.error("paused: %s; continues when there is space", why)
        self._on_change(why)
        while why and not self._should_stop():
            self._wait()
            why = self._blocked_by()
        if why:
            return False
        log.info("there is space again: continuing")
        self._on_change("")
        return True

    def _wait(self) -> None:
        deadline = time.monotonic() + RETRY_S
        while not self._should_stop() and time.monotonic() < deadline:
            time.sleep(POLL_S)
