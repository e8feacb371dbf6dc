"""Limits how many similar lines a log writes per minute, since remote peers can cause log lines.

Lines are similar if they have the same format string. Identities are free: with one line for each
misbehaving identity, an attacker could flood the log and push out all other lines.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from shoal_base.bounded import BoundedDict
from shoal_base.waits import MINUTE_S

LINES: Final = int(MINUTE_S)  # one a second, as a log that a person reads; a guess
SUPPRESSED: Final = "num_suppressed"
"""Attribute of a record: similar lines suppressed before it."""


@dataclass(slots=True)
class _Kind:
    since: float
    num: int = 0
    num_suppressed: int = 0


class LinePace(logging.Filter):
    """Passes LINES similar lines per minute; the next one then states how many were suppressed.

    Errors always pass, since they are this program's own faults, and so do debug lines, which are
    off by default.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds = BoundedDict[tuple[str, str], _Kind]()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether `record` is written."""
        if not logging.DEBUG < record.levelno < logging.ERROR:
            return True
        now = self._clock()
        kind = self._kinds.use((record.name, str(record.msg)), lambda: _Kind(now))
        num_suppressed = 0
        if now - kind.since >= MINUTE_S:
            num_suppressed = kind.num_suppressed
            kind.since, kind.num, kind.num_suppressed = now, 0, 0
        if kind.num >= LINES:
            kind.num_suppressed += 1
            return False
        kind.num += 1
        setattr(record, SUPPRESSED, num_suppressed)
        return True
