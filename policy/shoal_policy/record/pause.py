"""A disk that is full holds a run: what is done waits in memory, and nothing new is begun.

lack()? ─none─▶ go on
   │ why
   └▶ told once ─▶ lack() again, and again ─none─▶ told ─▶ go on
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from shoal_base.waits import POLL_S, RETRY_S

log = logging.getLogger(__name__)


class RunPause:
    """Holds a run while it lacks room."""

    def __init__(
        self,
        *,
        lack: Callable[[], str],
        should_stop: Callable[[], bool],
        tell: Callable[[str], None],
    ) -> None:
        """`lack` tries again what failed, and says why it still fails; `tell` hears that, and an
        empty text once it is over."""
        self._lack, self._should_stop, self._tell = lack, should_stop, tell

    def hold(self) -> bool:
        """Return at once if nothing lacks, else once nothing does; False if told to stop before."""
        why = self._lack()
        if not why:
            return True
        log.error("paused: %s; it goes on by itself when there is room", why)
        self._tell(why)
        while why and not self._should_stop():
            self._wait()
            why = self._lack()
        if why:
            return False
        log.info("there is room again: going on")
        self._tell("")
        return True

    def _wait(self) -> None:
        deadline = time.monotonic() + RETRY_S
        while not self._should_stop() and time.monotonic() < deadline:
            time.sleep(POLL_S)
